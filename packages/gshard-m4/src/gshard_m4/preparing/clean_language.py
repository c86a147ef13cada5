"""The first pass over one language: read, clean, put by key, draw held-out candidates."""

import dataclasses
import json
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gshard_m4.preparing import drawing
from gshard_m4.preparing.clean_rows import Counts, cleaned_rows, held_out_first, lacking
from gshard_m4.preparing.drawing import Keyed
from gshard_m4.preparing.held_out import HeldRows, set_counts
from gshard_m4.preparing.keep_out import KeptOut
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.spool import Spool
from gshard_m4.sources.parts import Part

_COUNTS = "counts.json"
_HELD = "held.pickle"
_ENGLISH = "english.npy"


@dataclasses.dataclass(frozen=True)
class CleanTask:
    """One language to clean: its parts, where to, what identifies the input, what is kept out."""

    code: str
    parts: tuple[Part, ...]
    folder: Path
    settings: Settings
    inputs: str
    shards: int
    kept_out: KeptOut


@dataclasses.dataclass(frozen=True)
class Cleaned:
    """What the first pass found: its counts, and the number of shards of the training text.

    `held` is of the held-out sets that the input has: split -> `held_out.set_counts`.
    """

    code: str
    inputs: str
    read: int
    removed: dict[str, int]
    repaired: dict[str, int]
    drawn: dict[str, int]
    cleaned: int
    shards: int
    held: dict[str, dict[str, Any]]


def clean_language(task: CleanTask) -> Cleaned:
    """Cleans a language into its folder, which appears when all of it is there."""
    partial = task.folder.with_name(f"{task.folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    counts = Counts()
    given: HeldRows = {}
    candidates = _Candidates(task)
    with Spool(partial, max(task.shards, 1)) as spool:
        for number, part in held_out_first(task.parts):
            cleaned = cleaned_rows(part, number, task.settings, counts)
            if part.split != "train":
                given.setdefault(part.split, []).extend(cleaned)
                candidates.leave_out(given[part.split])
                continue
            for row in cleaned:
                spool.add(row)
                candidates.add(row)
                counts.cleaned += 1
    drawn = candidates.chosen(counts.cleaned)
    found = cleaned_of(task.code, task.inputs, counts, given, drawn, task.shards)
    (partial / _HELD).write_bytes(pickle.dumps((given, drawn)))
    np.save(partial / _ENGLISH, np.array(_english(given, drawn), np.uint64))
    (partial / _COUNTS).write_text(json.dumps(dataclasses.asdict(found)))
    shutil.rmtree(task.folder, ignore_errors=True)
    partial.replace(task.folder)
    return found


def cleaned_of(
    code: str, inputs: str, counts: Counts, given: HeldRows, drawn: HeldRows, shards: int
) -> Cleaned:
    """What the first pass found."""
    return Cleaned(
        code,
        inputs,
        counts.read,
        dict(sorted(counts.removed.items())),
        dict(sorted(counts.repaired.items())),
        {split: len(rows) for split, rows in sorted(drawn.items()) if rows},
        counts.cleaned,
        shards,
        {split: set_counts(rows) for split, rows in sorted(given.items()) if rows},
    )


def read_cleaned(folder: Path) -> Cleaned | None:
    """What an earlier run found, None where it did not finish the language."""
    try:
        return Cleaned(**json.loads((folder / _COUNTS).read_text()))
    except (FileNotFoundError, TypeError):  # not there, or of another version
        return None


def read_held(folder: Path) -> tuple[HeldRows, HeldRows]:
    """The held-out rows that the source gave, and those that were drawn."""
    return pickle.loads((folder / _HELD).read_bytes())


def read_english(folder: Path) -> np.ndarray:
    """The English keys of all held-out rows."""
    return np.load(folder / _ENGLISH)


class _Candidates:
    """Pairs to draw from, for the held-out sets that a language's parts lack."""

    def __init__(self, task: CleanTask):
        self._settings, self._code, self._kept_out = task.settings, task.code, task.kept_out
        most = drawing.most(task.settings)
        self._lowest = {split: drawing.Lowest(most[split]) for split in lacking(task.parts)}
        self._given: set[int] = set()

    def leave_out(self, rows: Iterable[Keyed]) -> None:
        """What one held-out set has is not drawn for another."""
        self._given.update(key for row in rows for key in (row.source_key, row.english_key))

    def add(self, row: Keyed) -> None:
        lowest = self._lowest.get(drawing.drawn_split(row.english_key))
        if lowest is None or not drawing.may_be_drawn(row, self._settings):
            return
        if row.source_key in self._given or row.english_key in self._given:
            return
        across = self._settings.across_languages
        if not self._kept_out.has(self._code, row, across_languages=across):
            lowest.add(row)

    def chosen(self, cleaned: int) -> HeldRows:
        sizes = drawing.sizes(self._settings, cleaned)
        drawn = {split: lowest.rows(sizes[split]) for split, lowest in self._lowest.items()}
        return drawing.apart(drawn)


def _english(*held: HeldRows) -> list[int]:
    return [row.english_key for sets in held for rows in sets.values() for row in rows]
