"""A disk that is full, read-only or gone: one message that says what to do, and an exit code."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from gshard_train.errors import RESTART, USER_ERROR, UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ENOTDIR}
_IN_THE_WAY = {errno.EISDIR, errno.EEXIST}
# Python's and tensorstore's way of telling the number.
_NUMBER = re.compile(r"\[Errno (\d+)\]|os_error_code='(\d+)'")
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
        if (number := error_number(error)) is None:
            raise
        path = found[-1] if (found := _PATH.findall(reason(error))) else os.fspath(where)
        said = f"{what} could not be written: {os.strerror(number)} ({path})"
        raise DiskError(said, _advice(number), exit_code=_exit_code(number)) from error


def reason(error: BaseException) -> str:
    """What went wrong, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".split("\n")[0]


def check_mount(what: str, where: str | os.PathLike[str]) -> None:
    """Finds before any work what `writing` would find later, on this machine and not on each.

    Raises:
      DiskError: what `where` lies on, or will, is read-only or cannot be looked at.
    """
    with writing(what, where):
        if is_read_only(there := nearest(where)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(there))


def is_read_only(path: Path) -> bool:
    """Whether a path lies on a mount that takes nothing, whatever the permissions are."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def nearest(path: str | os.PathLike[str]) -> Path:
    """A path itself where it is there, or else the nearest above it."""
    path = Path(path).absolute()
    return next(each for each in (path, *path.parents) if each.exists())


def error_number(error: BaseException | None) -> int | None:
    """The operating system's number of an error, or of one that it came from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return error.errno
        if found := _NUMBER.search(str(error)):
            return int(found[1] or found[2])
        error = error.__cause__
    return None


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
