"""Cleaning the rows of a part, with every row counted."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

from gshard_m4.preparing import cleaning
from gshard_m4.preparing.drawing import DRAWN_SPLITS, Keyed
from gshard_m4.preparing.keys import keys, keys_as_cleaned
from gshard_m4.preparing.processes import count_rows
from gshard_m4.preparing.settings import Settings
from gshard_m4.sources.parts import Part
from gshard_m4.sources.readers import Row, rows

_TICK = 5_000
_ORDER_BITS = 40  # of a row's number within its part


def held_out_first(parts: Iterable[Part]) -> list[tuple[int, Part]]:
    """The parts in the order they are read, with their numbers."""
    return list(enumerate(sorted(parts, key=lambda part: part.split == "train")))


def lacking(parts: Iterable[Part]) -> list[str]:
    """The held-out sets that a language's parts do not bring."""
    given = {part.split for part in parts}
    return [split for split in DRAWN_SPLITS if split not in given]


def cleaned_rows(
    part: Part, part_number: int, settings: Settings, counts: "Counts"
) -> Iterator[Keyed]:
    """The rows of a part that are kept; counts every row, and the reason of each that is not."""
    whole = part.split != "train" and not settings.clean_held_out
    number = 0
    for number, row in enumerate(rows(part), start=1):
        order = part_number << _ORDER_BITS | number
        cleaned = clean_row(row, order, part.script, settings, whole=whole)
        counts.add(cleaned)
        if isinstance(cleaned.outcome, Keyed):
            yield cleaned.outcome
        if number % _TICK == 0:
            count_rows(_TICK)
    count_rows(number % _TICK)


@dataclasses.dataclass(frozen=True)
class CleanedRow:
    """A kept row, or the reason why it is removed; and what was repaired."""

    outcome: Keyed | str
    repairs: frozenset[str] = frozenset()


def clean_row(row: Row, order: int, script: str, settings: Settings, *, whole: bool) -> CleanedRow:
    """Cleans one row; `whole` keeps it as published, but for what would break a line."""
    repairs: set[str] = set()
    if not cleaning.is_text(*row):
        return CleanedRow("control characters")
    if whole:
        source, english = one_line(row[0]), one_line(row[1])
        reason = None if source and english else "empty"
    else:
        source = cleaning.repaired(row[0], repairs)
        english = cleaning.repaired(row[1], repairs)
        reason = cleaning.fault(source, english, script, settings.cleaning)
    if reason:
        return CleanedRow(reason)
    key = keys_as_cleaned if whole else keys
    return CleanedRow(
        Keyed(*key(source, english), source, english, one_line(row[2]), order),
        frozenset(repairs),
    )


def one_line(text: str) -> str:
    """The text with tabs and line ends as spaces, trimmed; all else as it was."""
    return text.replace("\t", " ").replace("\r", " ").replace("\n", " ").strip()


class Counts:
    """Counts of one language."""

    def __init__(self) -> None:
        self.read = self.cleaned = 0
        self.removed: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()

    def add(self, row: CleanedRow) -> None:
        """Counts a row that was read."""
        self.read += 1
        if isinstance(row.outcome, str):
            self.removed[row.outcome] += 1
        else:
            self.repaired.update(row.repairs)
