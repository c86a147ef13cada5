"""Stopping a run when asked to, at the end of a step."""

import os
import signal
import sys
from types import FrameType

import jax
from jax.experimental import multihost_utils

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and has left a checkpoint behind."""


class StopRequest:
    """A `with` block in which SIGINT and SIGTERM only set `name`; a second one ends at once.

    Several processes have to stop at the same step: there JAX takes SIGTERM, passes it on to the
    others and finds a step that none has reached, which `agree` asks for.
    """

    def __init__(self):
        self.name: str | None = None
        self._several = jax.process_count() > 1
        self._previous = {}

    def __enter__(self) -> "StopRequest":
        for number in STOP_SIGNALS[:1] if self._several else STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def agree(self, step: int) -> None:
        """Sets `name` at the step at which all processes stop, once one was asked to."""
        if self._several and multihost_utils.reached_preemption_sync_point(step):
            self.name = signal.Signals.SIGTERM.name

    def _note(self, number: int, _: FrameType | None) -> None:
        if self._several:
            signal.signal(number, signal.SIG_DFL)  # a second one ends at once
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if self.name is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.name = signal.Signals(number).name
        # Not through logging, whose locks the interrupted code may hold.
        said = f"\n{self.name}: stopping after this step, with a checkpoint; again to end at once\n"
        os.write(sys.stderr.fileno(), said.encode())
