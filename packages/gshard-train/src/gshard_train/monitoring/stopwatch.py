"""Where the seconds of the training loop go."""

import collections
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Lap(NamedTuple):
    """The time between two laps: all of it, and the parts that had a name."""

    seconds: float
    parts: dict[str, float]


class Stopwatch:
    """Measures parts of a time that goes on; `clock` gives seconds, for tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since = clock()
        self._parts: collections.defaultdict[str, float] = collections.defaultdict(float)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A `with` block whose seconds are added to the part `name`; parts do not nest."""
        start = self._clock()
        try:
            yield
        finally:
            self._parts[name] += self._clock() - start

    def leave_out(self, seconds: float) -> None:
        """Takes seconds that have passed out of the lap."""
        self._since += seconds

    def lap(self) -> Lap:
        """What was measured since the last lap; the next one begins."""
        now = self._clock()
        lap = Lap(now - self._since, dict(self._parts))
        self._since = now
        self._parts.clear()
        return lap
