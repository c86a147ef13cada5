"""Checkpoints of one mesh on other meshes: the same arrays, the same next steps.

    python bench_recovery_meshes.py DTYPE EVERY

is what bench_recovery_topologies.py starts, in float32 and in float64: which of the two JAX knows
is fixed for a process. Every so manieth split is tried. The last line is one JSON object.

Saved on every split of eight devices into data, expert and model axes after three steps. Restored
on every split of 8, 4, 2 and 1 devices: bit for bit what was saved, and then one step, compared
with that of the run that went on. Each mesh also goes on for 20 steps from one of the checkpoints,
and those of fewer than eight devices save again, for eight to go on from. Dropout and the second
expert are drawn; rows are packed.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

if __name__ == "__main__":
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    os.environ["JAX_ENABLE_X64"] = str(int(sys.argv[1] == "float64"))

import jax
import numpy as np

from gshard_annotate import make_mesh
from gshard_train import config, state
from gshard_train.batch_rows import to_mesh
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.data import Feed
from gshard_train.experiment import Experiment, open_feed, prepare
from gshard_train.step import batch_sharding, make_step

AXES = ("data", "expert", "model")
BEFORE, AFTER = 3, 20
FILE = "gshard_m4/configs/quickstart.gin"
SMALL = [
    "BATCH_SIZE = 16",
    "DROPOUT_RATE = 0.1",
    "TASK_FEATURE_LENGTHS = {'inputs': 20, 'targets': 16}",
    "feed.training_feed.packing = @feed.Packing()",
    "TransformerConfig.embed = 16",
    "TransformerConfig.mlp = 24",
    "TransformerConfig.num_heads = 8",
    "TransformerConfig.head_dim = 3",
]
# What is trained with: moments as large as the parameters, and those of rows and columns.
OPTIMIZERS = {
    "float32": [],
    "float64": [
        "TransformerConfig.dtype = 'float64'",
        "experiment.Experiment.optimizer = @optimizer.adafactor()",
        "optimizer.adafactor.learning_rate = 1e-2",
        "optimizer.adafactor.min_dim_size_to_factor = 8",
    ],
}
Split = tuple[int, ...]


class Ran(NamedTuple):
    """Steps that were made."""

    state: state.TrainState
    numbers: np.ndarray  # [steps, loss and gradient norm]
    first: Any  # the state after the first of them, on the host


class Machine:
    """One split of devices, with the step compiled for it."""

    def __init__(self, experiment: Experiment, split: Split):
        devices = jax.devices()[: math.prod(split)]
        mesh = make_mesh(dict(zip(AXES, split, strict=True)), devices=devices)
        self.experiment = dataclasses.replace(experiment, make_mesh=lambda: mesh)
        self.prepared = prepare(self.experiment)
        self._rows = batch_sharding(experiment.rules, mesh)
        model, optimizer = self.prepared.model, self.prepared.optimizer
        self._arguments = (model, optimizer, experiment.rules, mesh)
        self._step = make_step(model, optimizer, experiment.loss, experiment.rules, mesh)

    def new(self) -> state.TrainState:
        """A new state."""
        return state.create(*self._arguments, seed=self.experiment.seed)

    def wanted(self) -> state.TrainState:
        """What to restore a checkpoint into."""
        return state.abstract_state(*self._arguments)

    def run(self, train_state: state.TrainState, feed: Feed, steps: int) -> Ran:
        """Makes steps with the feed's next batches; the state is consumed."""
        numbers, first = [], None
        for _ in range(steps):
            train_state, metrics = self._step(train_state, to_mesh(next(feed), self._rows))
            numbers.append([float(metrics["loss"]), float(metrics["gradient_norm"])])
            first = jax.device_get(train_state) if first is None else first
        return Ran(train_state, np.array(numbers), first)


class Saved(NamedTuple):
    """A checkpoint, and how the run went on that made it."""

    split: Split
    checkpointer: Checkpointer
    step: int
    arrays: Any
    then: Ran


@dataclasses.dataclass
class Found:
    """What came of the restores from so many devices to so many."""

    restores: int = 0
    tensors_that_differ: int = 0
    first_step: float = 0.0
    long_runs: int = 0
    twenty_steps: float = 0.0


def splits(devices: int) -> Iterator[Split]:
    """Every way to write a number of devices as data x expert x model."""
    sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    return (each for each in itertools.product(sizes, repeat=3) if math.prod(each) == devices)


def experiment_of(dtype: str) -> Experiment:
    """A small run of the sample text in that precision."""
    bindings = [*SMALL, *OPTIMIZERS[dtype], f"TRAIN_STEPS = {BEFORE + 2 * AFTER}"]
    bindings.append("MODEL_DIR = 'unused'")
    return config.load([FILE], bindings).arguments("gshard_train.training.train")["experiment"]


