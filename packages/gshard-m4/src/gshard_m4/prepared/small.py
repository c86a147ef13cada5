"""A prepared directory of text that is at hand already, cleaned and split."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gshard_m4 import languages
from gshard_m4.prepared.directory import Prepared, open_prepared
from gshard_m4.prepared.manifest import (
    LanguageEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    shard_name,
)
from gshard_m4.prepared.writer import ShardWriter

_NO_SCRIPT = "Zyyy"  # ISO 15924: undetermined.


def write_prepared(
    folder: str | Path,
    texts: Mapping[str, Mapping[str, Iterable[Sequence[str]]]],
    *,
    name: str,
    sources: Sequence[SourceEntry] = (),
    command: str = "",
    settings: Mapping[str, Any] | None = None,
) -> Prepared:
    """The directory, with one shard a language and split; nothing is cleaned or left out.

    `gshard-m4 prepare` makes directories of any size from files as they are downloaded; this is for
    text that a program holds.

    Args:
        folder: where it is written; languages that are there already are replaced.
        texts: code -> split -> rows (source, English) or (source, English, origin). A code that
            `gshard_m4.languages` does not know is also its name.
        name: of the corpus, for people.
        sources: where the text came from.
        command: what made it.
        settings: what decided which rows are there.
    """
    folder = Path(folder)
    entries = {
        code: _write_language(folder, code, splits) for code, splits in sorted(texts.items())
    }
    manifest = Manifest(
        name=name,
        created_by=f"gshard-m4 {version('gshard-m4')}",
        command=command,
        settings=dict(settings or {}),
        sources=tuple(sources),
        languages=entries,
    )
    manifest.write(folder)
    return open_prepared(folder)


def _write_language(
    folder: Path, code: str, splits: Mapping[str, Iterable[Sequence[str]]]
) -> LanguageEntry:
    found = {}
    for split, rows in splits.items():
        file = shard_name(code, split, 0, 1)
        with ShardWriter(folder / file) as writer:
            for row in rows:
                writer.write(*row)
        shard = ShardEntry(file=file, rows=writer.rows, sha256=writer.sha256, bytes=writer.bytes)
        found[split] = SplitEntry(rows=writer.rows, shards=(shard,))
    title, script = code, _NO_SCRIPT
    with contextlib.suppress(ValueError):
        language = languages.find(code, variants=True, others=True)
        title, script = language.name, language.script
    kept = sum(entry.rows for entry in found.values())
    return LanguageEntry(name=title, script=script, splits=found, removed={}, kept=kept, read=kept)
