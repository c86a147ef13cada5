"""What training text must not repeat: the sentences of all validation and test sets."""

import dataclasses
import operator
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from gshard_m4.preparing.drawing import Keyed

NOWHERE = np.empty(0, np.uint64)
"""No English at all."""
HeldRows = dict[str, list[Keyed]]
"""Held-out rows by split."""


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The keys that one language's training text must not have.

    Attributes:
        sources: of the language's own held-out sets.
        english: the same.
        everywhere: English keys of the held-out sets of all languages, sorted.
        drawn: the pairs that were drawn from the training text itself.
    """

    sources: frozenset[int]
    english: frozenset[int]
    everywhere: np.ndarray
    drawn: frozenset[tuple[str, str]]

    @classmethod
    def of(
        cls,
        given: HeldRows,
        drawn: HeldRows,
        kept_out: tuple[frozenset[int], frozenset[int]],
        everywhere: np.ndarray,
    ) -> "HeldOut":
        """That of one language's held-out rows, and of keys of further sources and English."""
        rows = [row for sets in (given, drawn) for rows in sets.values() for row in rows]
        return cls(
            frozenset(row.source_key for row in rows) | kept_out[0],
            frozenset(row.english_key for row in rows) | kept_out[1],
            everywhere,
            frozenset((row.source, row.english) for rows in drawn.values() for row in rows),
        )


def union(keys: Iterable[Sequence[int] | np.ndarray]) -> np.ndarray:
    """All keys, sorted, each once."""
    arrays = [np.asarray(array, np.uint64) for array in keys]
    return np.unique(np.concatenate([*arrays, np.empty(0, np.uint64)]))


def filtered(rows: Sequence[Keyed], held: HeldOut) -> tuple[list[Keyed], Counter[str], int]:
    """Training rows without duplicates and held-out sentences, by pair key.

    Args:
        rows: all rows of some pair keys; of several with one key the first in order stays.
        held: what they must not have.

    Returns:
        the rows, how many were removed for each reason, and how many are in a drawn set.
    """
    rows = sorted(rows, key=_ORDER)
    elsewhere = _members([row.english_key for row in rows], held.everywhere)
    kept: dict[int, Keyed] = {}
    texts: set[tuple[str, str]] = set()
    removed: Counter[str] = Counter()
    drawn = 0
    for row, is_elsewhere in zip(rows, elsewhere, strict=True):
        text = (row.source, row.english)
        reason = _reason(row, held, is_elsewhere)
        if text in texts:
            removed["duplicate"] += 1
        elif text in held.drawn:
            drawn += 1
        elif reason:
            removed[reason] += 1
        elif row.pair in kept:
            removed["near duplicate"] += 1
        else:
            kept[row.pair] = row
        texts.add(text)
    return [kept[key] for key in sorted(kept)], removed, drawn


_ORDER = operator.attrgetter("order")


def _reason(row: Keyed, held: HeldOut, is_elsewhere: bool) -> str | None:
    if row.source_key in held.sources:
        return "held out source"
    if row.english_key in held.english:
        return "held out English"
    return "held out English elsewhere" if is_elsewhere else None


def _members(keys: Sequence[int], among: np.ndarray) -> list[bool]:
    """For each key whether it is in a sorted array."""
    if not len(among):
        return [False] * len(keys)
    wanted = np.array(keys, np.uint64)
    places = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
    return (among[places] == wanted).tolist()
