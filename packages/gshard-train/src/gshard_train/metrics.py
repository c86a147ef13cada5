"""Scalars of a run on disk: `metrics.jsonl`, one object a line, and TensorBoard's events.

TensorBoard's events go through clu, whose import loads TensorFlow and takes ten seconds. A thread
does that beside the first compilation; what is written before it is done waits in its queue, and
`write` never does.
"""

import concurrent.futures
import json
import logging
import math
import os
from collections.abc import Mapping
from typing import Any

import jax

FILE_NAME = "metrics.jsonl"
_logger = logging.getLogger(__name__)


class MetricsWriter:
    """Writes what `write` is given to a run's directory, on the first process only.

    Usable in a `with` block. `metrics.jsonl` never holds a step twice: a run that goes on from
    `start_step` first drops the lines behind that step, which an interrupted run had written after
    its last checkpoint.
    """

    def __init__(self, model_dir: str | os.PathLike[str], *, start_step: int = 0):
        self._active = jax.process_index() == 0
        if not self._active:
            return
        os.makedirs(model_dir, exist_ok=True)
        path = os.path.join(model_dir, FILE_NAME)
        _drop_after(path, start_step)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        self._last_step = start_step
        self._events = _TensorBoard(os.fspath(model_dir))

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Writes one line and queues the same scalars for TensorBoard.

        A value that is not finite becomes null in `metrics.jsonl`, which knows no other numbers,
        and is warned about. Anything that `float` takes is a scalar.

        Raises:
          ValueError: if `step` is not behind the last one.
        """
        if not self._active:
            return
        if step <= self._last_step:
            raise ValueError(
                f"MetricsWriter.write: step {step} comes after step {self._last_step}; "
                "write the steps of a run in order and each of them once"
            )
        self._last_step = step
        numbers = {name: _number(value) for name, value in scalars.items()}
        odd = {name: n for name, n in numbers.items() if not math.isfinite(n)}
        if odd:
            shown = ", ".join(f"{name} is {value}" for name, value in odd.items())
            _logger.warning("Step %d: %s.", step, shown)
        line = {"step": step, **numbers, **dict.fromkeys(odd)}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        self._events.write(step, numbers)

    def close(self) -> None:
        """Waits until everything is on disk."""
        if self._active and not self._file.closed:
            self._file.close()
            self._events.close()


class _TensorBoard:
    """A queue to clu's writer in a thread of its own. Without the writer, a run goes on."""

    def __init__(self, directory: str):
        # The pool's exit hook finishes the queue when a program ends without close().
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "tensorboard")
        self._writer: Any = None
        self._thread.submit(self._guard, self._open, directory)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._thread.submit(self._guard, self._write, step, scalars)

    def close(self) -> None:
        self._thread.submit(self._guard, self._close)
        self._thread.shutdown(wait=True)

    def _guard(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            self._writer = None
            _logger.warning("TensorBoard's events are no longer written.", exc_info=True)

    def _open(self, directory: str) -> None:
        if jax.default_backend() == "gpu":
            import tensorflow as tf

            tf.config.set_visible_devices([], "GPU")  # it would take the memory that JAX needs
        from clu.metric_writers import SummaryWriter

        self._writer = SummaryWriter(directory)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._writer:
            self._writer.write_scalars(step, scalars)
            self._writer.flush()

    def _close(self) -> None:
        if self._writer:
            self._writer.close()


def _number(value: Any) -> int | float:
    return value if isinstance(value, int) else float(value)


def _drop_after(path: str, step: int) -> None:
    """Removes the lines behind `step`, and one that was cut short, by writing the file anew."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except FileNotFoundError:
        return
    kept = [line for line in lines if _step_of(line) <= step]
    if len(kept) == len(lines):
        return
    _logger.info("Dropped %d lines behind step %d from %s.", len(lines) - len(kept), step, path)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def _step_of(line: str) -> float:
    """The step of a line; infinite for one that is not whole."""
    try:
        return json.loads(line)["step"] if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
