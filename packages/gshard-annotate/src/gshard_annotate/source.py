"""Which line of the user's program asked: for messages, and for what JAX notes in its programs."""

import pathlib
import sys
from typing import NamedTuple

import jax.extend.source_info_util

_PACKAGE = str(pathlib.Path(__file__).parent)

# An operation that an annotation makes is noted under the line that annotates, not under ours.
jax.extend.source_info_util.register_exclusion(_PACKAGE)


class Line(NamedTuple):
    """A line of a program, shown as `model.py:20`."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{pathlib.Path(self.file).name}:{self.number}"


def calling_line() -> Line:
    """The innermost line on the stack that does not belong to this package."""
    frame = sys._getframe(_depth())
    return Line(frame.f_code.co_filename, frame.f_lineno)


def stack_level() -> int:
    """What `warnings.warn` needs, when called by our caller, to name that line."""
    return _depth()


def _depth() -> int:
    # 2: above this function and the one that asks for it.
    depth, frame = 1, sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    return depth
