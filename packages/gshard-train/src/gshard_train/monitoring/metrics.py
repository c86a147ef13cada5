"""Scalars of a run on disk: `metrics.jsonl`, one object a line, and TensorBoard's events.

TensorBoard's events go through clu, whose import loads TensorFlow and takes ten seconds. A thread
does that beside the first compilation; what is written before it is done waits in its queue, and
`write` never does.
"""

import contextlib
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from gshard_train import disk_faults
from gshard_train.monitoring.tensorboard import TensorBoard

FILE_NAME = "metrics.jsonl"
_logger = logging.getLogger(__name__)


class MetricsWriter:
    """Writes what `write` is given to a run's directory, on the first process only.

    Usable in a `with` block. `metrics.jsonl` never holds a step twice: a run that goes on from
    `start_step` first drops the lines behind that step, which an interrupted run had written after
    its last checkpoint.

    Lines that cannot be written, as on a full disk, wait in memory and are tried again with each
    that follows; the log has those that are left when it closes.

    Attributes:
      before: the last line that earlier runs had written, one that is dropped included.
    """

    def __init__(self, model_dir: str | os.PathLike[str], *, start_step: int = 0):
        self.before: dict[str, Any] = {}
        self._active = jax.process_index() == 0
        if not self._active:
            return
        self._path = os.path.join(model_dir, FILE_NAME)
        with disk_faults.writing(FILE_NAME, model_dir):
            os.makedirs(model_dir, exist_ok=True)
            self.before = _drop_after(self._path, start_step)
            self._open()
        self._line: dict[str, Any] = {"step": start_step}
        self._waiting = ""  # lines before that one which are not on disk
        self._failed = False
        self._events = TensorBoard(os.fspath(model_dir))

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
        if step <= self._line["step"]:
            raise ValueError(
                f"MetricsWriter.write: step {step} comes after step {self._line['step']}; "
                "write the steps of a run in order and each of them once"
            )
        if self._failed:
            self._waiting += self._text()
        else:
            self._waiting, self._line_start = "", os.fstat(self._file.fileno()).st_size
        self._line = {"step": step}
        self.add(step, scalars)

    def add(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Adds scalars to the line of `step`, which is the last that was written.

        Raises:
          ValueError: if it is not the last.
        """
        if not self._active:
            return
        if step != self._line["step"]:
            raise ValueError(
                f"MetricsWriter.add: step {step} is not the last one, {self._line['step']}; "
                "add to a line before the next is written"
            )
        numbers = {name: _number(value) for name, value in scalars.items()}
        odd = {name: n for name, n in numbers.items() if not math.isfinite(n)}
        if odd:
            shown = ", ".join(f"{name} is {value}" for name, value in odd.items())
            _logger.warning("Step %d: %s.", step, shown)
        self._line |= {**numbers, **dict.fromkeys(odd)}
        self._put()
        self._events.scalars(step, numbers)

    def write_load(self, step: int, load_LE: np.ndarray, layers: Sequence[str]) -> None:
        """Queues the load of each layer's experts: histograms for TensorBoard, and a picture.

        Args:
          step: as for `write`.
          load_LE: 1 where all experts of a layer are equal.
          layers: their names.
        """
        if self._active:
            self._events.load(step, load_LE, layers)

    def close(self) -> None:
        """Waits until everything is on disk."""
        if not self._active or self._file.closed:
            return
        if self._failed:
            self._put()
        if self._failed:
            _logger.error("Not in %s:\n%s", self._path, self._waiting + self._text())
        self._file.close()
        self._events.close()

    def _open(self) -> None:
        # Unbuffered, so that a line that could not be written is known and not written later.
        self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
        self._line_start = os.fstat(self._file.fileno()).st_size

    def _text(self) -> str:
        return json.dumps(self._line, allow_nan=False) + "\n"

    def _put(self) -> None:
        """Writes the last line, in the place of what it was before, and those that wait."""
        failed, self._failed = self._failed, True
        try:
            if not os.fstat(self._file.fileno()).st_nlink:  # someone removed the file
                removed = self._file
                self._open()
                removed.close()
            self._file.truncate(self._line_start)
            rest = (self._waiting + self._text()).encode()
            while rest:
                rest = rest[self._file.write(rest) :]
            self._failed = False
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._line_start)
            if not failed:
                _logger.warning(
                    "%s could not be written: %s; the run goes on, and its lines wait in memory.",
                    self._path,
                    error.strerror,
                )


def _number(value: Any) -> int | float:
    return value if isinstance(value, int) else float(value)


def _drop_after(path: str, step: int) -> dict[str, Any]:
    """Removes the lines behind `step`, and one that was cut short, by writing the file anew.

    Returns:
      the last whole line that was there before.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except FileNotFoundError:
        return {}
    whole = [line for line in lines if _step_of(line) < math.inf]
    kept = [line for line in lines if _step_of(line) <= step]
    last = json.loads(whole[-1]) if whole else {}
    if (dropped := len(lines) - len(kept)) == 0:
        return last
    _logger.info(
        "Dropped %d %s behind step %d from %s.",
        dropped,
        "line" if dropped == 1 else "lines",
        step,
        path,
    )
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    return last


def _step_of(line: str) -> float:
    """The step of a line; infinite for one that is not whole."""
    try:
        return json.loads(line)["step"] if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
