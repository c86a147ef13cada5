"""The time from a kill to the first new step, and what of it is compiling."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from bench_recovery_kills import FILE, TRACED

_LONGEST = 900.0
_COMPILED = "/jax/compilation_cache/cache_misses"
_FOUND = "/jax/compilation_cache/cache_hits"
_RETRIEVING = "/jax/compilation_cache/cache_retrieval_time_sec"


def measure(folder: pathlib.Path) -> dict[str, float]:
    """Kills the quickstart's run behind a checkpoint and starts it again.

    Its first start compiles everything; the second one finds it. A run starts in seconds, so this
    needs a machine that does nothing else.
    """
    trail = folder / "trail.jsonl"
    trail.touch()
    first, began = _start(folder, trail), time.monotonic()
    _wait(first, lambda: bool(_steps(trail, first.pid)))
    new = time.monotonic() - began
    _wait(first, lambda: (folder / "run" / "checkpoints" / "4").exists())
    first.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    first.wait()
    second = _start(folder, trail)
    _wait(second, lambda: bool(_steps(trail, second.pid)))
    again = time.monotonic() - killed
    second.kill()
    second.wait()
    found = {
        "seconds to the first step of a new run": new,
        "programs it compiled": len(_events(trail, first.pid, _COMPILED)),
        "seconds from the kill to the first new step": again,
        "programs it compiled again": len(_events(trail, second.pid, _COMPILED)),
        "programs it found compiled": len(_events(trail, second.pid, _FOUND)),
        "seconds of reading them": sum(_events(trail, second.pid, _RETRIEVING)),
    }
    for name, value in found.items():
        print(f"{name:48}{value:>9.4g}", flush=True)
    return {name.replace(" ", "_"): round(value, 3) for name, value in found.items()}


def _start(folder: pathlib.Path, trail: pathlib.Path) -> subprocess.Popen[bytes]:
    bindings = [f"MODEL_DIR = '{folder / 'run'}'", "CHECKPOINT_PERIOD = 4", "train.log_period = 1"]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, str(TRACED), f"--gin_file={FILE}"]
            + [f"--gin_bindings={binding}" for binding in bindings],
            env={**os.environ, "TRAIL": str(trail), "JAX_PLATFORMS": "cpu"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait(process: subprocess.Popen[bytes], moment: Callable[[], bool]) -> None:
    end = time.monotonic() + _LONGEST
    while not moment():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            sys.exit("bench_recovery: the quickstart's run ended, or did nothing")
        time.sleep(0.02)


def _lines(trail: pathlib.Path, pid: int) -> list[dict[str, Any]]:
    noted = map(json.loads, trail.read_text().splitlines())
    return [line for line in noted if line["start"] == pid]


def _steps(trail: pathlib.Path, pid: int) -> list[int]:
    return [line["step"] for line in _lines(trail, pid) if "step" in line]


def _events(trail: pathlib.Path, pid: int, name: str) -> list[float]:
    """The seconds of each event of a name; 0 for those that take none."""
    found = [line for line in _lines(trail, pid) if line.get("event") == name]
    return [line.get("seconds", 0.0) for line in found]
