"""The second pass over one language: duplicates and held-out sentences go, shards are written."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gshard_m4.languages import find
from gshard_m4.prepared import LanguageEntry, ShardEntry, ShardWriter, SplitEntry, shard_name
from gshard_m4.preparing.clean_language import Cleaned, read_held
from gshard_m4.preparing.drawing import DRAWN_SPLITS, Keyed
from gshard_m4.preparing.held_out import NOWHERE, HeldOut, HeldRows, filtered
from gshard_m4.preparing.processes import count_rows
from gshard_m4.preparing.spool import read_spool, spool_file
from gshard_m4.writing import write_all


@dataclasses.dataclass(frozen=True)
class FinishTask:
    """One language to finish.

    Attributes:
        cleaned: of the first pass.
        folder: of the first pass.
        output: the prepared directory.
        everywhere: file of all languages' held-out English keys, sorted.
        everywhere_hash: what identifies them.
        kept_out: keys of further held-out sources, and of further held-out English.
        across_languages: whether English held out for other languages is removed.
        done: where the entry goes when all is written.
    """

    cleaned: Cleaned
    folder: Path
    output: Path
    everywhere: Path
    everywhere_hash: str
    kept_out: tuple[frozenset[int], frozenset[int]]
    across_languages: bool
    done: Path


def finish_language(task: FinishTask) -> LanguageEntry:
    """Writes a language's shards and then its entry of the manifest."""
    given, drawn = read_held(task.folder)
    everywhere = np.load(task.everywhere) if task.across_languages else NOWHERE
    held = HeldOut.of(given, drawn, task.kept_out, everywhere)
    code, count = task.cleaned.code, task.cleaned.shards
    removed = Counter(task.cleaned.removed)
    shards, moved = [], 0
    for number in range(count):
        shard, why, drawn_rows = _write_training_shard(task, number, held)
        shards.append(shard)
        removed.update(why)
        moved += drawn_rows
    splits = {"train": split_entry(shards)} if count else {}
    splits |= write_held(task.output, code, given, drawn)
    entry = language_entry(task.cleaned, splits, removed)
    check_counts(entry, moved, sum(len(rows) for rows in drawn.values()))
    saved = {"inputs": task.cleaned.inputs, "everywhere": task.everywhere_hash}
    saved |= {"entry": dataclasses.asdict(entry)}
    write_all(task.done.parent, {task.done.name: json.dumps(saved)})
    return entry


def _write_training_shard(
    task: FinishTask, number: int, held: HeldOut
) -> tuple[ShardEntry, Counter[str], int]:
    """One shard's entry, the rows that were removed from it, and those that a drawn set has.

    A function of its own, so that the rows of one shard are gone before the next is read.
    """
    found = filtered(read_spool(spool_file(task.folder, number)), held)
    name = shard_name(task.cleaned.code, "train", number, task.cleaned.shards)
    shard = write_shard(task.output, name, found.rows())
    count_rows(found.read)
    return shard, found.removed, found.drawn


def write_held(output: Path, code: str, given: HeldRows, drawn: HeldRows) -> dict[str, SplitEntry]:
    """Writes the validation and test sets that a language has; in the order of the source."""
    splits = {}
    for split in DRAWN_SPLITS:
        rows = [*given.get(split, []), *drawn.get(split, [])]
        if rows:
            splits[split] = split_entry([write_shard(output, shard_name(code, split, 0, 1), rows)])
    return splits


def write_shard(output: Path, name: str, rows: Iterable[Keyed]) -> ShardEntry:
    """Writes one file."""
    with ShardWriter(output / name) as writer:
        for row in rows:
            writer.write(row.source, row.english, row.origin)
    return ShardEntry(file=name, rows=writer.rows, sha256=writer.sha256, bytes=writer.bytes)


def language_entry(
    cleaned: Cleaned, splits: Mapping[str, SplitEntry], removed: Mapping[str, int]
) -> LanguageEntry:
    """The language's part of the manifest."""
    language = find(cleaned.code, variants=True, others=True)
    return LanguageEntry(
        name=language.name,
        script=language.script,
        splits=splits,
        removed={reason: removed[reason] for reason in sorted(removed)},
        kept=sum(split.rows for split in splits.values()),
        read=cleaned.read,
    )


def finished(done: Path, inputs: str, everywhere: str, output: Path) -> LanguageEntry | None:
    """The entry of an earlier run with the same input and held-out sets, its files there."""
    try:
        saved = json.loads(done.read_text())
    except FileNotFoundError:
        return None
    if (saved["inputs"], saved["everywhere"]) != (inputs, everywhere):
        return None
    entry = entry_from(saved["entry"])
    shards = [shard for split in entry.splits.values() for shard in split.shards]
    there = all(_size(output / shard.file) == shard.bytes for shard in shards)
    return entry if there else None


def entry_from(saved: dict) -> LanguageEntry:
    """A language's entry from its JSON."""
    splits = {
        split: SplitEntry(rows=found["rows"], shards=tuple(map(shard_entry, found["shards"])))
        for split, found in saved["splits"].items()
    }
    return LanguageEntry(**{**saved, "splits": splits})


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1


def shard_entry(saved: Mapping[str, Any]) -> ShardEntry:
    """A shard's part of the manifest from its JSON."""
    return ShardEntry(**saved)


def split_entry(shards: list[ShardEntry]) -> SplitEntry:
    """A split's part of the manifest."""
    return SplitEntry(rows=sum(shard.rows for shard in shards), shards=tuple(shards))


def check_counts(entry: LanguageEntry, moved: int, drawn: int) -> None:
    """Every row that was read is kept or counted as removed: anything else is a fault of ours."""
    total = entry.kept + sum(entry.removed.values())
    if total != entry.read or moved != drawn:
        raise AssertionError(
            f"{entry.name}: {entry.read} rows read, {total} accounted for; {drawn} drawn, {moved}"
            " of them met again"
        )