class Trial:
    """All machines of a precision, and what was found."""

    def __init__(self, dtype: str, folder: pathlib.Path):
        self._experiment, self._folder = experiment_of(dtype), folder
        self._machines: dict[Split, Machine] = {}
        self._feed = open_feed(self._experiment, self.machine((1, 1, 8)).prepared)
        self.found: dict[tuple[int, int], Found] = {}
        self.least_distance = math.inf  # between two experts of a tensor

    def machine(self, split: Split) -> Machine:
        """The machine of a split, made when it is first asked for."""
        if split not in self._machines:
            self._machines[split] = Machine(self._experiment, split)
        return self._machines[split]

    def save(self, split: Split, train_state: state.TrainState, steps: int) -> Saved:
        """Saves a state; the run that made it goes on for so many steps."""
        step, position = int(train_state.step), self._feed.get_state()
        checkpointer = Checkpointer(self._folder / "-".join(map(str, split)), asynchronous=False)
        checkpointer.save(step, train_state, position)
        arrays = jax.device_get(train_state)
        self.least_distance = min(self.least_distance, *self._distances(split, arrays.params))
        return Saved(
            split,
            checkpointer,
            step,
            arrays,
            self.machine(split).run(train_state, self._feed, steps),
        )

    def start(self, split: Split, steps: int) -> Saved:
        """A new run, saved after its first steps."""
        self._feed.set_state({"next_index": 0})
        machine = self.machine(split)
        return self.save(split, machine.run(machine.new(), self._feed, BEFORE).state, steps)

    def go_on(self, saved: Saved, split: Split, expected: np.ndarray | None) -> state.TrainState:
        """Restores on a split and makes one step, or as many as are expected."""
        found = self.found.setdefault((math.prod(saved.split), math.prod(split)), Found())
        machine = self.machine(split)
        restored, position = saved.checkpointer.restore(saved.step, machine.wanted())
        found.restores += 1
        found.tensors_that_differ += sum(_differ(jax.device_get(restored), saved.arrays))
        self._feed.set_state(position)
        ran = machine.run(restored, self._feed, 1 if expected is None else len(expected))
        first = max(distance(ran.numbers[0], saved.then.numbers[0]), *_apart(ran, saved.then))
        found.first_step = max(found.first_step, first)
        if expected is not None:
            found.long_runs += 1
            found.twenty_steps = max(found.twenty_steps, distance(ran.numbers, expected))
        print(f"{saved.split} -> {split}: first step {first:.1e}", file=sys.stderr, flush=True)
        return ran.state

    def _distances(self, split: Split, params: Any) -> Iterator[float]:
        """The least distance between two experts, of each tensor that has some."""
        names = self.machine(split).prepared.model.names()
        is_names = {"is_leaf": lambda node: isinstance(node, tuple)}
        for axes, array in zip(
            jax.tree.leaves(names, **is_names), jax.tree.leaves(params), strict=True
        ):
            if "expert" in axes:
                experts = np.moveaxis(array, axes.index("expert"), 0)
                pairs = itertools.combinations(experts, 2)
                yield min(float(np.linalg.norm(one - other)) for one, other in pairs)


def _differ(ours: Any, theirs: Any) -> Iterator[bool]:
    """For each array, whether its bytes are others."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return (np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in pairs)


def _apart(ours: Ran, theirs: Ran) -> Iterator[float]:
    """For each array of the state after the first step, how far it is from the other's."""
    pairs = zip(jax.tree.leaves(ours.first), jax.tree.leaves(theirs.first), strict=True)
    return (distance(a, b) for a, b in pairs)


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference, as a share of the largest entry."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))


def trial(dtype: str, every: int, folder: pathlib.Path) -> dict[str, Any]:
    """Saves and restores on every n-th split; what was found by number of devices."""
    eight, *fewer = (list(splits(devices))[::every] for devices in (8, 4, 2, 1))
    run = Trial(dtype, folder)
    saved = [run.start(eight[0], 2 * AFTER), *(run.start(split, 1) for split in eight[1:])]
    expected = saved[0].then.numbers
    for number, split in enumerate(itertools.chain(eight, *fewer)):
        chosen = saved[number % len(saved)]
        for each in saved:
            if each is not chosen:
                run.go_on(each, split, None)
        reached = run.go_on(chosen, split, expected[:AFTER])
        if math.prod(split) < 8:
            back = run.save(split, reached, 1)
            run.go_on(back, eight[number % len(eight)], expected[AFTER:])
    found = [
        {"saved_on": saved_on, "restored_on": restored_on, **dataclasses.asdict(one)}
        for (saved_on, restored_on), one in run.found.items()
    ]
    return {"dtype": dtype, "found": found, "least_distance_of_experts": run.least_distance}


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(trial(sys.argv[1], int(sys.argv[2]), pathlib.Path(made))))
