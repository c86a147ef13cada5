"""TensorBoard's events and the picture of the experts' load, in a thread of their own.

Axes: L MoE layers, E experts.
"""

import concurrent.futures
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gshard_train import disk_faults, tensorflow_devices
from gshard_train.monitoring import expert_load

_logger = logging.getLogger(__name__)
_PICTURE_SECONDS = 60.0  # the shortest time between two pictures; drawing one takes a third


class TensorBoard:
    """A queue to clu's writer in a thread of its own. Without the writer, a run goes on."""

    def __init__(self, directory: str):
        self._directory = directory
        # The pool's exit hook finishes the queue when a program ends without close().
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "tensorboard")
        self._writer: Any = None
        self._drawn_at = -float("inf")
        self._newest: tuple[int, np.ndarray, Sequence[str]] | None = None  # not drawn yet
        self._thread.submit(self._guard, self._open, directory)

    def scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Queues scalars of a step."""
        self._thread.submit(self._guard, self._write, step, scalars)

    def load(self, step: int, load_LE: np.ndarray, layers: Sequence[str]) -> None:
        """Queues a histogram of each layer's load; the picture follows now and then."""
        self._thread.submit(self._guard, self._write_load, step, load_LE, layers)

    def close(self) -> None:
        """Draws the newest load and waits until everything is written."""
        self._thread.submit(self._guard, self._draw)
        last = self._thread.submit(self._guard, self._close)
        if concurrent.futures.wait([last], timeout=1.0).not_done:
            loading = "" if self._writer else "; the library for it is still being loaded"
            _logger.info("Writing TensorBoard's events and pictures%s.", loading)
        self._thread.shutdown(wait=True)

    def _guard(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:
            self._writer = None
            _logger.warning(
                "TensorBoard's events are no longer written: %s", disk_faults.reason(error)
            )

    def _open(self, directory: str) -> None:
        tensorflow_devices.hide_gpus()
        from clu.metric_writers import SummaryWriter

        self._writer = SummaryWriter(directory)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._writer:
            self._writer.write_scalars(step, scalars)
            self._writer.flush()

    def _write_load(self, step: int, load_LE: np.ndarray, layers: Sequence[str]) -> None:
        if self._writer:
            loads = zip(layers, load_LE, strict=True)
            self._writer.write_histograms(step, {f"expert_load/{name}": E for name, E in loads})
        self._newest = (step, load_LE, layers)
        if time.monotonic() - self._drawn_at >= _PICTURE_SECONDS:
            self._draw()

    def _draw(self) -> None:
        if self._newest is None or self._drawn_at == float("inf"):
            return
        (step, load_LE, layers), self._newest = self._newest, None
        self._drawn_at = time.monotonic()
        try:
            pixels = expert_load.draw(self._directory, load_LE, layers, step=step)
        except Exception as error:
            why = disk_faults.reason(error)
            _logger.warning("%s is no longer drawn: %s", expert_load.FILE_NAME, why)
            self._drawn_at = float("inf")
            return
        if self._writer:
            self._writer.write_images(step, {"expert_load": pixels[None]})

    def _close(self) -> None:
        if self._writer:
            self._writer.close()
