"""Stopping a run when asked to: at once before its first step, then at the end of a step.

A machine that is taken away says so by SIGTERM: Kubernetes' kubelet, which passes on the notices of
Google Cloud's machines, and SLURM do. Whoever sends it is to start the run again, elsewhere.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import jax

from gshard_train.errors import INTERRUPTED, RESTART
from gshard_train.newest_step import newest_step

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEAVE_SECONDS = 2  # in which the others are told, who find out without that too


class Service(Protocol):
    """JAX's own, among several processes."""

    def reached_sync_point(self, point: int) -> bool:
        """Whether all stop at this point."""
        ...

    def shutdown(self) -> None:
        """Ends its threads, before its connection ends."""
        ...


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop and has left on disk what it had.

    Args:
      said: what a person should know.
      exit_code: of the process; Ctrl-C's by default.
      of_all: all processes have agreed to stop.
    """

    def __init__(self, said: str = "", exit_code: int = INTERRUPTED, *, of_all: bool = False):
        super().__init__(said)
        self.exit_code, self.of_all = exit_code, of_all


class StopRequest:
    """A `with` block in which SIGINT and SIGTERM end a run without losing a step.

    Until `begin` there is nothing to lose: a thread ends the process, whatever the main thread is
    in the middle of. After it they only set `name`; a second signal that is SIGINT ends at once
    too, and a second SIGTERM changes nothing, since who sends it kills when its patience is over.

    Several processes have to stop at the same point: from `begin` on JAX takes SIGTERM, passes it
    on to the others and finds a point that none has reached, which `agree` asks for.

    Args:
      checkpoints: their directory; the newest is named where the process ends at once.
      at_once: called with the exit code to end the process at once.
    """

    def __init__(
        self, checkpoints: str | None = None, *, at_once: Callable[[int], None] = os._exit
    ):
        self.name: str | None = None
        self._checkpoints, self._end = checkpoints, at_once
        self._begun, self._signals, self._points = False, 0, 0
        self._doing: Callable[[], str] = lambda: "starting"
        self._step: Callable[[], int] = lambda: 0
        self._leave: Callable[[str], None] = lambda said: None
        self._service: Service | None = None
        self._asked, self._noticed = signal.SIGTERM.name, 0.0
        self._previous = {}
        self._listening, self._signalled = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)

    def __enter__(self) -> "StopRequest":
        self._signalled.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._service is not None:
            self._service.shutdown()
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._signalled.close()
        self._thread.join()
        self._listening.close()

    @property
    def exit_code(self) -> int:
        """What the process ends with: SIGTERM is followed by a start elsewhere, Ctrl-C is not."""
        return RESTART if self.name == signal.SIGTERM.name else INTERRUPTED

    @property
    def seconds(self) -> float:
        """Since this process knows that it has to stop."""
        return time.monotonic() - self._noticed

    def until_begin(
        self,
        *,
        doing: Callable[[], str],
        leave: Callable[[str], None],
        step: Callable[[], int] = lambda: 0,
    ) -> None:
        """Gives what is said when the process ends at once, and who else is told it."""
        self._doing, self._leave, self._step = doing, leave, step

    def begin(self) -> None:
        """From now on there is something to save."""
        if jax.process_count() > 1:
            self._service = _preemption_service()
        self._begun = True

    def agree(self) -> None:
        """Sets `name` where all processes stop, once one was asked to; called by all as often."""
        if self._service is None:
            return
        self._points += 1
        if self._service.reached_sync_point(self._points):
            self._set(self._asked)

    def check(self) -> None:
        """As `agree`, in the middle of something that a stop need not wait for.

        Raises:
          Interrupted: `name` is set.
        """
        self.agree()
        if self.name:
            raise Interrupted(exit_code=self.exit_code, of_all=True)

    def _set(self, name: str) -> None:
        self.name, self._noticed = name, time.monotonic()

    def _listen(self) -> None:
        while number := self._listening.recv(1):
            if number[0] not in STOP_SIGNALS:
                continue
            self._signals += self._begun
            if not self._begun or (self._signals > 1 and number[0] == signal.SIGINT):
                self._at_once(signal.Signals(number[0]).name)

    def _at_once(self, name: str) -> None:
        said = f"{name}{' again' if self._begun else ''} while {self._doing()}"
        _say(f"{said}: ended at once; {self._kept()}")
        telling = threading.Thread(target=self._leave, args=(said,), daemon=True)
        telling.start()
        telling.join(_LEAVE_SECONDS)
        self._set(name)
        self._end(self.exit_code)

    def _kept(self) -> str:
        """What of the run is on disk, and what is not."""
        newest, step = newest_step(self._checkpoints) if self._checkpoints else None, self._step()
        if not self._begun:
            return f"checkpoint {newest} is as it was" if newest else "there was nothing to save"
        first = (newest or 0) + 1
        kept = f"the newest checkpoint is of step {newest}" if newest else "there is no checkpoint"
        if first > step:
            return kept
        return f"{kept}, and {_numbered(first, step)} lost"

    def _note(self, number: int, _: FrameType | None) -> None:
        if not self._begun:
            return  # the thread's
        name = signal.Signals(number).name
        if self._service is not None:
            if number == signal.SIGINT:
                self._asked = name
            os.kill(os.getpid(), signal.SIGTERM)  # which JAX takes now
        elif self.name is None:
            self._set(name)
            _say(f"{name}: stopping after this step, with a checkpoint; Ctrl-C ends at once")
        elif number == signal.SIGTERM:
            _say(f"{name}: stopping already")


def _preemption_service() -> Service:
    """Lets JAX take SIGTERM, which until here ended the process."""
    # No public name for it after jax.distributed.initialize, where it would swallow the signal.
    from jax._src import distributed

    state: Any = distributed.global_state
    jax.config.update("jax_enable_preemption_service", True)
    state.initialize_preemption_sync_manager()
    # Out of orbax's sight, which would ask too, with the number of the step that was saved: the
    # point would be found among its numbers and never be reached by ours.
    service, state.preemption_sync_manager = state.preemption_sync_manager, None
    return service


def _numbered(first: int, last: int) -> str:
    return f"step {last} is" if first == last else f"steps {first}-{last} are"


def _say(text: str) -> None:
    # Not through logging, whose locks the interrupted code may hold.
    os.write(sys.stderr.fileno(), f"\ngshard-train: {text}\n".encode())
