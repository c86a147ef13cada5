"""What does not fit a mesh is named with its values before anything is traced."""

from types import SimpleNamespace

import pytest

from gshard_annotate import make_mesh
from gshard_train import layouts
from gshard_train.mesh_faults import mesh_faults
from gshard_train.models.transformer import TransformerConfig


def faults(tiny, mesh: dict[str, int], *, rules=None, **values) -> list[str]:
    model = TransformerConfig(**{**vars(tiny), **values.pop("model", {})})
    experiment = {
        "model": model,
        "rules": rules or layouts.gshard(),
        "batch_size": 16,
        "microbatches": 1,
        "offload_optimizer": False,
        **values,
    }
    return list(mesh_faults(SimpleNamespace(**experiment), make_mesh(mesh)))


def test_what_fits_has_no_fault(tiny):
    assert faults(tiny, {"data": 2, "expert": 4}) == []
    assert faults(tiny, {"replica": 2, "data": 2, "expert": 2}, batch_size=32) == []
    assert faults(tiny, {"data": 2, "expert": 2, "model": 2}, model={"target_vocab_size": 20}) == [
        "source_vocab_size=23 cannot be divided by the 2 parts of mesh axis 'model' "
        "(23 % 2 = 1); use 22 or 24"
    ]


def test_microbatches_divide_rows_and_groups_beside_the_mesh(tiny):
    assert faults(tiny, {"data": 2, "expert": 4}, microbatches=3) == [
        "batch_size=16 cannot be divided by the 24 parts of mesh (data 2 x expert 4) in 3 "
        "microbatches (16 % 24 = 16); use 24",
        "num_groups=8 cannot be divided by the 24 parts of mesh (data 2 x expert 4) in 3 "
        "microbatches (8 % 24 = 8); use 24",
    ]


def test_replicas_divide_the_batch_too(tiny):
    (fault,) = faults(
        tiny,
        {"replica": 4, "data": 1, "expert": 2},
        batch_size=12,
        model={"num_groups": 12, "num_experts": 0},
    )
    assert fault == (
        "batch_size=12 cannot be divided by the 8 parts of mesh (replica 4 x data 1 x expert 2) "
        "(12 % 8 = 4); use 8 or 16"
    )


def test_each_width_is_named_once(tiny):
    found = faults(tiny, {"data": 4, "expert": 2}, rules=layouts.fsdp(), model={"embed": 6})
    assert found == [
        "embed=6 cannot be divided by the 8 parts of mesh axes 'data', 'expert' (6 % 8 = 6); use 8",
        "embed=6 cannot be divided by the 4 parts of mesh axis 'data' (6 % 4 = 2); use 4 or 8",
    ]


def test_an_axis_that_no_rule_names_is_refused(tiny):
    (fault,) = faults(tiny, {"data": 2, "expert": 2, "modle": 2})
    assert fault == (
        "mesh axis 'modle' of size 2 splits nothing, since no rule names it: its devices would "
        "all compute the same; rules name replica, data, expert, stage, model"
    )


@pytest.mark.parametrize(
    ("rules", "axis"),
    [
        (layouts.tensor_parallel(), "model"),
        (layouts.several_slices(), "replica"),
        (layouts.pipeline(), "stage"),
    ],
)
def test_a_layout_made_for_an_axis_needs_it(tiny, rules, axis):
    (fault,) = faults(tiny, {"data": 2, "expert": 4}, rules=rules)
    assert fault == (
        f"the mesh has the axes data, expert and lacks {axis}; give size 1 to an axis that is not "
        "used"
    )


def test_stages_divide_the_pairs_of_layers(tiny):
    found = faults(tiny, {"data": 1, "expert": 2, "stage": 4}, batch_size=32)
    assert found[0].startswith("num_encoder_layers=4 makes 2 pairs, which 4 pipeline stages do not")


def test_offloading_needs_a_memory_of_the_host(tiny, monkeypatch):
    assert faults(tiny, {"data": 2, "expert": 4}, offload_optimizer=True) == []
    monkeypatch.setattr("gshard_train.state.HOST_MEMORY", "far_away")
    (fault,) = faults(tiny, {"data": 2, "expert": 4}, offload_optimizer=True)
    assert fault == (
        "offload_optimizer=True needs the memory 'far_away', and cpu devices have device, "
        "pinned_host, unpinned_host; set Experiment.offload_optimizer = False"
    )
