"""The steps of the Beam pipeline; see `beam`.

parts -> read and clean -> training rows -> by shard -> duplicates and held-out go -> shards
             |                  |                          ^
             |                  +-> candidates -> drawn ---+
             +-> held-out rows of the source --------------+
"""

import dataclasses
import functools
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gshard_m4.input_error import InputError
from gshard_m4.prepared import shard_name
from gshard_m4.preparing import drawing
from gshard_m4.preparing.clean_rows import Counts, cleaned_rows, held_out_first, lacking
from gshard_m4.preparing.drawing import Keyed, Lowest
from gshard_m4.preparing.finish_language import write_held, write_shard
from gshard_m4.preparing.held_out import NOWHERE, HeldOut, HeldRows, filtered, set_counts, union
from gshard_m4.preparing.keep_out import KeptOut
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.spool import partition
from gshard_m4.sources.parts import Part
from gshard_m4.writing import write_all

try:
    import apache_beam as beam  # pyright: ignore[reportMissingImports] -- an extra brings it
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "gshard_m4.preparing.beam_steps needs Apache Beam: pip install 'gshard-m4[beam]'",
        name=error.name,
    ) from error

PlainRow = tuple[Any, ...]
"""A `Keyed` between steps: Beam's coders are fast for plain tuples, slow for others."""

_ORDER = operator.attrgetter("order")


@dataclasses.dataclass(frozen=True)
class Steps:
    """What every step knows.

    Attributes:
        settings: of the run.
        output: the prepared directory.
        notes: where steps note what they did, a folder for each language.
        shards: code -> shards of the training text.
        kept_out: further held-out sets.
    """

    settings: Settings
    output: Path
    notes: Path
    shards: Mapping[str, int]
    kept_out: KeptOut

    def add_to(self, pipeline: Any, languages: Mapping[str, Sequence[Part]]) -> None:
        """Adds all steps to a pipeline."""
        parts = [
            (code, number, part)
            for code, all_parts in languages.items()
            for number, part in held_out_first(all_parts)
        ]
        lack = {code: lacking(all_parts) for code, all_parts in languages.items()}
        read = (
            pipeline
            | "parts" >> beam.Create(parts)
            | "spread" >> beam.Reshuffle()
            | "clean" >> beam.ParDo(_Clean(self)).with_outputs("held", "cleaned", main="train")
        )
        given = self._by_language(pipeline, "given", languages, read.held)
        given_keys = beam.pvalue.AsDict(given | "given keys" >> beam.MapTuple(_keys))
        cleaned = beam.pvalue.AsDict(read.cleaned | "rows" >> beam.CombinePerKey(sum))
        drawn = (
            read.train
            | "candidates" >> beam.FlatMap(self._candidates, lack, given_keys)
            | "lowest" >> beam.CombinePerKey(_LowestRows(self.settings))
            | "sizes" >> beam.FlatMap(self._drawn, cleaned)
        )
        drawn = self._by_language(pipeline, "drawn", languages, drawn)
        both = {"given": given, "drawn": drawn} | "held out" >> beam.CoGroupByKey()
        both = both | "one each" >> beam.MapTuple(_given_and_drawn)
        _ = both | "write held out" >> beam.MapTuple(self._write_held)
        everywhere = (
            both
            | "english" >> beam.MapTuple(_english)
            | "all english" >> beam.CombineGlobally(_Union(self.kept_out.english))
        )
        by_shard = read.train | "by shard" >> beam.MapTuple(self._by_shard)
        grouped = by_shard | "shards" >> beam.GroupByKey()
        _ = grouped | "write" >> beam.Map(
            self._write_shard, beam.pvalue.AsDict(both), beam.pvalue.AsSingleton(everywhere)
        )

    def note(self, code: str, name: str, what: dict[str, Any]) -> None:
        """Notes what a step did."""
        write_all(self.notes / code, {f"{name}.json": json.dumps(what)})

    def _by_language(self, pipeline: Any, name: str, languages: Iterable[str], rows: Any) -> Any:
        """(code, (split, row)) to (code, {split: rows in order}), for every language."""
        empty = pipeline | f"{name}: languages" >> beam.Create([(c, None) for c in languages])
        return (
            (rows, empty)
            | f"{name}: all" >> beam.Flatten()
            | f"{name}: by language" >> beam.GroupByKey()
            | f"{name}: by split" >> beam.MapTuple(functools.partial(_by_split, name == "drawn"))
        )

    def _candidates(
        self,
        element: tuple[str, PlainRow],
        lack: Mapping[str, Sequence[str]],
        given: Mapping[str, frozenset[int]],
    ) -> Iterator[tuple[tuple[str, str], PlainRow]]:
        """Rows that may be drawn, under the language and the split."""
        code, row = element
        keyed = Keyed._make(row)
        split = drawing.drawn_split(keyed.english_key)
        if split not in lack[code] or not drawing.may_be_drawn(keyed, self.settings):
            return
        if keyed.source_key in given[code] or keyed.english_key in given[code]:
            return
        across = self.settings.across_languages
        if not self.kept_out.has(code, keyed, across_languages=across):
            yield (code, split), row

    def _drawn(
        self, group: tuple[tuple[str, str], list[Keyed]], cleaned: Mapping[str, int]
    ) -> Iterator[tuple[str, tuple[str, PlainRow]]]:
        (code, split), rows = group
        size = drawing.sizes(self.settings, cleaned[code])[split]
        for row in rows[:size]:
            yield code, (split, tuple(row))

    def _by_shard(self, code: str, row: PlainRow) -> tuple[tuple[str, int], PlainRow]:
        return (code, partition(Keyed._make(row).pair, self.shards[code])), row

    def _write_held(self, code: str, held: tuple[HeldRows, HeldRows]) -> None:
        given, drawn = held
        splits = write_held(self.output, code, given, drawn)
        entries = {split: dataclasses.asdict(entry.shards[0]) for split, entry in splits.items()}
        counts = {split: len(rows) for split, rows in sorted(drawn.items())}
        of = {split: set_counts(rows) for split, rows in sorted(given.items())}
        self.note(code, "held", {"splits": entries, "drawn": counts, "given": of})

    def _write_shard(
        self,
        group: tuple[tuple[str, int], Iterable[PlainRow]],
        held: Mapping[str, tuple[HeldRows, HeldRows]],
        everywhere: np.ndarray,
    ) -> None:
        (code, number), rows = group
        given, drawn = held[code]
        english = everywhere if self.settings.across_languages else NOWHERE
        out = HeldOut.of(given, drawn, self.kept_out.of(code), english)
        found = filtered(sorted(map(Keyed._make, rows), key=_ORDER), out)
        name = shard_name(code, "train", number, self.shards[code])
        shard = dataclasses.asdict(write_shard(self.output, name, found.rows()))
        note = {
            "number": number,
            "shard": shard,
            "removed": dict(found.removed),
            "drawn": found.drawn,
        }
        self.note(code, f"shard-{number:05}", note)


