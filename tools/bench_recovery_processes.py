"""One run on other numbers of processes: a part of bench_recovery_topologies.py.

Two processes of four devices each train and save. One process of eight devices and four of two go
on from their third step. What these log is compared with what the two did, and so are all arrays
of the last step. The examples that 1, 2 and 4 processes are fed next are compared by name and by
token.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from bench_recovery_meshes import AFTER, BEFORE, FILE, OPTIMIZERS, SMALL, distance, experiment_of

EXAMPLES = 200
# gshard-train without TensorBoard and pictures, whose imports take longer than the steps.
_PROGRAM = """
import sys
sys.modules |= {"clu": None, "matplotlib": None}
from gshard_train import train
train.run()
"""
_PERIODS = [
    f"TRAIN_STEPS = {BEFORE + AFTER}",
    f"CHECKPOINT_PERIOD = {BEFORE}",
    "training.train.checkpoints_kept = 100",
    "training.train.log_period = 1",
]


def goes_on(dtype: str, folder: pathlib.Path) -> list[dict[str, Any]]:
    """How far one and four processes are from what two would have done."""
    two = folder / f"{dtype}-2"
    _train(two, dtype, processes=2)
    found = []
    for processes in (1, 4):
        other = folder / f"{dtype}-{processes}"
        step = two / "checkpoints" / str(BEFORE)
        shutil.copytree(step, other / "checkpoints" / str(BEFORE))
        _train(other, dtype, processes=processes)
        ours, theirs = _numbers(other), _numbers(two)[BEFORE:]
        pairs = zip(_arrays(other), _arrays(two), strict=True)
        found.append(
            {
                "dtype": dtype,
                "saved_with": 2,
                "restored_with": processes,
                "steps": len(ours),
                "first_step": distance(ours[0], theirs[0]),
                "twenty_steps": distance(ours, theirs),
                "last_arrays": max(distance(one, another) for one, another in pairs),
            }
        )
    return found


def same_examples(position: int = BEFORE) -> dict[str, int]:
    """How many examples two processes are fed next, and how many differ with one and with four."""
    names, rows = _fed(2, position)
    found = {"examples": len(names)}
    for processes in (1, 4):
        other_names, other_rows = _fed(processes, position)
        wrong = sum(a != b for a, b in zip(other_names, names, strict=True))
        wrong += sum(not np.array_equal(a, b) for a, b in zip(other_rows, rows, strict=True))
        found[f"differ_with_{processes}"] = wrong
    return found


def _fed(processes: int, position: int) -> tuple[list[str], list[np.ndarray]]:
    """Names and arrays of at least so many examples that all processes together are fed."""
    experiment = experiment_of("float32")
    feeds: list[Any] = [
        experiment.make_feed(
            mixture_or_task_name=experiment.mixture_or_task_name,
            task_feature_lengths=experiment.task_feature_lengths,
            batch_size=experiment.batch_size,
            seed=experiment.seed,
            process_index=index,
            process_count=processes,
        )
        for index in range(processes)
    ]
    names, arrays = [], []
    for feed in feeds:
        feed.set_state({"next_index": position})
    while len(names) < EXAMPLES:
        for feed in feeds:
            examples = feed.examples(feed.get_state())
            names += [name for row in examples for name in row.split(", ")]
        parts = [next(feed) for feed in feeds]
        arrays += [np.concatenate([part[name] for part in parts]) for name in parts[0]]
    for feed in feeds:
        feed.close()
    return names, arrays


def _train(model_dir: pathlib.Path, dtype: str, *, processes: int) -> None:
    """Trains to the last step with eight devices in all."""
    with socket.socket() as there:
        there.bind(("localhost", 0))
        port = there.getsockname()[1]
    bindings = [*SMALL, *OPTIMIZERS[dtype], *_PERIODS, f"MODEL_DIR = '{model_dir}'"]
    bindings += [f"make_mesh.cpu_devices = {8 // processes}"]
    command = [sys.executable, "-c", _PROGRAM, f"--gin_file={FILE}"]
    command += [f"--gin_bindings={binding}" for binding in bindings]
    if processes > 1:
        command += [f"--coordinator_address=localhost:{port}", f"--process_count={processes}"]
    started = [
        subprocess.Popen(
            [*command, *([f"--process_index={index}"] if processes > 1 else [])],
            env={**os.environ, **environment_of(dtype)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index in range(processes)
    ]
    said = [process.communicate()[0] for process in started]
    if failed := [text for text, one in zip(said, started, strict=True) if one.returncode]:
        sys.exit(f"bench_recovery_processes: a run failed\n{failed[0]}")


def environment_of(dtype: str) -> dict[str, str]:
    """What a program in that precision is started with."""
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_ENABLE_X64": str(int(dtype == "float64")),
    }


def _numbers(model_dir: pathlib.Path) -> np.ndarray:
    """Loss and gradient norm of each step."""
    lines = map(json.loads, (model_dir / "metrics.jsonl").read_text().splitlines())
    return np.array([[line["loss"], line["gradient_norm"]] for line in lines])


def _arrays(model_dir: pathlib.Path) -> list[np.ndarray]:
    """All arrays of the last step's checkpoint."""
    path = model_dir / "checkpoints" / str(BEFORE + AFTER) / "state"
    logging.getLogger("absl").setLevel(logging.ERROR)  # orbax misses what lies beside the state
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        shapes = reader.metadata(path).item_metadata.tree
        as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
        state = reader.restore(path, ocp.args.PyTreeRestore(restore_args=as_numpy))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
