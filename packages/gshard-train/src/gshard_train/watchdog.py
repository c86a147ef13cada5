"""Ends a run of several processes when one of them makes no more steps, and says which and where.

All processes wait for each other on their devices: when one is stuck or gone, the others hang
without a word, or JAX aborts them a hundred seconds later, with the number of a task and without
the step. Here every process tells the others, through JAX's coordination service, which step it is
at and that it is alive; each looks at all of them.
"""

import contextlib
import dataclasses
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from gshard_train.errors import RESTART

DONE, EVALUATING = "done", "evaluating"
_KEY = "gshard_train/watchdog"
_logger = logging.getLogger(__name__)


class Store(Protocol):
    """Where processes write what the others read: JAX's coordination service."""

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Writes one value."""
        ...

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys below one, with their values."""
        ...


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long, in seconds, is too long."""

    silent: float = 45.0  # without a sign of life; below JAX's own 100
    stuck: float = 900.0  # without anything begun or ended; ten times as long while it evaluates


class Seen(NamedTuple):
    """What one process last said of itself."""

    beat: int
    step: int
    doing: str
    host: str


class Watchdog:
    """Watches the processes of a run from a thread, inside a `with` block.

    Args:
      index: this process.
      count: how many there are; one alone is not watched.
      store: what they share; JAX's coordination service by default.
      limits: how long is too long.
      clock: seconds, for tests.
      end: called with what is said when this process has to end; by default logs it and ends the
        process at once with the exit code for "start again", since its main thread hangs.
    """

    def __init__(
        self,
        index: int,
        count: int,
        *,
        store: Store | None = None,
        limits: Limits = Limits(),
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[str], None] | None = None,
    ):
        self._index, self._count, self._limits, self._clock = index, count, limits, clock
        self._store = _coordination_service() if store is None and count > 1 else store
        self._end = end or _end
        self._beat = 0
        self._step, self._doing, self._since = 0, "starting", clock()
        self._began = self._since
        self._heard: dict[int, tuple[int, float]] = {}  # last beat of each process, and when
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        if self._store is not None:
            self._thread.start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._closed.set()
        if self._store is not None:
            self._thread.join()
            # The others wait for one that failed: they miss it as they would a dead one.
            self.tell(self._step, "failed" if error else DONE)
            with contextlib.suppress(Exception):  # the run is over, and process 0 may be gone
                self._say()

    def tell(self, step: int, doing: str = "training") -> None:
        """This process is at `step` and does something new, such as "saving"."""
        self._step, self._doing, self._since = step, doing, self._clock()

    def look(self) -> str | None:
        """What is wrong with one of the processes, after telling the others about this one."""
        self._say()
        everyone, now = self._read(), self._clock()
        for index, seen in everyone.items():
            if self._heard.get(index, (None, 0.0))[0] != seen.beat:
                self._heard[index] = (seen.beat, now)
        for index, seen in everyone.items():
            silent = now - self._heard[index][1]
            if seen.doing != DONE and silent > self._limits.silent:
                return f"{_name(index, seen)} has not been heard of for {silent:.0f} s"
        absent = sorted(set(range(self._count)) - set(everyone))
        if absent and now - self._began > self._limits.stuck:
            return f"process {absent[0]} has not been heard of since the start"
        waited = now - self._since
        if waited > self._limits.stuck * (10 if self._doing == EVALUATING else 1):
            index, seen = min(everyone.items(), key=lambda item: item[1].step)
            return f"{_name(index, seen)} has done nothing for {waited:.0f} s"
        return None

    def _watch(self) -> None:
        pause = min(self._limits.silent, self._limits.stuck) / 5
        while not self._closed.wait(pause):
            try:
                said = self.look()
            except Exception as error:  # JAX's own type has no public name
                self._heard.setdefault(0, (0, self._clock()))
                if self._clock() - self._heard[0][1] <= self._limits.silent:
                    continue
                said = f"process 0 no longer answers ({str(error).splitlines()[0]})"
            if said and not self._closed.is_set():
                self._end(f"{said}; process {self._index} ends at step {self._step}")
                return

    def _say(self) -> None:
        assert self._store is not None
        self._beat += 1
        seen = Seen(self._beat, self._step, self._doing, socket.gethostname())
        text = json.dumps(seen._asdict())
        self._store.key_value_set(f"{_KEY}/{self._index}", text, allow_overwrite=True)

    def _read(self) -> Mapping[int, Seen]:
        assert self._store is not None
        said = self._store.key_value_dir_get(_KEY)
        return {int(key.rpartition("/")[2]): Seen(**json.loads(text)) for key, text in said}


def _name(index: int, seen: Seen) -> str:
    return f"process {index} on {seen.host}, at step {seen.step} ({seen.doing}),"


def _coordination_service() -> Store:
    # No public name for it; orbax uses the same.
    from jax._src import distributed

    client: Any = distributed.global_state.client
    assert client is not None, "several processes without jax.distributed.initialize"
    return client


def _end(said: str) -> None:
    _logger.critical(
        "%s. The newest checkpoint is whole: start all processes again (exit code %d).",
        said,
        RESTART,
    )
    logging.shutdown()
    os._exit(RESTART)
