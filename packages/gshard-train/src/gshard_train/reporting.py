"""What a run tells while it runs: a line of progress, `metrics.jsonl` and TensorBoard."""

import math
import time
from typing import Any

import jax
import numpy as np

from gshard_train.metrics import MetricsWriter
from gshard_train.progress import Progress
from gshard_train.step import Metrics

COUNTS = ("source_tokens", "target_tokens")  # added up; everything else is a mean over steps


class Reporter:
    """Collects each step's metrics on the devices and reports their means now and then."""

    def __init__(self, model_dir: str, *, start: int, total: int):
        self._writer = MetricsWriter(model_dir, start_step=start)
        self._progress = Progress(start, total)
        self._pending: list[Metrics] = []
        self._step = start
        self._since = time.monotonic()

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        self._writer.close()

    def add(self, step: int, metrics: Metrics, *, now: bool) -> None:
        """Takes in one step's metrics; `now` reports all since the last report.

        Waits for the step before, so that the devices have one step to do and one to come.
        """
        if self._pending:
            jax.block_until_ready(self._pending[-1])
        self._pending.append(metrics)
        self._step = step
        if now:
            self.report()

    def report(self) -> None:
        """Writes the means over the steps since the last report.

        Raises:
          FloatingPointError: loss, gradient or update of one of them is not a number.
        """
        if not self._pending:
            return
        steps = jax.device_get(self._pending)
        self._pending = []
        self._check(steps)
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        values = {
            name: np.sum([s[name] for s in steps], axis=0) / (1 if name in COUNTS else len(steps))
            for name in steps[0]
        }
        tokens = values.pop("source_tokens") + values.pop("target_tokens")
        scalars = {name: float(v) for name, v in values.items() if np.ndim(v) == 0}
        scalars |= {
            "tokens_per_second": float(tokens) / seconds,
            "step_seconds": seconds / len(steps),
        }
        self._writer.write(self._step, scalars)
        self._progress.update(self._step, scalars)

    def _check(self, steps: list[dict[str, Any]]) -> None:
        """The update too: a loss is computed with the parameters from before it."""
        for number, metrics in enumerate(steps, self._step - len(steps) + 1):
            for name in ("total_loss", "gradient_norm", "update_norm"):
                if not math.isfinite(metrics[name]):
                    raise FloatingPointError(
                        f"{name} of step {number} is {metrics[name]}; the newest checkpoint is "
                        "from before. Lower the learning rate or clip gradients and run again"
                    )
