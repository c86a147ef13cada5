"""The first pass over one language: read, clean, put by key, draw held-out candidates."""

import dataclasses
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gshard_m4.preparing import cleaning, drawing
from gshard_m4.preparing.drawing import DRAWN_SPLITS, Keyed
from gshard_m4.preparing.keys import keys
from gshard_m4.preparing.processes import count_rows
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.spool import Spool
from gshard_m4.sources.parts import Part
from gshard_m4.sources.readers import Row, rows

_COUNTS = "counts.json"
_HELD = "held.pickle"
_ENGLISH = "english.npy"
_TICK = 5_000


@dataclasses.dataclass(frozen=True)
class CleanTask:
    """One language to clean: its parts, where to, and what identifies the input."""

    code: str
    parts: tuple[Part, ...]
    folder: Path
    settings: Settings
    inputs: str
    shards: int


@dataclasses.dataclass(frozen=True)
class Cleaned:
    """What the first pass found: its counts, and the number of shards of the training text."""

    code: str
    inputs: str
    read: int
    removed: dict[str, int]
    repaired: dict[str, int]
    held: dict[str, int]
    drawn: dict[str, int]
    cleaned: int
    shards: int


HeldRows = dict[str, list[Keyed]]


def clean_language(task: CleanTask) -> Cleaned:
    """Cleans a language into its folder, which appears when all of it is there."""
    partial = task.folder.with_name(f"{task.folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    counts = _Counts()
    given: HeldRows = {}
    candidates = _Candidates(task)
    with Spool(partial, task.shards) as spool:
        for part in _held_out_first(task.parts):
            cleaned = cleaned_rows(part, task.settings, counts)
            if part.split != "train":
                given.setdefault(part.split, []).extend(cleaned)
                candidates.leave_out(given[part.split])
                continue
            for row in cleaned:
                spool.add(row)
                candidates.add(row)
                counts.cleaned += 1
    drawn = candidates.chosen(counts.cleaned)
    held = {split: [*given.get(split, []), *drawn.get(split, [])] for split in DRAWN_SPLITS}
    found = Cleaned(
        task.code, task.inputs, counts.read, dict(counts.removed), dict(counts.repaired),
        {split: len(held[split]) for split in DRAWN_SPLITS},
        {split: len(drawn[split]) for split in drawn},
        counts.cleaned, task.shards if any(part.split == "train" for part in task.parts) else 0,
    )  # fmt: skip
    (partial / _HELD).write_bytes(pickle.dumps((given, drawn)))
    np.save(partial / _ENGLISH, np.array(_english(held), np.uint64))
    (partial / _COUNTS).write_text(json.dumps(dataclasses.asdict(found)))
    shutil.rmtree(task.folder, ignore_errors=True)
    partial.replace(task.folder)
    return found


def _held_out_first(parts: Iterable[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: part.split == "train")


def read_cleaned(folder: Path) -> Cleaned | None:
    """What an earlier run found, None where it did not finish the language."""
    try:
        return Cleaned(**json.loads((folder / _COUNTS).read_text()))
    except FileNotFoundError:
        return None


def read_held(folder: Path) -> tuple[HeldRows, HeldRows]:
    """The held-out rows that the source gave, and those that were drawn."""
    return pickle.loads((folder / _HELD).read_bytes())


def read_english(folder: Path) -> np.ndarray:
    """The English keys of all held-out rows."""
    return np.load(folder / _ENGLISH)


def cleaned_rows(part: Part, settings: Settings, counts: "_Counts") -> Iterator[Keyed]:
    """The rows of a part that are kept; counts every row, and the reason of each that is not."""
    whole = part.split != "train" and not settings.clean_held_out
    number = 0
    for number, row in enumerate(rows(part), start=1):
        cleaned = clean_row(row, part.script, settings, whole=whole)
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


def clean_row(row: Row, script: str, settings: Settings, *, whole: bool) -> CleanedRow:
    """Cleans one row; `whole` keeps it as published, but for what would break a line."""
    if whole:
        source, english = one_line(row[0]), one_line(row[1])
        reason = None if source and english else "empty"
        repairs: set[str] = set()
    else:
        repairs = set()
        source = cleaning.repaired(row[0], repairs)
        english = cleaning.repaired(row[1], repairs)
        reason = cleaning.fault(source, english, script, settings.cleaning)
    if reason:
        return CleanedRow(reason)
    return CleanedRow(
        Keyed(*keys(source, english), source, english, one_line(row[2])), frozenset(repairs)
    )


def one_line(text: str) -> str:
    """The text with tabs and line ends as spaces, trimmed; all else as it was."""
    return text.replace("\t", " ").replace("\r", " ").replace("\n", " ").strip()


class _Counts:
    """Counts of one language."""

    def __init__(self) -> None:
        self.read = self.cleaned = 0
        self.removed: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()

    def add(self, row: CleanedRow) -> None:
        self.read += 1
        if isinstance(row.outcome, str):
            self.removed[row.outcome] += 1
        else:
            self.repaired.update(row.repairs)


class _Candidates:
    """Pairs to draw from, for the held-out sets that a language's parts lack."""

    def __init__(self, task: CleanTask):
        self._settings = task.settings
        given = {part.split for part in task.parts}
        most = drawing.sizes(task.settings, 10**12)
        lacking = [split for split in DRAWN_SPLITS if split not in given]
        self._lowest = {split: drawing.Lowest(most[split]) for split in lacking}
        self._given: set[int] = set()

    def leave_out(self, rows: Iterable[Keyed]) -> None:
        """What one held-out set has is not drawn for another."""
        self._given.update(key for row in rows for key in (row.source_key, row.english_key))

    def add(self, row: Keyed) -> None:
        lowest = self._lowest.get(drawing.drawn_split(row.english_key))
        if lowest is None or not drawing.may_be_drawn(row, self._settings):
            return
        if row.source_key not in self._given and row.english_key not in self._given:
            lowest.add(row)

    def chosen(self, cleaned: int) -> HeldRows:
        sizes = drawing.sizes(self._settings, cleaned)
        return {split: lowest.rows(sizes[split]) for split, lowest in self._lowest.items()}


def _english(held: HeldRows) -> Iterable[int]:
    return [row.english_key for rows_ in held.values() for row in rows_]
