"""Ends a run of several processes when one of them makes no more steps, and says which and where.

All processes wait for each other on their devices: when one is stuck or gone, the others hang
without a word, or JAX aborts them a hundred seconds later, with the number of a task and without
the step. Here every process tells, through JAX's coordination service, which step it is at and that
it is alive. Process 0 looks at all of them, so that a thousand processes do not read a million
values; what it finds, or another that waits for too long, is left for all to read. The service
itself is a part of process 0: when that dies JAX aborts the others at once, and the last word is
had in the handler of the abort.
"""

import contextlib
import dataclasses
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from gshard_train import aborts
from gshard_train.distributed import HEARTBEAT_SECONDS, coordinator_answers
from gshard_train.errors import RESTART, PeerLostError
from gshard_train.newest_step import newest_step
from gshard_train.notice_board import NoticeBoard, Seen, Store
from gshard_train.ranges import is_number, positive

DONE, EVALUATING, READING = "done", "evaluating", "reading up to the position in the data"
HELD_OUT, RESTORING = "reading what is held out", "restoring"
_LONG = {EVALUATING, READING, HELD_OUT, RESTORING}  # as much as there are data, or a checkpoint
# How an error of the devices begins that is no `JaxRuntimeError`: Gloo's, on CPUs.
_STATUS = re.compile("(UNKNOWN|INTERNAL|UNAVAILABLE|ABORTED|CANCELLED|DEADLINE_EXCEEDED): ")
_LOOKS = 10  # within the shortest limit
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long, in seconds, is too long."""

    silent: float = 45.0  # without a sign of life
    stuck: float = 900.0  # nothing begun or ended; ten times as long for what reads much

    def faults(self) -> Iterator[str]:
        """What is wrong with them, under the names they have in `training.train`."""
        yield from positive(silent_seconds=self.silent, stuck_seconds=self.stuck)
        if is_number(self.silent) and self.silent > (most := HEARTBEAT_SECONDS * 0.8):
            yield (
                f"silent_seconds={self.silent} must be at most {most:g}: after "
                f"{HEARTBEAT_SECONDS} s without a sign of life JAX aborts all processes, and "
                "does not say at which step"
            )

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return min(self.silent, self.stuck) / _LOOKS


class Watchdog:
    """Watches the processes of a run from a thread, inside a `with` block.

    Args:
      index: this process.
      count: how many there are; one alone is not watched.
      store: what they share; JAX's coordination service by default.
      limits: how long is too long.
      checkpoints: the directory of them, of which the newest is named at the end.
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
        checkpoints: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[str], None] | None = None,
    ):
        self._index, self._count, self._limits, self._clock = index, count, limits, clock
        self._board = NoticeBoard(index, store) if count > 1 else None
        self._end, self._checkpoints = end or self._end_now, checkpoints
        self._step, self._doing, self._since = 0, "starting", clock()
        self._began = self._since
        self._heard: dict[int, tuple[int, float]] = {}  # last beat of each process, and when
        self._answered = self._began
        self._aborts = contextlib.ExitStack()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        if self._board is not None:
            if self._index:
                self._aborts.enter_context(aborts.last_word(self._aborted))
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        if self._board is None:
            return
        if error is not None and _from_devices(error):
            self._wait_for_verdict(error)
        self._closed.set()
        self._thread.join()
        # The others wait for one that failed: they miss it as they would a dead one.
        self.tell(self._step, "failed" if kind else DONE)
        with contextlib.suppress(Exception):  # the run is over, and process 0 may be gone
            self._board.say(self._step, self._doing)
        self._aborts.close()

    def tell(self, step: int, doing: str = "training") -> None:
        """This process is at `step` and does something new, such as "saving"."""
        self._step, self._doing, self._since = step, doing, self._clock()

    @property
    def step(self) -> int:
        """The step that this process last told."""
        return self._step

    @property
    def doing(self) -> str:
        """What this process last told that it does."""
        return self._doing

    def leave(self, said: str) -> None:
        """Tells the others that this process ends, and why; they end too."""
        if self._board is not None:
            self._board.judge(f"{self._me()} was stopped by {said}")

    def look(self) -> str | None:
        """What is wrong with one of the processes, after telling the others about this one."""
        assert self._board is not None
        if self._index:
            self._board.hear_first(self._limits.pause)
        self._board.say(self._step, self._doing)
        if said := self._board.verdict():
            return said
        now = self._clock()
        waited = now - self._since
        stuck = waited > self._limits.stuck * (10 if self._doing in _LONG else 1)
        if self._index and not stuck:
            seen = {0: self._board.first} if self._board.first else {}
        else:
            seen = self._board.everyone()
        said = self._silent(seen, now) or (_behind(seen, waited) if stuck else None)
        if said:
            self._board.judge(said)
        return said

    def _silent(self, everyone: Mapping[int, Seen], now: float) -> str | None:
        for index, seen in everyone.items():
            if self._heard.get(index, (None, 0.0))[0] != seen.beat:
                self._heard[index] = (seen.beat, now)
        for index, seen in everyone.items():
            silent = now - self._heard[index][1]
            if seen.doing != DONE and silent > self._limits.silent:
                return f"{seen.name(index)} has not been heard of for {silent:.0f} s"
        absent = sorted(set(range(self._count)) - set(everyone))
        if not self._index and absent and now - self._began > self._limits.stuck:
            return f"process {absent[0]} has not been heard of since the start"
        return None

    def _watch(self) -> None:
        while True:
            if (said := self._look_safely()) and not self._closed.is_set():
                if not self._index:
                    time.sleep(2 * self._limits.pause)  # with it goes what the others read
                self._end(f"{said}; process {self._index} ends at step {self._step}")
                return
            if self._closed.wait(self._limits.pause):
                return

    def _look_safely(self) -> str | None:
        try:
            said = self.look()
        except Exception as error:  # JAX's own type has no public name
            if self._clock() - self._answered <= self._limits.silent:
                return None
            return f"{self._first()} no longer answers ({str(error).splitlines()[0]})"
        self._answered = self._clock()
        return said

    def _wait_for_verdict(self, error: BaseException) -> None:
        """Lets the thread end this process where the error comes of another that is gone."""
        seconds = 1.5 * self._limits.silent
        said = str(error).split("\n")[0]
        _logger.error("%s; looking for %.0f s whether another process is gone", said, seconds)
        time.sleep(seconds)

    def _aborted(self) -> None:
        """Ends this process where process 0 is gone; otherwise says where it was aborted."""
        if coordinator_answers() and self._clock() - self._answered < self._limits.silent:
            _logger.critical("%s is aborted.", self._me())
            return
        self._end(f"{self._first()} has died; process {self._index} ends at step {self._step}")

    def _end_now(self, said: str) -> None:
        again = f"start all processes again (exit code {RESTART})"
        _logger.critical("%s. %s%s.", said, self._newest(), again)
        logging.shutdown()
        os._exit(RESTART)

    def _newest(self) -> str:
        """Which checkpoint the run goes on from; that it can be read is for the next start."""
        if self._checkpoints is None:
            return ""
        if (step := newest_step(self._checkpoints)) is None:
            return f"There is no checkpoint in {self._checkpoints} yet: "
        return f"The newest checkpoint is {self._checkpoints}/{step}: "

    def _first(self) -> str:
        first = self._board.first if self._board else None
        return first.name(0) if first else "process 0"

    def _me(self) -> str:
        return f"process {self._index} on {socket.gethostname()}, at step {self._step},"


def _behind(everyone: Mapping[int, Seen], waited: float) -> str:
    """Who holds up all: the one that is at an earlier step than others."""
    index, seen = min(everyone.items(), key=lambda item: item[1].step)
    if len(everyone) > 1 and all(each.step == seen.step for each in everyone.values()):
        doing = ", ".join(sorted({each.doing for each in everyone.values()}))
        return f"all processes are at step {seen.step} ({doing}) for {waited:.0f} s"
    return f"{seen.name(index)} has done nothing for {waited:.0f} s"


def _from_devices(error: BaseException) -> bool:
    """Whether an error may come of another process, which this one's devices waited for."""
    import jax

    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" not in str(error)
    return isinstance(error, PeerLostError) or (
        isinstance(error, ValueError) and bool(_STATUS.match(str(error)))
    )
