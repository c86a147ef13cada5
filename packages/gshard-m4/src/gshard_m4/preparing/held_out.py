"""What training text must not repeat: the sentences of all validation and test sets."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gshard_m4.preparing.drawing import Keyed

_BATCH = 10_000
NOWHERE = np.empty(0, np.uint64)
"""No English at all."""
HeldRows = dict[str, list[Keyed]]
"""Held-out rows by split."""


def set_counts(rows: Sequence[Keyed]) -> dict[str, Any]:
    """What a held-out set of the input is made of, which stays as published.

    Returns:
        `origins`: origin -> rows; `repeated`: rows whose pair stands there earlier, but for case,
        spaces and punctuation; `repeated_english`: rows whose English does.
    """
    return {
        "origins": dict(sorted(Counter(row.origin for row in rows).items())),
        "repeated": len(rows) - len({row.pair for row in rows}),
        "repeated_english": len(rows) - len({row.english_key for row in rows}),
    }


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


@dataclasses.dataclass
class Filtered:
    """Training rows that stay, by pair key; how many others were removed, were drawn, were read."""

    kept: dict[int, Keyed] = dataclasses.field(default_factory=dict)
    removed: Counter[str] = dataclasses.field(default_factory=Counter)
    drawn: int = 0
    read: int = 0

    def rows(self) -> list[Keyed]:
        """The rows that stay, in the order of their keys."""
        return [self.kept[key] for key in sorted(self.kept)]


def filtered(rows: Iterable[Keyed], held: HeldOut) -> Filtered:
    """Training rows without duplicates and held-out sentences.

    Args:
        rows: all rows of some pair keys in the order they were read: of several with one key the
            first stays. Only rows that differ are held in memory.
        held: what they must not have.
    """
    found = Filtered()
    texts: set[tuple[str, str]] = set()
    rows = iter(rows)
    while batch := list(itertools.islice(rows, _BATCH)):
        found.read += len(batch)
        elsewhere = _members([row.english_key for row in batch], held.everywhere)
        for row, is_elsewhere in zip(batch, elsewhere, strict=True):
            text = (row.source, row.english)
            if text in texts:
                found.removed["duplicate"] += 1
                continue
            texts.add(text)
            if text in held.drawn:
                found.drawn += 1
            elif reason := _reason(row, held, is_elsewhere):
                found.removed[reason] += 1
            elif row.pair in found.kept:
                found.removed["near duplicate"] += 1
            else:
                found.kept[row.pair] = row
    return found


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
