"""The files of a prepared directory against its manifest."""

import collections
import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

from gshard_m4 import languages
from gshard_m4.doctor.checks import FEWEST_HELD_OUT_ROWS, FEWEST_TRAINING_ROWS, Finding
from gshard_m4.input_error import InputError
from gshard_m4.prepared import (
    MANIFEST,
    LanguageEntry,
    Manifest,
    Prepared,
    Shard,
    ShardEntry,
    SplitEntry,
    read_manifest,
)
from gshard_m4.preparing.state import WORK

HELD_OUT = ("validation", "test")
UNDETERMINED = "Zyyy"  # ISO 15924
_OURS = {MANIFEST, "prepare_report.json"}


def manifest_of(folder: Path) -> Manifest:
    """The manifest of a directory.

    Raises:
        InputError: where there is none that can be read.
    """
    return read_manifest(
        folder,
        missing=f"{folder}: has {_what_is_there(folder)} and no {MANIFEST}, so preparing it did not"
        " end; give the same gshard-m4 prepare again, and it goes on",
    )


def _what_is_there(folder: Path) -> str:
    return f"an unfinished run ({WORK})" if (folder / WORK).exists() else "shards"


def check_files(
    folder: Path, manifest: Manifest, *, hashes: bool = True
) -> tuple[Prepared, list[Finding]]:
    """The directory without the files that cannot be used, and what is wrong with those."""
    findings: list[Finding] = []
    usable = {}
    for code, entry in manifest.languages.items():
        splits = {}
        for split, part in entry.splits.items():
            kept = []
            for shard in part.shards:
                if fault := _file_fault(folder / shard.file, shard, hashes):
                    findings.append(Finding(check="file", language=code, split=split, detail=fault))
                else:
                    kept.append(shard)
            rows = sum(shard.rows for shard in kept)
            splits[split] = SplitEntry(rows=rows, shards=tuple(kept))
        usable[code] = dataclasses.replace(entry, splits=splits)
    findings += _unlisted(folder, manifest)
    return Prepared(folder, dataclasses.replace(manifest, languages=usable)), findings


def check_manifest(manifest: Manifest) -> list[Finding]:
    """Counts, names and scripts that contradict each other, and splits that are missing."""
    findings = []
    for code, entry in manifest.languages.items():
        for detail in (*_count_faults(entry), *_language_faults(code, entry)):
            findings.append(Finding(check="manifest", language=code, detail=detail))
    return [*findings, *_split_findings(manifest)]


def _file_fault(path: Path, entry: ShardEntry, hashes: bool) -> str | None:
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            return f"{path} has {size:,} bytes, the manifest says {entry.bytes:,}"
        if hashes:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != entry.sha256:
                return f"{path} has the SHA-256 {found}, the manifest says {entry.sha256}"
        if (rows := len(Shard(path))) != entry.rows:
            return f"{path} has {rows:,} rows, the manifest says {entry.rows:,}"
    except InputError as error:
        return error.faults[0]
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    return None


def _unlisted(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    listed = {
        shard.file
        for entry in manifest.languages.values()
        for part in entry.splits.values()
        for shard in part.shards
    }
    found = collections.defaultdict(list)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        ours = name in listed or name in _OURS or name.startswith((f"{WORK}/", "vocabulary/"))
        if path.is_file() and not ours:
            found[name.split("/")[0]].append(name)
    if (folder / WORK).exists():
        yield Finding(check="unfinished run", detail=f"{folder / WORK}")
    for names in found.values():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Finding(check="unlisted", detail=f"{names[0]}{more}")


def _count_faults(entry: LanguageEntry) -> Iterator[str]:
    rows = sum(part.rows for part in entry.splits.values())
    if rows != entry.kept:
        yield f"its splits have {rows:,} rows, 'kept' says {entry.kept:,}"
    removed = sum(entry.removed.values())
    if entry.kept + removed != entry.read:
        yield f"{entry.read:,} rows were read, but {entry.kept:,} kept and {removed:,} removed"


def _language_faults(code: str, entry: LanguageEntry) -> Iterator[str]:
    try:
        known = languages.find(code, variants=True, others=True)
    except ValueError as error:
        yield str(error)
        return
    if known.code != code:
        yield f"the code {code!r} is an alias of {known.code!r}"
    if entry.script not in (known.script, UNDETERMINED):
        yield f"its script is {entry.script}; {known.name} is written in {known.script}"


def _split_findings(manifest: Manifest) -> Iterator[Finding]:
    """Missing and tiny splits; what no language has is said once."""
    checks = {"train": "no training text"} | {split: f"no {split} set" for split in HELD_OUT}
    for split, check in checks.items():
        rows = {
            code: part.rows if (part := entry.splits.get(split)) else 0
            for code, entry in manifest.languages.items()
        }
        if not any(rows.values()):
            yield Finding(check=check, detail="no language has any")
            continue
        small = "little training text" if split == "train" else "small held-out set"
        fewest = FEWEST_TRAINING_ROWS if split == "train" else FEWEST_HELD_OUT_ROWS
        for code, count in rows.items():
            if not count:
                yield Finding(check=check, language=code)
            elif count < fewest:
                yield Finding(check=small, language=code, split=split, rows=count, of=count)
