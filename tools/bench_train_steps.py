"""Training steps that take turns: the loop's and the bare one, with experts and without."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
import time
from collections.abc import Mapping
from typing import Any, ClassVar
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from bench_moe_rounds import interleaved
from bench_moe_rounds import median_ratio as median_ratio
from gshard_train import config, state, training
from gshard_train.batch_rows import to_mesh
from gshard_train.experiment import Experiment, prepare
from gshard_train.monitoring import utilisation
from gshard_train.step import batch_sharding, make_step

_GIN_FILE = "gshard_m4/configs/quickstart.gin"
_WARM_UP = 1  # turns that are not counted


def quickstart(model_dir: str | pathlib.Path, **model: Any) -> Experiment:
    """The quickstart's experiment, with other sizes of its model."""
    bindings = [f"MODEL_DIR = '{model_dir}'"]
    loaded = config.load([_GIN_FILE], bindings)
    experiment = loaded.arguments("gshard_train.training.train")["experiment"]
    changed = dataclasses.replace(experiment.model, **model)
    return dataclasses.replace(experiment, model=changed)


def loop_and_bare(
    model_dir: str | pathlib.Path, *, steps: int, rounds: int, reads: bool
) -> dict[str, list[float]]:
    """Seconds of a step inside `training.train` and of the same program alone, one per turn.

    Args:
      model_dir: of a run of its own.
      steps: of a turn.
      rounds: turns that count.
      reads: whether the feed reads, mixes and tokenises, or gives one batch again and again.
    """
    # A run imports it in a thread, for the first seconds of training: no cost of the loop's.
    importlib.import_module("clu.metric_writers")
    turns: list[_Turns] = []

    def make(*arguments: Any, **options: Any) -> _Turns:
        turns.append(_Turns(make_step(*arguments, **options), steps))
        return turns[0]

    experiment = quickstart(model_dir)
    if not reads:
        experiment = dataclasses.replace(experiment, make_feed=lambda **_: _Ready(experiment))
    with mock.patch.object(training, "make_step", make):
        training.train(experiment, train_steps=(rounds + _WARM_UP) * steps + 1, log_period=steps)
    return {"loop": turns[0].loop[_WARM_UP:], "bare": turns[0].bare[_WARM_UP:]}


class _Ready:
    """A feed that takes no time."""

    vocabulary_sizes: ClassVar = {"inputs": 1, "targets": 1}

    def __init__(self, experiment: Experiment):
        self._batch, self._next = _batch(experiment), 0

    def __next__(self) -> dict[str, np.ndarray]:
        self._next += 1
        return self._batch

    def get_state(self) -> dict[str, Any]:
        """The number of batches given out."""
        return {"next_index": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a number."""
        self._next = state["next_index"]

    def close(self) -> None:
        """Nothing to let go."""


class _Turns:
    """A compiled step that, after every so many steps of the loop, makes as many by itself."""

    def __init__(self, step: Any, steps: int):
        self.loop: list[float] = []
        self.bare: list[float] = []
        self.lower = step.lower
        self._step, self._steps, self._count = step, steps, 0
        self._own: Any = None  # a state of its own, since a step consumes what it is given
        self._began = 0.0

    def __call__(self, given: Any, batch: Mapping[str, jax.Array]) -> Any:
        if self._count % self._steps == 0:
            jax.block_until_ready(given)
            if self._count:
                self.loop.append((time.perf_counter() - self._began) / self._steps)
                self.bare.append(self._alone(batch) / self._steps)
            else:
                self._own = jax.block_until_ready(jax.tree.map(jnp.copy, given))
            self._began = time.perf_counter()
        self._count += 1
        return self._step(given, batch)

    def _alone(self, batch: Mapping[str, jax.Array]) -> float:
        """Seconds of a turn; as in the loop, one step is under way and one is to come."""
        began, before = time.perf_counter(), None
        for _ in range(self._steps):
            self._own, metrics = self._step(self._own, batch)
            if before is not None:
                jax.block_until_ready(before)
            before = metrics
        jax.block_until_ready(self._own)
        return time.perf_counter() - began


def experts_and_dense(width: int, *, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Seconds of a step of both models, one per round, and the ratio of their active FLOPs.

    A token passes through two experts in one layer of a pair and one dense layer: 3 H. The dense
    model's two layers have 1.5 H each.
    """
    sizes = {"embed": width, "mlp": 4 * width, "num_heads": width // 32}
    experts = quickstart("unused", **sizes)
    dense = quickstart("unused", **{**sizes, "mlp": 6 * width, "num_experts": 0})
    flops = {name: _flops(each) for name, each in {"experts": experts, "dense": dense}.items()}
    programs = {"experts": _Program(experts), "dense": _Program(dense)}
    return interleaved(programs, rounds), flops["experts"] / flops["dense"]


class _Program:
    """A step on a batch of random tokens; each call makes one, to its end."""

    def __init__(self, experiment: Experiment):
        prepared = prepare(experiment)
        parts = (prepared.model, prepared.optimizer)
        self._state = state.create(*parts, experiment.rules, prepared.mesh, seed=0)
        self._step = make_step(*parts, experiment.loss, experiment.rules, prepared.mesh)
        rows = batch_sharding(experiment.rules, prepared.mesh)
        self._batch = to_mesh(_batch(experiment), rows)

    def __call__(self) -> None:
        self._state, _ = self._step(self._state, self._batch)
        jax.block_until_ready(self._state)


def _batch(experiment: Experiment) -> dict[str, np.ndarray]:
    rng, model = np.random.default_rng(0), experiment.model
    lengths, rows = experiment.task_feature_lengths, experiment.batch_size
    source = rng.integers(3, model.source_vocab_size, (rows, lengths["inputs"]), dtype=np.int32)
    target = rng.integers(3, model.target_vocab_size, (rows, lengths["targets"]), dtype=np.int32)
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": target,
        "decoder_target_tokens": target,
        "decoder_loss_weights": np.ones_like(target),
    }


def _flops(experiment: Experiment) -> float:
    """Of a full batch."""
    lengths, rows = experiment.task_feature_lengths, experiment.batch_size
    return utilisation.step_flops(
        experiment.model,
        source_tokens=rows * lengths["inputs"],
        target_tokens=rows * lengths["targets"],
        source_length=lengths["inputs"],
        target_length=lengths["targets"],
    )
