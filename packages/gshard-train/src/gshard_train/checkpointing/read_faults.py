"""What a read that fails tells: that a checkpoint is damaged, or that the disk cannot be read.

Only what lies there makes a checkpoint a damaged one: a wrong sum, a file that is missing, bytes
that cannot be decoded. An error of the disk, of its mount or of permissions says nothing of it.
"""

import errno
import os
import time
from collections.abc import Callable
from typing import TypeVar

from absl import logging

from gshard_train.disk_faults import error_number, reason
from gshard_train.errors import RESTART, USER_ERROR, UserError

T = TypeVar("T")
_OF_CONTENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM}
_PAUSES_SECONDS = (1.0, 3.0)  # before it is read again


class ReadError(UserError):
    """Something could not be read, which may be as it was written.

    Attributes:
      exit_code: "start again", on another machine perhaps, unless a user has to allow it first.
    """

    def __init__(self, fault: str, exit_code: int):
        super().__init__(fault)
        self.exit_code = exit_code


def retried(read: Callable[[], T], where: object) -> T:
    """What `read` gives; called again where the disk did not give it.

    Args:
      read: may raise anything.
      where: what it reads, for messages.

    Raises:
      ReadError: the disk does not give it in the end, or is not allowed to.
      Exception: what speaks of the content, as it was raised.
    """
    for pause in (*_PAUSES_SECONDS, None):
        try:
            return read()
        except UserError:
            raise
        except Exception as error:
            number = error_number(error)
            if number is None or number in _OF_CONTENT:
                raise
            if pause is None or number in _NOT_ALLOWED:
                raise _given_up(where, number) from error
            logging.warning("%s: %s; reading again in %g s.", where, reason(error), pause)
            time.sleep(pause)
    raise AssertionError  # the last try returns or raises


def found(error: Exception) -> str:
    """The damage that an error tells of; one that speaks of the machine instead is raised again."""
    if isinstance(error, MemoryError | UserError):
        raise error
    return reason(error)[:200]


def _given_up(where: object, number: int) -> ReadError:
    said = f"{where} could not be read: {os.strerror(number)}"
    if number in _NOT_ALLOWED:
        return ReadError(f"{said}; let this user read all below it", USER_ERROR)
    return ReadError(
        f"{said}; nothing was changed: look at the disk or its mount and start again, on another "
        "machine if this one's is at fault",
        RESTART,
    )
