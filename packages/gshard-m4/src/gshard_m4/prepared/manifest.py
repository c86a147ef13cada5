"""`manifest.json`: what a prepared directory holds and how it was made."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from gshard_m4.input_error import InputError
from gshard_m4.writing import write_all

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
SPLITS = ("train", "validation", "test")

_NAME = re.compile("[a-z0-9_]+")
_CODE = re.compile("[a-z]{2,3}(_[A-Za-z0-9]{3,8})?")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """One file: its path below the directory, its rows, hash and size."""

    file: str
    rows: int
    sha256: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitEntry:
    """The rows of one language and split, in shards."""

    rows: int
    shards: tuple[ShardEntry, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """Where text came from: kind of layout, path or address, licence and what says so, hash."""

    kind: str
    path: str
    licence: str
    licence_source: str
    hash: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageEntry:
    """One language: its splits, and how many rows were read, kept and removed for each reason."""

    name: str
    script: str
    splits: Mapping[str, SplitEntry]
    removed: Mapping[str, int]
    kept: int
    read: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """All of a prepared directory.

    Attributes:
        name: of the corpus, for people.
        created_by: the package's version.
        command: the command line that made it.
        settings: everything that decided which rows are there.
        sources: where the text came from.
        languages: by code, in the order of the codes.
        schema_version: of this file.
    """

    name: str
    created_by: str
    command: str
    settings: Mapping[str, Any]
    sources: tuple[SourceEntry, ...]
    languages: Mapping[str, LanguageEntry]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1) + "\n"

    def write(self, folder: Path) -> None:
        """Writes the file; do it last, for a directory without it is unfinished."""
        write_all(folder, {MANIFEST: self.to_json()})


def shard_name(code: str, split: str, number: int, count: int) -> str:
    """The path of a shard below its directory, such as `de/train-00000-of-00003.tsv.gz`."""
    return f"{code}/{split}-{number:05}-of-{count:05}.tsv.gz"


def parse_manifest(text: str, path: Path) -> Manifest:
    """The manifest of a file's text.

    Raises:
        InputError: naming all that is wrong with it.
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError([f"{path}: not JSON ({error}); prepare the data again"]) from None
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(
            [f"{path}: schema_version is {version!r}, this version reads {SCHEMA_VERSION}"]
        )
    faults: list[str] = []
    manifest = _build(Manifest, found, "", faults)
    if manifest is not None and not faults:
        faults += _value_faults(manifest)
    if manifest is None or faults:
        raise InputError([f"{path}: {fault}" for fault in faults])
    return manifest


def _build(kind: Callable[..., T], found: Any, where: str, faults: list[str]) -> T | None:
    """A dataclass of what JSON holds, its parts built in turn; None where anything is wrong."""
    fields = {field.name: field.type for field in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    if not isinstance(found, dict):
        faults.append(f"{where or 'the file'} is no object with {', '.join(fields)}")
        return None
    before = len(faults)
    if missing := [name for name in fields if name not in found]:
        faults.append(f"{where or 'the file'} lacks {', '.join(missing)}")
    if unknown := [name for name in found if name not in fields]:
        faults.append(f"{where or 'the file'} has unknown {', '.join(unknown)}")
    values = {
        name: _value(fields[name], found[name], f"{where}.{name}".lstrip("."), faults)
        for name in fields
        if name in found
    }
    return kind(**values) if len(faults) == before else None


def _value(kind: Any, found: Any, where: str, faults: list[str]) -> Any:
    """One field's value, checked."""
    if kind in _PARTS and isinstance(found, list):
        return tuple(_build(_PARTS[kind], x, f"{where}[{i}]", faults) for i, x in enumerate(found))
    if kind in _MAPPED and isinstance(found, dict):
        return {k: _build(_MAPPED[kind], x, f"{where}.{k}", faults) for k, x in found.items()}
    if kind not in _PARTS and kind not in _MAPPED and _fits(kind, found):
        return found
    faults.append(f"{where} must be {_WANTED[kind]}, got {json.dumps(found)[:80]}")
    return None


def _fits(kind: Any, found: Any) -> bool:
    if kind is int:
        return isinstance(found, int) and not isinstance(found, bool) and found >= 0
    if kind == Mapping[str, int]:
        return isinstance(found, dict) and all(_fits(int, n) for n in found.values())
    return isinstance(found, str if kind is str else dict)


_PARTS: dict[Any, Any] = {tuple[ShardEntry, ...]: ShardEntry, tuple[SourceEntry, ...]: SourceEntry}
_MAPPED: dict[Any, Any] = {
    Mapping[str, SplitEntry]: SplitEntry,
    Mapping[str, LanguageEntry]: LanguageEntry,
}
_WANTED: dict[Any, str] = {
    str: "text",
    int: "a number of at least 0",
    Mapping[str, int]: "an object of numbers of at least 0",
    Mapping[str, Any]: "an object",
    **dict.fromkeys(_PARTS, "a list"),
    **dict.fromkeys(_MAPPED, "an object"),
}


def _value_faults(manifest: Manifest) -> list[str]:
    """What is wrong with a manifest whose fields all have their kind."""
    faults = []
    if not _NAME.fullmatch(manifest.name):
        faults.append(f"name {manifest.name!r} must be of a-z, 0-9 and _")
    for code, language in manifest.languages.items():
        if not _CODE.fullmatch(code):
            faults.append(f"language {code!r} must be a code such as 'de' or 'zh_Hant'")
        for split, entry in language.splits.items():
            faults += _split_faults(code, split, entry)
    return faults


def _split_faults(code: str, split: str, entry: SplitEntry) -> list[str]:
    faults = []
    if split not in SPLITS:
        faults.append(f"{code} has the split {split!r}; known are {', '.join(SPLITS)}")
    if (total := sum(shard.rows for shard in entry.shards)) != entry.rows:
        faults.append(f"{code} {split} has {entry.rows} rows but its shards have {total}")
    for shard in entry.shards:
        parts = PurePosixPath(shard.file).parts
        if len(parts) != 2 or parts[0] != code or not shard.file.endswith(".tsv.gz"):
            faults.append(f"{code} {split} names {shard.file!r}, which is no shard below {code}/")
    return faults
