"""Held-out sets drawn from text that has none.

A pair is drawn for the hash of its English: the lowest hashes are, odd ones for the test set and
even ones for validation. So the sets do not depend on the order of the text, and languages that
share English get the same sentences where they have them.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from gshard_m4.preparing.settings import Settings

DRAWN_SPLITS = ("validation", "test")


class Keyed(NamedTuple):
    """A cleaned pair with the keys of the pair and of its two sides.

    `order` grows in the order in which a language's text is read.
    """

    pair: int
    source_key: int
    english_key: int
    source: str
    english: str
    origin: str
    order: int


def drawn_split(english_key: int) -> str:
    """The held-out set that a pair may be drawn for."""
    return DRAWN_SPLITS[english_key & 1]


def may_be_drawn(row: Keyed, settings: Settings) -> bool:
    """Whether a pair is a sentence long enough to be held out."""
    return len(row.english.split()) >= settings.min_words


def most(settings: Settings) -> dict[str, int]:
    """How many pairs of each set are drawn at most."""
    return {"validation": settings.validation_size, "test": settings.test_size}


def sizes(settings: Settings, rows: int) -> dict[str, int]:
    """How many pairs of each set are drawn from a number of cleaned pairs."""
    shares = {"validation": settings.validation_share, "test": settings.test_share}
    return {split: min(size, round(shares[split] * rows)) for split, size in most(settings).items()}


def apart(drawn: dict[str, list[Keyed]]) -> dict[str, list[Keyed]]:
    """Drawn sets without validation pairs whose source is in the test set with other English."""
    test = {row.source_key for row in drawn.get("test", ())}
    return {
        split: [row for row in rows if split == "test" or row.source_key not in test]
        for split, rows in drawn.items()
    }


class Lowest:
    """The pairs with the lowest English keys, one for each key, of all that were added."""

    def __init__(self, size: int):
        self._size = size
        self._rows: dict[int, Keyed] = {}
        self._highest: list[int] = []

    def add(self, row: Keyed) -> None:
        """Adds a pair; of pairs with one English the one with the lowest key stays, the first."""
        key = row.english_key
        earlier = self._rows.get(key)
        if earlier is not None:
            if (row.pair, row.order) < (earlier.pair, earlier.order):
                self._rows[key] = row
        elif len(self._rows) < self._size:
            heapq.heappush(self._highest, -key)
            self._rows[key] = row
        elif self._size and key < -self._highest[0]:
            del self._rows[-heapq.heapreplace(self._highest, -key)]
            self._rows[key] = row

    def add_all(self, rows: Iterable[Keyed]) -> None:
        """Adds pairs."""
        for row in rows:
            self.add(row)

    def rows(self, size: int) -> list[Keyed]:
        """The `size` lowest, in order."""
        return [self._rows[key] for key in sorted(self._rows)[:size]]
