"""What is lost when a run is killed: nothing; and what saving and going on cost.

    tools/with_python bench_recovery.py [--kills N] [--steps N] [--seed N]

A small run of the sample text (102 languages mixed, packed, shuffled, dropout, random second
expert, eight virtual devices) trains once without a stop. Then it is killed again and again (kill
-9) at random moments after its first new step, a quarter of them while it starts, and started
again until it is done, as often as it takes to reach N kills. Each line of metrics.jsonl that any
of these runs wrote is compared with the uninterrupted run's, to the last bit, and so are the last
parameters.

The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import environment

_FILE = "gshard_m4/configs/quickstart.gin"
_BINDINGS = {
    "BATCH_SIZE": 32,
    "CHECKPOINT_PERIOD": 3,
    "DROPOUT_RATE": 0.1,
    "TASK_FEATURE_LENGTHS": {"inputs": 32, "targets": 24},
    "training.train.log_period": 1,
}
_PACKED = "feed.training_feed.packing = @feed.Packing()"
# What says how fast it was, and so differs from run to run.
_COMPARED = ("loss", "total_loss", "accuracy", "gradient_norm", "update_norm", "balance_loss")


def main(arguments: list[str] | None = None) -> None:
    """Kills and compares, prints what was found, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    os.environ["JAX_PLATFORMS"] = "cpu"
    with tempfile.TemporaryDirectory() as folder:
        found = kills(pathlib.Path(folder), options)
    print(json.dumps({"kills": found}))


@dataclasses.dataclass
class Found:
    """What came of the kills."""

    kills: int = 0
    while_saving: int = 0
    while_starting: int = 0
    lines_compared: int = 0
    differences: int = 0
    unreadable: int = 0
    first_step_seconds: list[float] = dataclasses.field(default_factory=list)


def kills(folder: pathlib.Path, options: argparse.Namespace) -> dict[str, Any]:
    """Trains without a stop, then with kills, and compares."""
    whole = folder / "whole"
    began = time.monotonic()
    with _start(whole, options.steps) as process:
        _finish(process)
    print(f"uninterrupted: {options.steps} steps in {time.monotonic() - began:.0f} s", flush=True)
    expected = _lines(whole)
    parameters = _parameters_of(whole, options.steps)
    chance, found = random.Random(options.seed), Found()
    while found.kills < options.kills:
        killed = folder / f"killed{found.kills}"
        _run_with_kills(killed, options, chance, found, expected)
        _compare(_lines(killed), expected, found)
        if _parameters_of(killed, options.steps) != parameters:
            found.differences += 1
            print("the last parameters differ", flush=True)
        shutil.rmtree(killed)
    result = dataclasses.asdict(found)
    seconds = sorted(result.pop("first_step_seconds"))
    result["median_seconds_to_first_step"] = seconds[len(seconds) // 2] if seconds else None
    for name, value in result.items():
        print(f"{name.replace('_', ' '):32}{value}")
    return result


def _run_with_kills(
    model_dir: pathlib.Path,
    options: argparse.Namespace,
    chance: random.Random,
    found: Found,
    expected: dict[int, Any],
) -> None:
    """One run from its beginning to its end, killed until there have been enough kills."""
    while True:
        before, began = max(_lines(model_dir), default=0), time.monotonic()
        with _start(model_dir, options.steps) as process:
            starting = found.kills < options.kills and chance.random() < 0.25
            if starting:
                _wait(process, chance.uniform(0.0, 15.0))
            elif _wait_for_step(process, model_dir, before):
                found.first_step_seconds.append(time.monotonic() - began)
                if found.kills < options.kills:
                    _wait(process, chance.uniform(0.0, options.longest))
            if found.kills >= options.kills or process.poll() is not None:
                _finish(process)
                return
            process.send_signal(signal.SIGKILL)
            said = process.communicate()[0]
        found.kills += 1
        found.while_starting += starting
        found.while_saving += any(model_dir.glob("checkpoints/*tmp*"))
        found.unreadable += "cannot be read" in said
        _compare(_lines(model_dir), expected, found)
        newest = max(_lines(model_dir), default=0)
        print(f"kill {found.kills} at step {newest} of {options.steps}", flush=True)


def _start(model_dir: pathlib.Path, steps: int) -> subprocess.Popen[str]:
    bindings = {**_BINDINGS, "TRAIN_STEPS": steps, "MODEL_DIR": str(model_dir)}
    command = [sys.executable, "-m", "gshard_train.train", f"--gin_file={_FILE}"]
    command += [f"--gin_bindings={name} = {value!r}" for name, value in bindings.items()]
    return subprocess.Popen(
        [*command, f"--gin_bindings={_PACKED}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process: subprocess.Popen[str]) -> None:
    said = process.communicate()[0]
    if process.returncode:
        sys.exit(f"bench_recovery: a run failed\n{said}")


def _wait(process: subprocess.Popen[str], seconds: float) -> None:
    """Waits so long, or until the process ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)


def _wait_for_step(process: subprocess.Popen[str], model_dir: pathlib.Path, before: int) -> bool:
    """Whether the process came to a step that was not there before it started."""
    while process.poll() is None:
        if max(_lines(model_dir), default=0) > before:
            return True
        time.sleep(0.05)
    return False


def _lines(model_dir: pathlib.Path) -> dict[int, dict[str, Any]]:
    """The whole lines of metrics.jsonl by step."""
    path = model_dir / "metrics.jsonl"
    if not path.exists():
        return {}
    whole = path.read_text().rpartition("\n")[0].splitlines()
    return {line["step"]: line for line in map(json.loads, whole)}


def _compare(lines: dict[int, Any], expected: dict[int, Any], found: Found) -> None:
    for step, line in lines.items():
        found.lines_compared += 1
        ours, theirs = ({name: x[name] for name in _COMPARED} for x in (line, expected[step]))
        if ours != theirs:
            found.differences += 1
            print(f"step {step} differs: {ours} and without a kill {theirs}", flush=True)


def _parameters_of(model_dir: pathlib.Path, step: int) -> dict[str, bytes]:
    """The bytes of each array of a checkpoint."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp

    path = model_dir / "checkpoints" / str(step) / "state"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        shapes = reader.metadata(path).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
        state = reader.restore(path, ocp.args.PyTreeRestore(restore_args=as_numpy))
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in leaves}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_recovery.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="default 50")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of the run")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the moments")
    parser.add_argument(
        "--longest", type=float, default=4.0, metavar="S", help="most seconds from step to kill"
    )
    return parser


if __name__ == "__main__":
    main()
