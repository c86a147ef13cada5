"""What a run tells while it runs: a line of progress, `metrics.jsonl` and TensorBoard.

With one host nothing here waits for the step that the devices are at: a step's figures are read
when the next one has been handed to them.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from gshard_train import nonfinite
from gshard_train.experiment import Experiment, Prepared
from gshard_train.monitoring import expert_load, hosts
from gshard_train.monitoring.guard import Guard, NonfiniteError
from gshard_train.monitoring.metrics import MetricsWriter
from gshard_train.monitoring.overview import moe_layer_names
from gshard_train.monitoring.progress import Progress
from gshard_train.monitoring.stopwatch import Stopwatch
from gshard_train.monitoring.utilisation import step_flops
from gshard_train.step import Metrics

# Added up; everything else is a mean over steps.
COUNTS = ("source_tokens", "target_tokens", "sequences", "expert_load")
_GIB = 2**30


class Reporter:
    """Collects each step's metrics from the devices and reports their means now and then.

    Args:
      experiment: what is trained.
      prepared: its mesh, whose devices cost time.
      start: the step that the run goes on from.
      total: the step at which it ends.
      log_period: steps between reports.
      watch: parts "data" and "devices" of the loop's time: the wait for them.
      peak_flops_per_device: what a device could do in a second, for the utilisation.
      repeated_share: share of the examples so far that were not new; None where no one knows.
      began: `time.monotonic()` when the run began, for its cost.
      guard: says what happens at steps with NaN or Inf; by default the first one stops the run.
    """

    def __init__(
        self,
        experiment: Experiment,
        prepared: Prepared,
        *,
        start: int,
        total: int,
        log_period: int,
        watch: Stopwatch,
        peak_flops_per_device: float | None = None,
        repeated_share: Callable[[], float | None] = lambda: None,
        began: float | None = None,
        guard: Guard | None = None,
    ):
        self._experiment, self._devices = experiment, prepared.mesh.size
        self._writer = MetricsWriter(experiment.model_dir, start_step=start)
        self._progress = Progress(start, total) if jax.process_index() == 0 else None
        self._period, self._watch, self._peak = log_period, watch, peak_flops_per_device
        self._repeated_share = repeated_share
        self._began = time.monotonic() if began is None else began
        self._guard = guard or Guard(lambda: nonfinite.pieces(prepared.model))
        self._newest: Metrics | None = None  # of step self._step, still on the devices
        self._position: Any = None  # of the feed before that step's batch
        self._done: list[dict[str, Any]] = []  # of the steps before, since the last report
        self._step = start
        self._reported = -1
        self._stalls: dict[str, float] = {}  # for the next line

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.close()
        self._writer.close()

    def add(self, step: int, metrics: Metrics, position: Any = None) -> None:
        """Takes in one step's metrics, and reports up to the step before when that is due.

        Waits for the step before, so that the devices have one step to do and one to come.

        Args:
          step: its number.
          metrics: on the devices.
          position: of the feed before the step's batch.

        Raises:
          NonfiniteError: as `Guard.check` does, for the step before.
        """
        self._fetch()
        if self._done and self._step % self._period == 0:
            self._report()
        self._newest, self._step, self._position = metrics, step, position

    def report(self) -> None:
        """Writes the means over the steps since the last report; waits for the newest step.

        Raises:
          NonfiniteError: as `add` does, for the newest step.
        """
        self._fetch()
        if self._done:
            self._report()

    def end(self) -> None:
        """As `report`, when no step follows: the line of progress has no time left and comes now.

        Raises:
          NonfiniteError: as `report` does.
        """
        self._fetch()
        if self._done:
            self._report(last=True)
        if self._progress:
            self._progress.close()

    @property
    def skipped_steps(self) -> int:
        """How many steps were left out for NaN or Inf, of those that were reported."""
        return self._guard.left_out

    def add_figures(self, scalars: Mapping[str, float]) -> None:
        """Adds scalars, such as an evaluation's, to the line of the step that was reported last."""
        self._writer.add(self._step, scalars)

    @contextlib.contextmanager
    def stall(self, name: str) -> Iterator[None]:
        """A `with` block in which no step is made, whose seconds are reported under `name`.

        They go to the newest step's line if it is written, or else to the next one, and no speed
        counts them.
        """
        start = time.monotonic()
        yield
        seconds = time.monotonic() - start
        self._watch.leave_out(seconds)
        if self._reported == self._step:
            self.add_figures({name: seconds})
        else:
            self._stalls[name] = seconds

    def _fetch(self) -> None:
        if self._newest is None:
            return
        with self._watch.part("devices"):
            jax.block_until_ready(self._newest)
        metrics, self._newest = jax.device_get(self._newest), None
        try:
            self._guard.check(self._step, metrics, self._position)
        except NonfiniteError:
            self._report_before()
            raise
        self._done.append(metrics)

    def _report_before(self) -> None:
        """Reports the steps before one that stops the run."""
        if self._done:
            self._step -= 1
            self._report(last=True)

    def _report(self, *, last: bool = False) -> None:
        steps, self._done = self._done, []
        counts = {
            name: np.sum([s[name] for s in steps], axis=0) for name in COUNTS if name in steps[0]
        }
        # A step that was left out has tokens and no figures, unless there is no other.
        whole = [s for s in steps if not s["nonfinite"]] or steps
        scalars = {
            name: float(np.mean([s[name] for s in whole]))
            for name, value in steps[0].items()
            if np.ndim(value) == 0 and name not in (*COUNTS, "nonfinite")
        }
        if self._guard.allowed or self._guard.left_out:
            scalars["skipped_steps"] = self._guard.left_out
        scalars |= self._speed(counts, len(steps)) | self._cost() | _memory()
        if (share := self._repeated_share()) is not None:
            scalars["repeated_share"] = share
        if (choices_LE := counts.get("expert_load")) is not None:
            load_LE = expert_load.relative(choices_LE)
            scalars |= expert_load.figures(load_LE)
            layers = moe_layer_names(self._experiment.model)
            self._writer.write_load(self._step, load_LE, layers)
        self._writer.write(self._step, scalars)
        self._reported = self._step
        if self._progress:
            self._progress.update(self._step, scalars, last=last)

    def _speed(self, counts: Mapping[str, Any], steps: int) -> dict[str, float]:
        """Over the time in which steps are made: without stalls, with the wait for data."""
        lap = self._watch.lap()
        stalls, self._stalls = self._stalls, {}
        seconds = max(lap.seconds, 1e-9)
        own_seconds = max(seconds - lap.parts.get("devices", 0.0), 0.0)
        # With several hosts this waits for the step that the devices are at.
        with self._watch.part("devices"):
            slowest = hosts.slowest(own_seconds / steps)
        flops = self._flops(counts, steps) / seconds / self._devices
        tokens = counts["source_tokens"] + counts["target_tokens"]
        return {
            "tokens_per_second": float(tokens) / seconds,
            **(
                {"sequences_per_second": float(counts["sequences"]) / seconds}
                if "sequences" in counts
                else {}
            ),
            "step_seconds": seconds / steps,
            "tflops_per_device": flops / 1e12,
            **({"utilisation": flops / self._peak} if self._peak else {}),
            "data_wait_share": lap.parts.get("data", 0.0) / seconds,
            **stalls,
            **slowest,
        }

    def _flops(self, counts: Mapping[str, Any], steps: int) -> float:
        """Of all steps since the last report."""
        lengths = self._experiment.task_feature_lengths
        load_LE = counts.get("expert_load")
        return step_flops(
            self._experiment.model,
            source_tokens=float(counts["source_tokens"]),
            target_tokens=float(counts["target_tokens"]),
            source_length=lengths["inputs"],
            target_length=lengths["targets"],
            choices=None if load_LE is None else float(load_LE.sum()),
        )

    def _cost(self) -> dict[str, float]:
        """Device-hours of this start, and of all starts in this directory."""
        hours = self._devices * (time.monotonic() - self._began) / 3600
        before = self._writer.before.get("device_hours_total") or 0.0
        return {"device_hours": hours, "device_hours_total": before + hours}


def _memory() -> dict[str, float]:
    """Of this host's fullest device, where the backend tells."""
    stats = [found for device in jax.local_devices() if (found := device.memory_stats())]
    names = {"bytes_in_use": "device_memory_gib", "peak_bytes_in_use": "device_memory_peak_gib"}
    return {
        shown: max(each[name] for each in stats) / _GIB
        for name, shown in names.items()
        if stats and all(name in each for each in stats)
    }
