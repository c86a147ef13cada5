"""The table of parameters at the start of a run."""

import dataclasses
import types

import jax
import pytest

from gshard_annotate import DEFAULT_RULES
from gshard_train import state
from gshard_train.experiment import Prepared
from gshard_train.monitoring.overview import counts, device_bytes, moe_layer_names, overview
from gshard_train.optimizer import adam


@pytest.fixture(scope="module")
def text(tiny, mesh):
    model, optimizer = state.abstract_model(tiny), adam(1e-3)
    shapes = state.abstract_state(model, optimizer, DEFAULT_RULES, mesh)
    experiment = types.SimpleNamespace(rules=DEFAULT_RULES)
    return overview(experiment, Prepared(mesh, model, optimizer), shapes).splitlines()


def test_each_parameter_has_a_row_with_names_axes_and_size(text, tiny):
    number = len(jax.tree.leaves(state.abstract_model(tiny).shapes()))
    rows = [line.split() for line in text[1 : number + 1]]
    (wi,) = (row for row in rows if row[0] == "encoder.first.feed_forward.layer.wi")
    # [layer, expert, embed, mlp]: 2 x 4 x 12 x 20, a quarter of the experts on each device
    assert " ".join(wi[1:]) == "2 x 4 x 12 x 20 layer expert embed mlp - expert - - 0.00"
    assert not text[number + 1].startswith("target_embedding")


def test_sums_mesh_and_rules_follow(text, tiny):
    sums, held, mesh_line, rules = text[-4:]
    experts = 3 * 4 * 2 * 12 * 20
    assert f", {experts / 1e3:.3g}k of them in experts; " in sums
    assert held == "a device holds 0.0 MiB of parameters and 0.1 MiB of the optimizer's state"
    assert mesh_line.startswith("mesh: data 2 x expert 4 = 8 devices (")
    assert rules.startswith("rules: batch -> data+expert, group -> data+expert")


def test_a_token_passes_through_two_of_the_experts_or_one(tiny):
    found = counts(state.abstract_model(tiny))
    assert found.experts == 3 * 4 * 2 * 12 * 20
    assert found.active == found.total - found.experts // 2
    one = counts(state.abstract_model(dataclasses.replace(tiny, second_expert="never")))
    assert one.active == found.total - 3 * found.experts // 4
    dense = counts(state.abstract_model(dataclasses.replace(tiny, num_experts=0)))
    assert (dense.experts, dense.active) == (0, dense.total)


def test_bytes_are_those_of_one_device(mesh):
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("expert", None))
    leaf = jax.ShapeDtypeStruct((8, 3), "float32", sharding=spec)
    assert device_bytes({"a": leaf, "b": leaf}) == 2 * 8 * 3 * 4 // 4


def test_layers_with_experts_are_named_in_the_order_of_the_model(tiny):
    assert moe_layer_names(tiny) == ["encoder 0", "encoder 2", "decoder 0"]
