"""Stopping a run when asked to, at the end of a step."""

import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and has left a checkpoint behind."""


class StopRequest:
    """A `with` block in which SIGINT and SIGTERM only set `name`; a second one ends at once."""

    def __init__(self):
        self.name: str | None = None
        self._previous = {}

    def __enter__(self) -> "StopRequest":
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.name is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.name = signal.Signals(number).name
