"""One package's pairs, cleaned, in one file: a gzip member a language, and what was counted."""

import dataclasses
import functools
import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gshard_m4 import languages, scripts
from gshard_m4.debian.archive import COPYRIGHT, File, files
from gshard_m4.debian.cleaning import Cleaner
from gshard_m4.debian.locales import language_of
from gshard_m4.debian.packages import COLLECTIONS, DESCRIPTIONS, Collection
from gshard_m4.debian.readers import READERS
from gshard_m4.debian.translations import Translation
from gshard_m4.languages import Language
from gshard_m4.writing import write_all

RULES = 1
"""Changes whenever the same packages would give other pairs: extractions of old are done again.

Known languages need no change: their table is part of what an extraction is known by.
"""

_SCRIPT_SAMPLE = 100_000


@dataclasses.dataclass(frozen=True)
class Job:
    """One package to read: its collection's name, its files and those with the English side."""

    name: str
    collection: str
    inputs: tuple[Path, ...]
    english: tuple[Path, ...]
    output: Path
    fingerprint: str

    @property
    def is_done(self) -> bool:
        """Whether the output is there, of these inputs and these rules."""
        try:
            found = json.loads(self.report.read_text("utf-8"))
        except (OSError, ValueError):
            return False
        return found["fingerprint"] == self.fingerprint and found["rules"] == _rules()

    @property
    def report(self) -> Path:
        """Where counts are; written last."""
        return self.output.with_name(f"{self.name}.json")


@dataclasses.dataclass(frozen=True)
class _Found:
    """Pairs by code without duplicates, how many were read, what was removed, unknown locales."""

    pairs: Mapping[str, Mapping[tuple[str, str], None]]
    read: int
    removed: Counter[str]
    unknown: Counter[str]


def extract(job: Job) -> str:
    """Reads a package and writes its pairs; returns its name.

    Raises:
        BrokenPackageError: its archive cannot be read.
    """
    collection = next(c for c in (*COLLECTIONS, DESCRIPTIONS) if c.name == job.collection)
    copyright_files: list[bytes] = []
    ours, unreadable_english = _english(collection, job.english)
    unreadable = list(unreadable_english)
    members = _members(job.inputs, collection, copyright_files)
    translations = READERS[collection.reader].read(members, ours, unreadable.append)
    found = _collect(translations, mediawiki=collection.reader == "mediawiki")
    content, places = _packed(_by_code(found.pairs), job.name)
    report = {
        "package": job.name,
        "collection": collection.name,
        "fingerprint": job.fingerprint,
        "rules": _rules(),
        "has_copyright": bool(copyright_files),
        "licence": sorted({one for text in copyright_files for one in licences(text)}),
        "read": found.read,
        "kept": found.read - found.removed.total(),
        "removed": {reason: n for reason, n in found.removed.most_common() if n},
        "unknown_locales": dict(found.unknown.most_common()),
        "unreadable": unreadable,
        "members": places,
    }
    outputs: dict[str, str | bytes] = {
        job.output.name: content,
        job.report.name: json.dumps(report, ensure_ascii=False, indent=1) + "\n",
    }
    if copyright_files:
        outputs[f"{job.name}.copyright"] = b"\n".join(copyright_files)
    job.report.unlink(missing_ok=True)
    write_all(job.output.parent, outputs)
    return job.name


def _collect(translations: Iterable[Translation], *, mediawiki: bool) -> _Found:
    cleaner, unknown, read = Cleaner(), Counter[str](), 0
    pairs: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for locale, english, text in translations:
        language = language_of(locale, mediawiki=mediawiki)
        if language is None:
            unknown[locale] += 1
            continue
        read += 1
        pair = cleaner.pair(english, text)
        if pair:
            pairs[language.code][pair] = None
    kept = sum(map(len, pairs.values()))
    cleaner.removed["duplicate"] = read - kept - cleaner.removed.total()
    return _Found(pairs, read, cleaner.removed, unknown)


@functools.lru_cache(maxsize=2)
def _english(collection: Collection, paths: tuple[Path, ...]) -> tuple[Any, tuple[str, ...]]:
    """The English side, read once in a process for all packages of a collection."""
    unreadable: list[str] = []
    files = _members(paths, collection, [])
    ours = READERS[collection.reader].english(files, unreadable.append)
    return ours, tuple(unreadable)


@functools.cache
def _rules() -> str:
    known = "\n".join(map(repr, (*languages.LANGUAGES, *languages.OTHER_LANGUAGES)))
    return f"{RULES} {hashlib.sha256(known.encode()).hexdigest()[:16]}"


def licences(copyright_file: bytes) -> list[str]:
    """The licences that a machine-readable copyright file names; none in any other."""
    found = re.findall(rb"^License:[ \t]*(\S.*)$", copyright_file, re.MULTILINE)
    return sorted({line.decode(errors="backslashreplace").strip() for line in found})


def _members(
    paths: Iterable[Path], collection: Collection, copyright_files: list[bytes]
) -> Iterator[File]:
    for path in paths:
        if path.suffix != ".deb":
            yield str(path), path.read_bytes()
            continue
        for name, content in files(path, collection.files):
            if COPYRIGHT.search(name):
                copyright_files.append(content)
            else:
                yield name, content


def _by_code(
    pairs: Mapping[str, Mapping[tuple[str, str], None]],
) -> dict[str, dict[tuple[str, str], None]]:
    """Pairs by code, a catalogue in another script than its language's under the variant's."""
    by_code: dict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for code, found in pairs.items():
        language = languages.find(code, variants=True, others=True)
        by_code[_code(language, found)].update(found)
    return by_code


def _code(language: Language, pairs: Iterable[tuple[str, str]]) -> str:
    """The language's code, or that of another script where hardly anything is in its own.

    Untranslated text is in Latin letters: that is no sign of a script.
    """
    sample, size = [], 0
    for text, _ in pairs:
        sample.append(text)
        size += len(text)
        if size > _SCRIPT_SAMPLE:
            break
    text = "\n".join(sample)
    script = scripts.main_script(text)
    is_other = (
        script not in (None, "Latn", "Zzzz") and scripts.share_in(text, language.script) < 0.2
    )
    return f"{language.code.split('_')[0]}_{script}" if is_other else language.code


def _packed(
    by_code: Mapping[str, Iterable[tuple[str, str]]], origin: str
) -> tuple[bytes, dict[str, Any]]:
    """A gzip member for each language, and where each begins, its size and rows."""
    blocks, members, at = [], {}, 0
    for code, pairs in sorted(by_code.items()):
        rows = sorted(pairs)
        text = "".join(f"{source}\t{english}\t{origin}\n" for source, english in rows)
        block = gzip.compress(text.encode(), 1, mtime=0)
        members[code] = [at, len(block), len(rows)]
        blocks.append(block)
        at += len(block)
    return b"".join(blocks), members
