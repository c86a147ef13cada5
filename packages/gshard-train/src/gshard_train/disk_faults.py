"""A disk that is full, read-only or gone: one message that says what to do, and an exit code."""

import contextlib
import errno
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from absl import logging as absl_logging

from gshard_train import agreement
from gshard_train.checkpointing.checkpoint import DIRECTORY, Checkpointer
from gshard_train.errors import RESTART, USER_ERROR, UserError
from gshard_train.monitoring.guard import NonfiniteError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ENOTDIR}
_IN_THE_WAY = {errno.EISDIR, errno.EEXIST}
# Python's and tensorstore's way of telling the number.
_NUMBER = re.compile(r"\[Errno (\d+)\]|os_error_code='(\d+)'")
_CLOSED, _NEVER_RETRIEVED = "Event loop is closed", "exception was never retrieved"
_PATH = re.compile(r"['\"](/[^'\"]+)['\"]")


class DiskError(UserError):
    """Something could not be written.

    Attributes:
      exit_code: "start again" only where that can help by itself, as on a machine with a sound
        mount; a full disk would be full again, and a run would begin anew where its directory is
        gone.
    """

    def __init__(self, *faults: str, exit_code: int = USER_ERROR):
        super().__init__(*faults)
        self.exit_code = exit_code


@contextlib.contextmanager
def writing(what: str, where: str | os.PathLike[str]) -> Iterator[None]:
    """A `with` block that writes `what` somewhere below `where`.

    Raises:
      DiskError: an error of the operating system comes up in it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (number := _number(error)) is None:
            raise
        path = found[-1] if (found := _PATH.findall(reason(error))) else os.fspath(where)
        said = f"{what} could not be written: {os.strerror(number)} ({path})"
        raise DiskError(said, _advice(number), exit_code=_exit_code(number)) from error


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".split("\n")[0]


@contextlib.contextmanager
def checkpointing(checkpointer: Checkpointer) -> Iterator[Checkpointer]:
    """A `with` block that closes the checkpointer; what that raises hides no earlier error."""
    directory = os.path.join(checkpointer.model_dir, DIRECTORY)
    try:
        yield checkpointer
    except BaseException:
        try:
            with writing("a checkpoint", directory):
                checkpointer.close()
        except DiskError as fault:
            logging.error(fault.faults[0])
        raise
    with writing("a checkpoint", directory):
        checkpointer.close()


@contextlib.contextmanager
def told(model_dir: str) -> Iterator[None]:
    """A `with` block around all that writes: what stops the run says which checkpoint there is."""
    with _quiet_orbax():
        yield from _told(model_dir)


def _told(model_dir: str) -> Iterator[None]:
    try:
        yield
    except DiskError as fault:
        fault.faults = (*fault.faults, _newest(model_dir))
        raise
    except NonfiniteError as error:
        error.faults = (*error.faults, f"{_newest(model_dir)} and comes to the same batch")
        raise


def vanished(model_dir: str) -> bool:
    """Whether the directory of checkpoints is gone; every process has to ask."""
    return agreement.decided(lambda: not os.path.isdir(os.path.join(model_dir, DIRECTORY)))


def of_vanished(model_dir: str, step: int) -> DiskError:
    """What is said when it was, and the newest state was saved in its place."""
    return DiskError(
        f"the directory {os.path.join(model_dir, DIRECTORY)} was gone, with all checkpoints, while "
        f"the run went on; the state of step {step} is saved where it was",
        "look whether a disk is no longer mounted there or someone removed it, and move that "
        "checkpoint to where the others are",
    )


def _newest(model_dir: str) -> str:
    path = Path(model_dir, DIRECTORY)
    steps: list[int] = []
    with contextlib.suppress(OSError):
        steps = ocp.utils.checkpoint_steps(path) if path.is_dir() else []
    if not steps:
        return f"there is no checkpoint in {path}: started again, the run begins anew"
    newest = f"the newest checkpoint in {path}, of step {max(steps)}, is whole"
    return f"{newest}: started again, the run goes on there"


def _advice(number: int) -> str:
    again = "and start the run again"
    if number in _FULL:
        return f"make room there {again}"
    if number in _GONE:
        return f"bring the directory back (is a disk no longer mounted?) {again}"
    if number in _IN_THE_WAY:
        return f"move away what is there {again}"
    return f"make it writable {again}, on another machine if this one's disk or mount is at fault"


def _exit_code(number: int) -> int:
    return USER_ERROR if number in _FULL | _GONE | _IN_THE_WAY else RESTART


def _number(error: BaseException | None) -> int | None:
    """The operating system's number of an error, or of one that it came from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        if found := _NUMBER.search(str(error)):
            return int(found[1] or found[2])
        error = error.__cause__
    return None


@contextlib.contextmanager
def _quiet_orbax() -> Iterator[None]:
    """Without the tracebacks of orbax's threads, since what they are of is raised too.

    Where one array of many cannot be written, orbax closes its event loop, and a traceback comes
    up for each of the others, some when the process ends: behind a `DiskError` it stays quiet.
    """
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    before = sys.unraisablehook

    def show(raised: Any) -> None:
        text = f"{raised.object!r} {raised.exc_value!r}"
        if _CLOSED not in text and "serialize" not in text:
            before(raised)

    for logger in loggers:
        logger.addFilter(_is_no_traceback_of_orbax)
    sys.unraisablehook = show
    try:
        yield
    except DiskError:
        raise
    except BaseException:
        _restore(loggers, before)
        raise
    _restore(loggers, before)


def _restore(loggers: list[logging.Logger], hook: Any) -> None:
    for logger in loggers:
        logger.removeFilter(_is_no_traceback_of_orbax)
    sys.unraisablehook = hook


def _is_no_traceback_of_orbax(record: logging.LogRecord) -> bool:
    if absl_logging.level_debug() or not record.exc_info:
        return True
    return "orbax" not in record.pathname and _NEVER_RETRIEVED not in record.getMessage()
