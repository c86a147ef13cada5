"""A step compiled, written, and taken by a run: the same bits, and exact refusals of all others."""

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from gshard_annotate import make_mesh
from gshard_train import state
from gshard_train.compiling import step_of
from gshard_train.data import shift_right
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, prepare
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam
from gshard_train.precompiling import saved_program
from gshard_train.precompiling.program import batch_shapes
from gshard_train.training import train


class Numbers:
    """A feed of random tokens: batch i depends on i alone."""

    vocabulary_sizes: Mapping[str, int] = {"inputs": 23, "targets": 19}

    def __init__(self, *, batch_size: int, **_: Any):
        self.rows, self.next_index = batch_size, 0

    def __next__(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.next_index)
        self.next_index += 1
        source, target = (rng.integers(2, n, (self.rows, 6), dtype=np.int32) for n in (23, 19))
        return {
            "encoder_input_tokens": source,
            "decoder_input_tokens": shift_right(target),
            "decoder_target_tokens": target,
            "decoder_loss_weights": np.ones((self.rows, 6), np.float32),
        }

    def get_state(self) -> dict[str, Any]:
        return {"next_index": self.next_index}

    def set_state(self, state: dict[str, Any]) -> None:
        self.next_index = state["next_index"]

    def close(self) -> None:
        pass


def experiment_in(model_dir: Path, tiny: TransformerConfig) -> Experiment:
    return Experiment(
        model_dir=str(model_dir),
        make_mesh=lambda: make_mesh({"data": 2, "expert": 4}),
        model=dataclasses.replace(tiny, num_encoder_layers=2, num_decoder_layers=2, num_experts=0),
        optimizer=adam(1e-2),
        make_feed=Numbers,
        mixture_or_task_name="numbers",
        task_feature_lengths={"inputs": 6, "targets": 6},
        batch_size=8,
    )


def lowered(experiment: Experiment):
    """The step, its mesh and what it is called with."""
    prepared = prepare(experiment, writes=False)
    shapes = state.abstract_state(
        prepared.model, prepared.optimizer, experiment.rules, prepared.mesh
    )
    arguments = (shapes, batch_shapes(experiment, prepared, packed=False))
    return step_of(experiment, prepared).lower(*arguments), prepared.mesh, arguments


class Saved(NamedTuple):
    """A step that was written, and what it was written from."""

    path: Path
    compiled: Any
    lowered: Any
    arguments: Any
    mesh: Mesh


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny) -> Saved:
    path = tmp_path_factory.mktemp("program") / "step.program"
    made, mesh, arguments = lowered(experiment_in(path.parent / "run", tiny))
    compiled = made.compile()
    saved_program.save(path, compiled, made, mesh=mesh, config="RATE = 0.01")
    return Saved(path, compiled, made, arguments, mesh)


def filled(shapes: Any) -> Any:
    """Arrays of these shapes; small numbers, none of them negative."""
    rng = np.random.default_rng(3)

    def one(leaf):
        values = rng.random(leaf.shape) * (0.1 if np.issubdtype(leaf.dtype, np.floating) else 15)
        return jax.device_put(values.astype(leaf.dtype), leaf.sharding)

    return jax.tree.map(one, shapes)


@pytest.mark.slow
def test_a_saved_step_gives_the_bits_of_the_compiled_one(saved):
    loaded = saved_program.load(saved.path, saved.lowered, saved.arguments, mesh=saved.mesh)
    found = [step(*filled(saved.arguments)) for step in (saved.compiled, loaded)]
    metrics = found[0][1]
    assert np.isfinite(metrics["loss"])
    assert not metrics["nonfinite"]
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.slow
def test_a_run_takes_its_step_from_a_file(tiny, tmp_path, saved, caplog):
    run = experiment_in(tmp_path, tiny)
    with caplog.at_level("INFO"):
        train(run, train_steps=3, program=str(saved.path), dry_run=True)
    assert f"Took the step out of {saved.path} in " in caplog.text
    assert "Compiling the step" not in caplog.text


@pytest.mark.slow
def test_the_step_of_another_run_is_refused_with_what_differs(saved):
    other = jax.jit(lambda x: x).lower(1.0)
    with pytest.raises(UserError) as caught:
        saved_program.load(saved.path, other, saved.arguments, mesh=saved.mesh, config="RATE = 0.1")
    assert "is the step of another run than this one" in caught.value.faults[0]
    assert caught.value.faults[0].endswith("\n  - RATE = 0.01\n  + RATE = 0.1")


def rewritten(path: Path, to: Path, **changes: Any) -> Path:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        header = {**json.loads(old.read("header.json")), **changes}
        new.writestr("header.json", json.dumps(header))
        new.writestr("executable", old.read("executable"))
    return to


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"made_by": {"jax": "0.9", "jaxlib": "0.9"}}, "compiled by jax 0.9 and here is "),
        ({"device_kind": "TPU v3"}, "compiled for 8 TPU v3 devices and here are 8 cpu"),
        (
            {"mesh": {"data": 1, "expert": 8}},
            "{'data': 1, 'expert': 8} and here is {'data': 2, 'ex",
        ),
        ({"devices": [[7 - i, 0] for i in range(8)]}, "number 0 was [7, 0] (id, place, core)"),
        (
            {"flags": {"LIBTPU_INIT_ARGS": "--xla_a=1"}},
            "compiled with LIBTPU_INIT_ARGS='--xla_a=1' and here is ''; set it so, or",
        ),
        ({"format": "gshard-train compiled step 9"}, "is no compiled step that this gshard-train"),
        ({"program": None, "more": 1}, "is no compiled step that this gshard-train can read"),
    ],
)
def test_a_step_for_another_machine_is_refused(saved, tmp_path, changes, said, monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", " --xla_tpu_use_enhanced_launch_barrier=true")
    path = rewritten(saved.path, tmp_path / "changed", **changes)
    with pytest.raises(UserError) as caught:
        saved_program.check(path, make_mesh({"data": 2, "expert": 4}))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_step_that_the_runtime_refuses_is_an_error_of_the_user(saved, tmp_path):
    path = tmp_path / "changed"
    with zipfile.ZipFile(saved.path) as old, zipfile.ZipFile(path, "w") as new:
        new.writestr("header.json", old.read("header.json"))
        new.writestr("executable", b"nothing")
    with pytest.raises(UserError, match=r"is refused by the runtime here \(UnpicklingError: "):
        saved_program.load(path, saved.lowered, saved.arguments, mesh=saved.mesh)


def test_damaged_files_are_refused(saved, tmp_path):
    mesh = make_mesh({"data": 2, "expert": 4})
    whole, path = saved.path.read_bytes(), tmp_path / "damaged"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is damaged or no compiled step"):
        saved_program.check(path, mesh)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    with pytest.raises(UserError, match="is damaged or no compiled step"):
        saved_program._read(path, "executable")
    with pytest.raises(UserError, match=r"cannot be read \(No such file or directory\)"):
        saved_program.check(tmp_path / "nothing", mesh)
