"""Seconds until the programs say something: each is a process of its own, started anew."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

_GIN_FILE = "gshard_m4/configs/quickstart.gin"
_LONGEST = 600.0
_TRAIN = [sys.executable, "-m", "gshard_train.train"]


def measure(model_dir: pathlib.Path, *, tries: int) -> Iterator[tuple[str, float, float | None]]:
    """Name, seconds and target of each start, as they are measured.

    Args:
      model_dir: a directory that is not there yet.
      tries: of those that end by themselves; the fastest counts.
    """
    gin = [f"--gin_file={_GIN_FILE}", f"--gin.MODEL_DIR='{model_dir}'"]
    ends = {
        "--help": (["--help"], 0, 1.5),
        "a misspelt macro": ([*gin, "--gin.TRAIN_STPES=5"], 2, 1.5),
        "a required value that is not set": (gin[:1], 2, 1.5),
        "an unknown parameter": ([*gin, "--gin.train.total_stps=5"], 2, 6.0),
    }
    for name, (arguments, status, target) in ends.items():
        yield name, min(_until_end(arguments, status) for _ in range(tries)), target
    arguments = [*gin, "--gin.train.log_period=1"]
    yield "first step of a new run", _until_step(arguments, model_dir), 25.0
    yield "first step of a run that goes on", _until_step(arguments, model_dir), None


def _until_end(arguments: list[str], status: int) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [*_TRAIN, *arguments], capture_output=True, text=True, env=_variables(), check=False
    )
    if done.returncode != status:
        raise SystemExit(f"{arguments} ended with {done.returncode}, not {status}:\n{done.stderr}")
    return time.perf_counter() - began


def _until_step(arguments: list[str], model_dir: pathlib.Path) -> float:
    """Seconds until the first line of metrics that was not there; stops the run as Ctrl-C does."""
    before, began = _last_step(model_dir), time.perf_counter()
    log = model_dir.with_suffix(".log")
    with log.open("w") as file:
        run = subprocess.Popen(
            [*_TRAIN, *arguments], stdout=file, stderr=subprocess.STDOUT, env=_variables()
        )
        while _last_step(model_dir) <= before:
            if run.poll() is not None or time.perf_counter() - began > _LONGEST:
                run.kill()
                raise SystemExit(f"no first step:\n{log.read_text()}")
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        run.send_signal(signal.SIGINT)
        run.wait(_LONGEST)
    return seconds


def _last_step(model_dir: pathlib.Path) -> int:
    try:
        lines = (model_dir / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"] if lines else 0
    except (FileNotFoundError, ValueError):
        return 0


def _variables() -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu"}
