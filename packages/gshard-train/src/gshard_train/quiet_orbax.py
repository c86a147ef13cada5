"""Silence for the tracebacks of orbax's threads where the disk is at fault, since that is raised.

Where one array of many cannot be written, orbax closes its event loop, and a traceback comes up for
each of the others, some when the process ends. Of errors that are none of a disk all is shown.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

from absl import logging as absl_logging

from gshard_train import disk_faults

_CLOSED, _NEVER_RETRIEVED = "Event loop is closed", "exception was never retrieved"
_LOGGERS = ("absl", "asyncio")
_before: list[Callable[[Any], object]] = []  # Python's hook, while there is silence


def begin() -> None:
    """From here on they are not shown."""
    if _before:
        return
    _before.append(sys.unraisablehook)
    sys.unraisablehook = _show
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_to_be_seen)


def end() -> None:
    """From here on they are shown again."""
    if not _before:
        return
    for name in _LOGGERS:
        logging.getLogger(name).removeFilter(_is_to_be_seen)
    hook = _before.pop()
    if sys.unraisablehook is _show:
        sys.unraisablehook = hook


def _show(raised: Any) -> None:
    code = getattr(raised.object, "cr_code", None)
    of_orbax = code is not None and "orbax" in code.co_filename
    if not (of_orbax and _is_of_disk(raised.exc_value)):
        (_before[0] if _before else sys.__unraisablehook__)(raised)


def _is_to_be_seen(record: logging.LogRecord) -> bool:
    if absl_logging.level_debug() or not record.exc_info:
        return True
    of_orbax = "orbax" in record.pathname or _NEVER_RETRIEVED in record.getMessage()
    return not (of_orbax and _is_of_disk(record.exc_info[1]))


def _is_of_disk(error: BaseException | None) -> bool:
    return disk_faults.error_number(error) is not None or _CLOSED in str(error)