class _Clean(beam.DoFn):
    """Reads and cleans a part: training rows, held-out rows, and the number of training rows."""

    def __init__(self, steps: Steps):
        self._steps = steps

    def process(self, element: tuple[str, int, Part]) -> Iterator[Any]:
        code, number, part = element
        counts, kept, faults = Counts(), 0, ()
        try:
            for row in cleaned_rows(part, number, self._steps.settings, counts):
                if part.split == "train":
                    kept += 1
                    yield code, tuple(row)
                else:
                    yield beam.pvalue.TaggedOutput("held", (code, (part.split, tuple(row))))
        except InputError as error:
            faults = error.faults
        yield beam.pvalue.TaggedOutput("cleaned", (code, kept))
        self._steps.note(
            code,
            f"part-{number:05}",
            {
                "read": counts.read,
                "removed": dict(counts.removed),
                "repaired": dict(counts.repaired),
                "cleaned": kept,
                "faults": faults,
            },
        )


class _LowestRows(beam.CombineFn):
    """The rows with the lowest English keys."""

    def __init__(self, settings: Settings):
        self._size = max(drawing.most(settings).values())

    def create_accumulator(self) -> Lowest:
        return Lowest(self._size)

    def add_input(self, accumulator: Lowest, row: PlainRow) -> Lowest:
        accumulator.add(Keyed._make(row))
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Lowest]) -> Lowest:
        merged = Lowest(self._size)
        for accumulator in accumulators:
            merged.add_all(accumulator.rows(self._size))
        return merged

    def extract_output(self, accumulator: Lowest) -> list[Keyed]:
        return accumulator.rows(self._size)


class _Union(beam.CombineFn):
    """All keys, sorted."""

    def __init__(self, more: np.ndarray):
        self._more = more

    def create_accumulator(self) -> np.ndarray:
        return self._more

    def add_input(self, accumulator: np.ndarray, keys: np.ndarray) -> np.ndarray:
        return union([accumulator, keys])

    def merge_accumulators(self, accumulators: Iterable[np.ndarray]) -> np.ndarray:
        return union(accumulators)

    def extract_output(self, accumulator: np.ndarray) -> np.ndarray:
        return accumulator


def _by_split(drawn: bool, code: str, rows: Iterable[Any]) -> tuple[str, HeldRows]:
    """Rows by split: drawn ones by their English keys, others in the order of the source."""
    by_split: HeldRows = {}
    for item in rows:
        if item is not None:
            by_split.setdefault(item[0], []).append(Keyed._make(item[1]))
    key = operator.attrgetter("english_key") if drawn else _ORDER
    found = {split: sorted(by_split[split], key=key) for split in sorted(by_split)}
    return code, drawing.apart(found) if drawn else found


def _given_and_drawn(
    code: str, both: Mapping[str, Iterable[HeldRows]]
) -> tuple[str, tuple[HeldRows, HeldRows]]:
    (given,), (drawn,) = both["given"], both["drawn"]
    return code, (given, drawn)


def _english(_: str, held: tuple[HeldRows, HeldRows]) -> np.ndarray:
    keys = [row.english_key for sets in held for rows in sets.values() for row in rows]
    return np.array(keys, np.uint64)


def _keys(code: str, held: HeldRows) -> tuple[str, Any]:
    """Source and English keys of a language's held-out rows.

    Beam takes types as promises: its integers have 63 bits, so a set of keys is `Any`.
    """
    rows = [row for rows in held.values() for row in rows]
    return code, frozenset(key for row in rows for key in (row.source_key, row.english_key))
