"""A run with a feed of its own: what it leaves, resuming, stopping, faults before any work."""

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import optax
import pytest

from gshard_annotate import make_mesh
from gshard_train import compilation_cache
from gshard_train.data import FEATURES, shift_right
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment
from gshard_train.interruption import Interrupted
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam
from gshard_train.training import train


class Numbers:
    """A feed of random tokens: batch i depends on the seed and i alone."""

    vocabulary_sizes: Mapping[str, int] = {"inputs": 23, "targets": 19}

    def __init__(self, *, batch_size: int, seed: int, **_: Any):
        self.rows, self.seed, self.next_index = batch_size, seed, 0

    def __next__(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([self.seed, self.next_index])
        self.next_index += 1
        source, target = (rng.integers(2, n, (self.rows, 6), dtype=np.int32) for n in (23, 19))
        target[:, 4:] = 0
        return {
            "encoder_input_tokens": source,
            "decoder_input_tokens": shift_right(target),
            "decoder_target_tokens": target,
            "decoder_loss_weights": (target != 0).astype(np.int32),
        }

    def get_state(self) -> dict[str, Any]:
        return {"next_index": self.next_index}

    def set_state(self, state: dict[str, Any]) -> None:
        self.next_index = state["next_index"]

    def close(self) -> None:
        pass


class Stopping(Numbers):
    """Sends this process SIGINT before its fourth batch, as Ctrl-C would."""

    def __next__(self) -> dict[str, np.ndarray]:
        if self.next_index == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().__next__()


@pytest.fixture(scope="module", autouse=True)
def programs(tmp_path_factory) -> Iterator[None]:
    """Most runs here have the same program: it is compiled once."""
    with compilation_cache.use(str(tmp_path_factory.mktemp("programs")), model_dir=""):
        yield


@pytest.fixture
def experiment(tiny, tmp_path) -> Experiment:
    return Experiment(
        model_dir=str(tmp_path / "run"),
        make_mesh=lambda: make_mesh({"data": 2, "expert": 4}),
        model=tiny,
        optimizer=adam(1e-2),
        make_feed=Numbers,
        mixture_or_task_name="numbers",
        task_feature_lengths={"inputs": 6, "targets": 6},
        batch_size=8,
    )


def changed(experiment: Experiment, **values: Any) -> Experiment:
    return Experiment(**{**vars(experiment), **values})


def losses(experiment: Experiment) -> dict[int, float]:
    lines = experiment.path("metrics.jsonl").read_text().splitlines()
    return {line["step"]: line["loss"] for line in map(json.loads, lines)}


@pytest.mark.slow
def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(experiment, tmp_path):
    whole = changed(experiment, model_dir=str(tmp_path / "whole"))
    train(whole, train_steps=6, checkpoint_period=100, log_period=1)
    train(experiment, train_steps=3, checkpoint_period=2, log_period=1)
    train(experiment, train_steps=6, checkpoint_period=2, log_period=1)
    assert losses(experiment) == losses(whole)  # to the last bit
    assert list(losses(whole)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_and_the_next_run_goes_on(experiment):
    with pytest.raises(Interrupted) as stopped:
        train(changed(experiment, make_feed=Stopping), train_steps=50, log_period=1)
    (checkpoint,) = experiment.path("checkpoints").iterdir()
    step = int(checkpoint.name)
    assert 1 <= step <= 4  # the feed is read ahead of the step
    assert str(stopped.value).startswith(f"SIGINT: stopped at step {step} of 50, whose checkpoint")
    assert train(experiment, train_steps=6, log_period=1) == 6
    assert list(losses(experiment)) == [1, 2, 3, 4, 5, 6]


class Figures:
    """Stands for an evaluation: its figure is the step, or what it was compiled for."""

    def __init__(self):
        self.compiled = 0

    def open(self, experiment, prepared):
        return self

    def compile(self):
        self.compiled += 1

    def __call__(self, step, params, *, between):
        between()
        assert jax.tree.leaves(params)[0].is_fully_addressable
        return {"eval/all/loss": float(step)}


class Preempted(Figures):
    """Is asked to stop while it evaluates."""

    def __call__(self, step, params, *, between):
        signal.raise_signal(signal.SIGTERM)
        between()
        raise AssertionError("went on")


@pytest.mark.slow
def test_sigterm_in_an_evaluation_leaves_it_and_saves_the_step(experiment):
    with pytest.raises(Interrupted, match="SIGTERM: stopped at step 1 of 5") as stopped:
        train(experiment, train_steps=5, evaluation=Preempted(), eval_period=1)
    assert stopped.value.exit_code == 75
    assert [path.name for path in experiment.path("checkpoints").iterdir()] == ["1"]


@pytest.mark.slow
def test_evaluations_join_their_steps_and_a_restart_compiles_nothing(experiment, caplog):
    caplog.set_level("INFO")

    def misses(name, **_):
        missed.append(name) if name == "/jax/compilation_cache/cache_misses" else None

    missed: list[str] = []
    options = {"evaluation": Figures(), "eval_period": 2, "log_period": 1}
    jax.clear_caches()  # what earlier tests compiled would not be written
    train(experiment, train_steps=1, **options)
    jax.clear_caches()
    jax.monitoring.register_event_listener(misses)
    try:
        train(experiment, train_steps=5, **options)
    finally:
        jax.monitoring.unregister_event_listener(misses)
    assert missed == []
    assert "Traced, and found in the cache, in " in caplog.text
    lines = map(json.loads, experiment.path("metrics.jsonl").read_text().splitlines())
    assert [line.get("eval/all/loss") for line in lines] == [1.0, 2.0, None, 4.0, 5.0]
    assert experiment.path("expert_load.png").exists()


def test_a_dry_run_builds_everything_and_writes_nothing(experiment, tiny, caplog):
    caplog.set_level("INFO")
    evaluation = Figures()
    arguments = {"train_steps": 3, "evaluation": evaluation, "eval_period": 2, "dry_run": True}
    assert train(experiment, effective_config="X = 1\n", **arguments) == 0
    assert not experiment.path().exists()
    assert evaluation.compiled == 1
    assert "mesh: data 2 x expert 4 = 8 devices" in caplog.text
    assert "A batch: encoder_input_tokens int32[8, 6]," in caplog.text
    assert "Dry run: everything fits; training would go on from step 0." in caplog.text


def test_a_finished_run_trains_nothing_more(experiment, monkeypatch):
    train(experiment, train_steps=1, effective_config="MODEL_DIR = 'x'\n")
    assert experiment.path("config.gin").read_text() == "MODEL_DIR = 'x'\n"
    monkeypatch.setattr("gshard_train.compiling.make_step", None)  # would fail if it were used
    assert train(experiment, train_steps=1) == 1


def test_an_update_that_is_no_number_stops_the_run_without_a_checkpoint(experiment, caplog):
    caplog.set_level("INFO")
    with pytest.raises(FloatingPointError, match="step 1: the optimizer's update of"):
        train(changed(experiment, optimizer=optax.scale(float("nan"))), train_steps=4, log_period=2)
    assert not list(experiment.path("checkpoints").iterdir())
    assert "Compiled in " in caplog.text  # no other test has this program


def test_another_model_s_checkpoint_is_refused_and_left_alone(experiment, tiny):
    train(experiment, train_steps=1)
    wider = TransformerConfig(**{**vars(tiny), "mlp": 28})
    expected = r"is of another model: \d+ tensors differ and nothing was changed"
    with pytest.raises(UserError, match=expected) as error:
        train(changed(experiment, model=wider), train_steps=2)
    assert "params/decoder/first/feed_forward/layer/wi is float32[1, 4, 12, 20] in the" in str(
        error.value
    )
    with pytest.raises(UserError, match=expected):
        train(changed(experiment, model=wider), train_steps=2, dry_run=True)
    assert train(experiment, train_steps=1) == 1


def refused(experiment: Experiment, **values: Any) -> list[str]:
    """What a run says that cannot work; it must not have written anything."""
    with pytest.raises(UserError) as error:
        train(changed(experiment, **values), train_steps=1)
    assert not experiment.path().exists()
    return list(error.value.faults)


def test_faults_of_mesh_batch_groups_and_experts_come_together(experiment, tiny):
    model = TransformerConfig(**{**vars(tiny), "num_experts": 6, "num_groups": 12})
    faults = refused(experiment, model=model, batch_size=20)
    assert faults == [
        "batch_size=20 cannot be divided by the 8 parts of mesh (data 2 x expert 4) nor by "
        "num_groups=12 (20 % 8 = 4); use 16 or 32",
        "num_experts=6 cannot be divided by the 4 parts of mesh axis 'expert' (6 % 4 = 2); "
        "use 4 or 8",
        "num_groups=12 cannot be divided by the 8 parts of mesh (data 2 x expert 4) (12 % 8 = 4); "
        "use 8 or 16",
    ]


def test_a_mesh_that_does_not_fit_the_devices_is_refused(experiment):
    wrong = {"data": 3, "expert": 4}
    mesh, batch = refused(experiment, make_mesh=lambda: make_mesh(wrong), batch_size=20)
    assert mesh.startswith("make_mesh: axes data=3, expert=4 need 12 devices, 8 are present")
    assert (
        batch
        == "batch_size=20 cannot be divided by the 8 parts of num_groups (20 % 8 = 4); use 16 or 24"
    )


def test_lengths_and_directory_that_cannot_be_are_refused_together(experiment):
    faults = refused(experiment, model_dir="", task_feature_lengths={"inputs": 10})
    assert faults == [
        "MODEL_DIR is empty; add --gin.MODEL_DIR=\"'/path/to/run'\"",
        "TASK_FEATURE_LENGTHS['inputs']=10 must be between 1 and the model's max_length=9",
        "TASK_FEATURE_LENGTHS={'inputs': 10} lacks 'targets'; give tokens for it",
    ]


def test_a_model_directory_that_is_a_file_is_refused(experiment, tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(
        UserError, match=re.escape(f"MODEL_DIR='{file}' is a file; give a directory")
    ):
        train(changed(experiment, model_dir=str(file)), train_steps=1)
    assert file.read_text() == "x"


def test_a_vocabulary_larger_than_the_model_is_refused(experiment, tiny):
    model = TransformerConfig(**{**vars(tiny), "target_vocab_size": 18})
    (fault,) = refused(experiment, model=model)
    assert fault == (
        "the vocabulary of 'targets' has 19 pieces but the model target_vocab_size=18; "
        "set TransformerConfig.target_vocab_size = 19 or more"
    )


def test_batches_with_half_the_features_of_packing_are_refused(experiment):
    class Packed(Numbers):
        features = (*FEATURES, "encoder_segment_ids", "encoder_positions")

    (fault,) = refused(experiment, make_feed=Packed)
    assert fault == (
        "batches of the feed lack decoder_segment_ids, decoder_positions: without them examples of "
        "a row would look at each other; give them"
    )


def test_arguments_that_cannot_be_are_refused_together(experiment):
    with pytest.raises(UserError) as error:
        train(
            experiment,
            train_steps=0,
            log_period=1.5,
            eval_period=3,
            profile_steps=(15, 10),
            peak_flops_per_device=0.0,
            compilation_cache_dir="",
            skipped_steps=-1,
        )
    assert error.value.faults == (
        "TRAIN_STEPS=0 must be a whole number of at least 1",
        "log_period=1.5 must be a whole number of at least 1",
        "EVAL_PERIOD=3 is set and nothing is bound to train.evaluation; bind an "
        "evaluation.Evaluation, or set EVAL_PERIOD = None",
        "peak_flops_per_device=0.0 must be a number above 0, or None",
        "skipped_steps=-1 must be a whole number of at least 0",
        "profile_steps=(15, 10) must be the first and the last step to trace, both counted from 1, "
        "such as (10, 15), or () for none",
        "compilation_cache_dir='' names no directory; use None for no cache",
    )
    assert not experiment.path().exists()


def test_a_model_directory_below_a_file_is_refused(experiment, tmp_path):
    (tmp_path / "file").write_text("x")
    path = str(tmp_path / "file" / "run")
    (fault,) = refused(experiment, model_dir=path)
    assert fault == (
        f"MODEL_DIR={path!r} lies below the file {tmp_path / 'file'}; give a directory"
    )


def test_a_mesh_without_the_axes_of_the_rules_is_refused(experiment):
    (fault,) = refused(experiment, make_mesh=lambda: make_mesh({"expert": 4, "model": 2}))
    assert fault == (
        "the mesh has the axes expert, model and lacks data; give size 1 to an axis that is not "
        "used"
    )


def test_sizes_that_the_model_axis_does_not_divide_are_named(experiment, tiny):
    faults = refused(experiment, make_mesh=lambda: make_mesh({"data": 1, "expert": 2, "model": 4}))
    assert any("heads" in fault or "wq f32[2,12,2,5]" in fault for fault in faults)
