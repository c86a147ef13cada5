"""What a run reads: the parts of every language, from one or several sources."""

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path

from gshard_m4 import languages, sources
from gshard_m4.input_error import InputError
from gshard_m4.sources import File, Part
from gshard_m4.sources.codes import WITHOUT_ENGLISH

AUTO = "auto"
DEBIAN = "debian"
_MOST_LEFT_OUT = 12


@dataclasses.dataclass(frozen=True)
class Source:
    """A folder (or file) to read and its layout; `auto` finds the layout out.

    `licence` replaces what the layout says.
    """

    path: Path
    kind: str = AUTO
    licence: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is read.

    Attributes:
        sources: with their layouts found.
        languages: code -> its parts in the order they are read.
        left_out: files and languages that are not read, a line each with the reason.
        joined: languages that the sources have under several codes, a line each.
    """

    sources: tuple[Source, ...]
    languages: dict[str, tuple[Part, ...]]
    left_out: tuple[str, ...]
    joined: tuple[str, ...]

    @property
    def files(self) -> list[File]:
        """Every file once."""
        parts = [part for parts in self.languages.values() for part in parts]
        return sorted({file for part in parts for file in part.files})


def plan(
    given: Sequence[Source],
    *,
    languages: Collection[str] = (),
    any_language: bool = False,
    skip_unknown: bool = False,
    swapped: Collection[str] = (),
) -> Plan:
    """The plan for sources.

    Args:
        given: where the text is.
        languages: codes of the languages to take; empty for all of M4's.
        any_language: take languages outside M4 and other scripts too.
        skip_unknown: leave files of unknown codes out instead of refusing them.
        swapped: codes of languages, or names of files, whose two sides are the other way round than
            the files say.

    Raises:
        InputError: everything that is wrong with folders, layouts and codes.
    """
    resolve = sources.resolver(languages, any_language=any_language, skip_unknown=skip_unknown)
    faults: list[str] = []
    left_out: list[str] = []
    known, found = [], []
    for source in given:
        try:
            source = _with_kind(source)
            scan = sources.scan(source.path, _layout(source.kind), resolve)
        except InputError as error:
            faults.extend(error.faults)
            continue
        known.append(source)
        found.extend(scan.parts)
        left_out.extend(scan.left_out)
        faults.extend(f"{source.path}: {fault}" for fault in scan.faults)
    if not faults:
        faults.extend(_wanted_faults(languages, found, left_out))
        faults.extend(_swapped_faults(swapped, found))
    if faults:
        raise InputError([*faults, *_hint(faults)])
    by_language: dict[str, list[Part]] = {}
    for part in found:
        turned = any(_is_of(part, name) for name in swapped)
        by_language.setdefault(part.language, []).append(dataclasses.replace(part, swapped=turned))
    ordered = {code: tuple(by_language[code]) for code in sorted(by_language)}
    return Plan(tuple(known), ordered, tuple(left_out), tuple(_joined(ordered)))


def _is_of(part: Part, name: str) -> bool:
    """Whether a name is one of the part's files, or else a code of its language."""
    names = {
        one
        for file in part.files
        for one in (file.name, file.name.split("/")[-1], file.path.name, str(file))
    }
    try:
        return name in names or _code(name) == part.language
    except ValueError:
        return False


def _swapped_faults(swapped: Collection[str], found: Sequence[Part]) -> list[str]:
    return [
        f"--swapped: {name} is neither a language nor a file of the input"
        for name in swapped
        if not any(_is_of(part, name) for part in found)
    ]


def _joined(languages: dict[str, tuple[Part, ...]]) -> list[str]:
    spellings = {code: sorted({part.spelling for part in languages[code]}) for code in languages}
    return [
        f"{code} is read from {' and '.join(found)}"
        for code, found in spellings.items()
        if len(found) > 1
    ]


def _with_kind(source: Source) -> Source:
    if source.kind == AUTO:
        return dataclasses.replace(source, kind=sources.detect(source.path))
    return source


def _layout(kind: str) -> sources.Layout:
    if kind == DEBIAN:  # its extraction writes <code>.tsv with the origin of each row
        return dataclasses.replace(sources.BY_KIND["tsv"], kind=DEBIAN)
    try:
        return sources.BY_KIND[kind]
    except KeyError:
        raise InputError([f"unknown --source={kind}; known:", *sources.kinds_table()]) from None


def _wanted_faults(
    wanted: Collection[str], found: Sequence[Part], left_out: Sequence[str]
) -> list[str]:
    """Languages that were asked for and are nowhere; nothing at all."""
    there = {part.language for part in found}
    missing = sorted(code for code in wanted if _code(code) not in there)
    if missing:
        has = ", ".join(sorted(there)) or "no language"
        return [f"--languages: {', '.join(missing)} not found in the input, which has {has}"]
    if found:
        return []
    if any(line.endswith(WITHOUT_ENGLISH) for line in left_out):
        return ["no file of the input has an English side", *_listed(left_out)]
    more = "no language of the input is taken; --any-language takes those outside M4 too"
    return [more, *_listed(left_out)]


def _listed(left_out: Sequence[str]) -> list[str]:
    return [f"left out: {line}" for line in left_out[:_MOST_LEFT_OUT]]


def _code(spelling: str) -> str:
    return languages.find(spelling, variants=True, others=True).code


def _hint(faults: Sequence[str]) -> list[str]:
    if any("unknown language" in fault for fault in faults):
        return ["--skip-unknown leaves files of unknown languages out, --languages selects"]
    return []
