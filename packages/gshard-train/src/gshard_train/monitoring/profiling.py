"""A profile of a few steps of a run, for XProf and TensorBoard."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import logging

from gshard_train import disk_faults

DIRECTORY = "profile"


def faults(steps: Sequence[int]) -> Iterator[str]:
    """What is wrong with `profile_steps`."""
    match steps:
        case [] | ():
            return
        case [int(first), int(last)] if 1 <= first <= last:
            return
        case _:
            yield (
                f"profile_steps={steps!r} must be the first and the last step to trace, both "
                "counted from 1, such as (10, 15), or () for none"
            )


class Profiler:
    """Traces the steps from the first to the last of `steps` into `<model_dir>/profile`.

    Args:
      model_dir: the run's directory.
      steps: first and last step, or nothing.
      start: the step that the run goes on from.
      total: the step at which it ends.
    """

    def __init__(self, model_dir: str, steps: Sequence[int], *, start: int, total: int):
        self._first, self._last = steps or (0, 0)
        self._directory = Path(model_dir, DIRECTORY)
        self._tracing = False
        if steps and not start < self._first <= total:
            logging.warning(
                "profile_steps=%s: this run makes the steps %d to %d and begins no profile.",
                (self._first, self._last),
                start + 1,
                total,
            )

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def before(self, step: int, newest: Any) -> None:
        """Starts the trace before its first step, once `newest`, a tree of arrays, is there."""
        if step == self._first:
            jax.block_until_ready(newest)
            with _warned():
                jax.profiler.start_trace(self._directory)
                self._tracing = True

    def after(self, step: int, newest: Any) -> None:
        """Ends the trace behind its last step, when `newest`, a tree of arrays, is there."""
        if self._tracing and step >= self._last:
            jax.block_until_ready(newest)
            self.close()

    def close(self) -> None:
        """Ends a trace that is under way, such as one of an interrupted run."""
        if self._tracing:
            self._tracing = False
            with _warned():
                jax.profiler.stop_trace()
                logging.info("The profile is in %s: xprof --logdir=%s", *[self._directory] * 2)


@contextlib.contextmanager
def _warned() -> Iterator[None]:
    """Without its profile a run goes on."""
    try:
        yield
    except Exception as error:  # of a C++ library, whose types have no public names
        logging.warning("There is no profile: %s", disk_faults.reason(error))
