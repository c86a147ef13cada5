"""How many training steps fit into some minutes on this machine.

The learning rate follows the number of steps, so it has to be known before training starts. It is
kept beside the run: the same command then means the same run, however busy the machine is later.
"""

from __future__ import annotations

import json
import pathlib
import statistics

FILE_NAME = "pace.json"
TRIAL_STEPS = 150


def kept_steps(minutes: float, model_dir: pathlib.Path) -> int | None:
    """Steps for `minutes` by the pace of this run, None if nothing was measured yet."""
    kept = model_dir / FILE_NAME
    if kept.exists():
        return _steps(minutes, json.loads(kept.read_text())["step_seconds"])
    return measure(minutes, model_dir, model_dir)


def measure(minutes: float, trial_dir: pathlib.Path, model_dir: pathlib.Path) -> int | None:
    """Steps for `minutes` by what training in `trial_dir` has logged, kept in `model_dir`."""
    metrics = trial_dir / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    # the first line's steps waited for the compiler
    seconds = [json.loads(line)["step_seconds"] for line in lines][1:]
    if not seconds:
        return None
    pace = statistics.median(seconds)
    model_dir.mkdir(parents=True, exist_ok=True)
    (model_dir / FILE_NAME).write_text(json.dumps({"step_seconds": pace}) + "\n")
    return _steps(minutes, pace)


def _steps(minutes: float, step_seconds: float) -> int:
    """To the nearest hundred, which reads better, and at least that."""
    return max(100, round(minutes * 60 / step_seconds / 100) * 100)
