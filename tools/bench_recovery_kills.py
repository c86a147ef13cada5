"""Runs that are killed (kill -9) again and again, against one that is not."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

FILE = "gshard_m4/configs/quickstart.gin"
TRACED = pathlib.Path(__file__).with_name("bench_recovery_traced.py")
# A mixture of 102 languages, packed, shuffled, with dropout and a random second expert.
_BINDINGS = [
    "BATCH_SIZE = 16",
    "CHECKPOINT_PERIOD = 3",
    "DROPOUT_RATE = 0.1",
    "TASK_FEATURE_LENGTHS = {'inputs': 32, 'targets': 24}",
    "feed.training_feed.packing = @feed.Packing()",
    "make_mesh.axes = {'data': 2, 'expert': 2}",
    "make_mesh.cpu_devices = 4",
    "train.log_period = 1",
    "TransformerConfig.embed = 24",
    "TransformerConfig.mlp = 40",
    "TransformerConfig.head_dim = 12",
    "TransformerConfig.num_groups = 4",
]
# Not what says how fast it was.
_COMPARED = ("loss", "total_loss", "accuracy", "gradient_norm", "update_norm", "balance_loss")
_LONGEST = 900.0


@dataclasses.dataclass
class Start:
    """What one start of a run was fed and what came of its steps."""

    fed: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    steps: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Found:
    """What came of the kills."""

    kills: int = 0
    while_saving: int = 0
    while_starting: int = 0
    runs: int = 0
    steps_compared: int = 0
    steps_that_differ: int = 0
    examples: int = 0
    examples_lost: int = 0
    examples_repeated: int = 0
    other_parameters: int = 0
    unreadable: int = 0


class Run:
    """A run in a directory of its own, with the trail of its starts."""

    def __init__(self, folder: pathlib.Path, name: str, steps: int):
        self.model_dir, self.trail = folder / name, folder / f"{name}.jsonl"
        self.log, self._cache, self._steps = folder / f"{name}.log", folder / "compiled", steps
        self.trail.touch()
        self._left: set[int] = set()  # checkpoints that starts before left without a name

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it, or starts it again; what it says is added to the log."""
        bindings = [*_BINDINGS, f"TRAIN_STEPS = {self._steps}", f"MODEL_DIR = '{self.model_dir}'"]
        self._left = self._unnamed()
        variables = {"TRAIL": str(self.trail), "LIGHT": "1", "JAX_PLATFORMS": "cpu"}
        variables["JAX_COMPILATION_CACHE_DIR"] = str(self._cache)
        variables["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # small arrays: compiling takes longest
        with self.log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, str(TRACED), f"--gin_file={FILE}"]
                + [f"--gin_bindings={binding}" for binding in bindings],
                env={**os.environ, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for its end, which has to be the last step."""
        try:
            done = process.wait(_LONGEST) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            done = False
        if not done:
            said = self.log.read_text()[-4000:]
            sys.exit(f"bench_recovery: a run failed, or took over {_LONGEST:.0f} s\n{said}")

    def starts(self) -> list[Start]:
        """What is in the trail, in the order of the starts that came to their first batch."""
        found: dict[int, Start] = {}
        for line in self.trail.read_text().splitlines():
            noted = json.loads(line)
            start = found.setdefault(noted["start"], Start())
            if "fed" in noted:
                start.fed[noted["fed"]] = noted["names"]
            elif "step" in noted:
                start.steps[noted["step"]] = {name: noted[name] for name in _COMPARED}
        return [start for start in found.values() if start.fed]

    def committed(self) -> int:
        """The newest checkpoint that got its name, 0 where there is none."""
        names = [path.name for path in self.model_dir.glob("checkpoints/*")]
        return max((int(name) for name in names if name.isdigit()), default=0)

    def is_saving(self) -> bool:
        """Whether the last start has begun a checkpoint that has not got its name."""
        return bool(self._unnamed() - self._left)

    def _unnamed(self) -> set[int]:
        return {entry.inode() for entry in _entries(self.model_dir) if "tmp" in entry.name}


def _entries(model_dir: pathlib.Path) -> list[os.DirEntry[str]]:
    folder = model_dir / "checkpoints"
    return list(os.scandir(folder)) if folder.is_dir() else []


def kills(
    folder: pathlib.Path, *, count: int, steps: int, seed: int, longest: float
) -> dict[str, int]:
    """Trains without a stop, then with kills until there were `count`, and compares.

    Args:
      folder: an empty directory.
      count: how often runs are killed.
      steps: of each run.
      seed: of the moments.
      longest: most seconds from a new step to the kill.
    """
    whole = Run(folder, "whole", steps)
    began = time.monotonic()
    whole.finish(whole.start())
    print(f"uninterrupted: {steps} steps in {time.monotonic() - began:.0f} s", flush=True)
    (expected,) = whole.starts()
    parameters = _arrays(whole.model_dir, steps)
    chance, found = random.Random(seed), Found()
    while found.kills < count:
        run = Run(folder, f"killed{found.runs}", steps)
        _until_done(run, count, chance, longest, found)
        found.runs += 1
        _compare(run.starts(), expected, steps, found)
        found.other_parameters += _arrays(run.model_dir, steps) != parameters
        shutil.rmtree(run.model_dir)
    result = dataclasses.asdict(found)
    for name, value in result.items():
        print(f"{name.replace('_', ' '):24}{value:>9,}")
    return result


def _until_done(run: Run, count: int, chance: random.Random, longest: float, found: Found) -> None:
    """One run from its beginning to its end, killed until there have been enough kills."""
    while True:
        there, before = run.committed(), len(run.starts())
        process = run.start()
        kind = chance.choices(["starting", "training", "saving"], [1, 2, 2])[0]
        if found.kills < count and _came(run, process, kind, before, chance.random() * longest):
            process.send_signal(signal.SIGKILL)
            process.wait()
            found.kills += 1
            found.while_starting += kind == "starting"
            found.while_saving += run.is_saving()
            done = max((max(s.steps, default=0) for s in run.starts()), default=0)
            print(f"kill {found.kills}, {kind}, behind step {done}", flush=True)
        else:
            run.finish(process)
        starts = run.starts()
        if len(starts) > before and min(starts[-1].fed) != there:
            found.unreadable += 1
            print(f"went on from {min(starts[-1].fed)} and not from {there}", flush=True)
        if process.returncode == 0:
            return


def _came(
    run: Run, process: subprocess.Popen[bytes], kind: str, before: int, seconds: float
) -> bool:
    """Waits for the moment to kill; whether it came before the end of the run."""

    def new_step() -> bool:
        starts = run.starts()
        return len(starts) > before and bool(starts[-1].steps)

    if kind == "starting":
        seconds *= 5
    elif not _until(process, new_step):
        return False
    if kind == "saving":
        if not _until(process, run.is_saving):
            return False
        seconds /= 20
    end = time.monotonic() + seconds
    _until(process, lambda: time.monotonic() > end)
    return process.poll() is None


def _until(process: subprocess.Popen[bytes], moment: Callable[[], bool]) -> bool:
    """Whether a moment came before the process ended."""
    while process.poll() is None:
        if moment():
            return True
        time.sleep(0.01)
    return False


def _compare(starts: list[Start], expected: Start, steps: int, found: Found) -> None:
    """Every step of every start, and the examples of those that the run at its end is made of."""
    for start in starts:
        for step, figures in start.steps.items():
            found.steps_compared += 1
            if figures != expected.steps[step]:
                found.steps_that_differ += 1
                print(f"step {step}: {figures}, without a kill {expected.steps[step]}", flush=True)
    began = [min(start.fed) for start in starts]
    trained: Counter[str] = Counter()
    for start, first, end in zip(starts, began, [*began[1:], steps], strict=True):
        if end > first and max(start.steps, default=0) < end:
            sys.exit(f"bench_recovery: a start went on from {end}, which none before it reached")
        trained.update(_names(start, range(first, end)))
    once = Counter(_names(expected, range(steps)))
    found.examples += once.total()
    found.examples_lost += (once - trained).total()
    found.examples_repeated += (trained - once).total()


def _names(start: Start, indices: Iterable[int]) -> list[str]:
    """The examples of the batches that were given, one by one."""
    rows = (row for i in indices for row in start.fed[i])
    return [name for row in rows if row for name in row.split(", ")]


def _arrays(model_dir: pathlib.Path, step: int) -> dict[str, bytes]:
    """The bytes of each array of a checkpoint."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    from absl import logging

    logging.set_verbosity(logging.ERROR)
    path = model_dir / "checkpoints" / str(step) / "state"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        shapes = reader.metadata(path).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
        state = reader.restore(path, ocp.args.PyTreeRestore(restore_args=as_numpy))
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in leaves}
