"""Which surprises a change brought, and which it took away."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

# Lines and files move with what is written around them, sizes with the mesh and the batch.
_LINE = re.compile(r"[^\s(]+:\d+")
_SIZE = re.compile(r"^(\S+) of ([\d.]+ \w+)")


class SurpriseChanges(NamedTuple):
    """The surprises of two reports, one beside the other.

    Attributes:
      new: Those that were not there.
      gone: Those that are no longer there.
      resized: Those that move other bytes, with what they were.
    """

    new: list[str]
    gone: list[str]
    resized: list[str]


def surprise_changes(before: Sequence[str], after: Sequence[str]) -> SurpriseChanges:
    """What differs between the surprises of two reports, but for lines that moved."""
    gone, new, _ = _paired(before, after, lambda one: _LINE.sub("", one))
    gone, new, resized = _paired(gone, new, lambda one: _SIZE.sub(r"\1", _LINE.sub("", one)))
    return SurpriseChanges(new, gone, [f"{now} (was {_size(was)})" for was, now in resized])


def _paired(
    before: Sequence[str], after: Sequence[str], key: Callable[[str], str]
) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """What is left of either list, and the pairs of the same key."""
    waiting: dict[str, list[str]] = {}
    for one in before:
        waiting.setdefault(key(one), []).append(one)
    left, pairs = [], []
    for one in after:
        if same := waiting.get(key(one)):
            pairs.append((same.pop(0), one))
        else:
            left.append(one)
    return [one for some in waiting.values() for one in some], left, pairs


def _size(sentence: str) -> str:
    found = _SIZE.match(sentence)
    return found[2] if found else "otherwise"
