"""Descriptions of Debian's packages, from the Translation-xx indexes of an archive."""

import re
from collections.abc import Callable, Iterable, Iterator

from gshard_m4.debian.archive import File
from gshard_m4.debian.translations import Translation, sentences

_INDEX = re.compile(r"_i18n_Translation-([\w%@]+)$")
_MD5 = re.compile(r"^Description-md5: (\w+)$", re.MULTILINE)
_DESCRIPTION = re.compile(r"^Description-(?!md5)[\w@]+: (.*)", re.MULTILINE | re.DOTALL)
# A bullet o or a number only where it is indented: "o" is a word of several languages.
_BULLET = re.compile(r" (?:\s+(?:[-*+o•]|\d+[.)])|[-*+•])\s+")


Blocks = dict[str, list[str]]
"""A description's blocks by its hash."""


def descriptions_english(files: Iterable[File], unreadable: Callable[[str], None]) -> Blocks:
    """The English descriptions."""
    ours: Blocks = {}
    for _, _, found in _indexes(files, unreadable):
        ours |= {md5: blocks(text) for md5, text in found.items()}
    return ours


def descriptions(
    files: Iterable[File], ours: Blocks, unreadable: Callable[[str], None]
) -> Iterator[Translation]:
    """Sentences of descriptions with as many blocks as the English one of the same hash."""
    seen = set()
    for _, locale, found in _indexes(files, unreadable):
        for md5, text in found.items():
            reference, translated = ours.get(md5, []), blocks(text)
            if (locale, md5) in seen or len(reference) != len(translated):
                continue
            seen.add((locale, md5))
            for one, other in zip(reference, translated, strict=True):
                yield from sentences(locale, one, other)


def _indexes(
    files: Iterable[File], unreadable: Callable[[str], None]
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Name, locale, and the description of each hash."""
    for name, content in files:
        found = _INDEX.search(name)
        if not found:
            continue
        try:
            yield name, found.group(1).replace("%5f", "_"), index(content.decode())
        except UnicodeDecodeError as error:
            unreadable(f"{name}: {error}")


def index(text: str) -> dict[str, str]:
    """The description of each hash in an index."""
    found = {}
    for stanza in text.split("\n\n"):
        md5, description = _MD5.search(stanza), _DESCRIPTION.search(stanza)
        if md5 and description:
            found[md5.group(1)] = description.group(1)
    return found


def blocks(description: str) -> list[str]:
    """The title, then paragraphs and bullets, each on one line."""
    title, *lines = description.split("\n")
    found: list[list[str]] = [[]]
    for line in lines:
        bullet = _BULLET.match(line)
        text = line.strip()
        if text in ("", "."):
            found.append([])
        elif bullet:
            found.append([line[bullet.end() :].strip()])
        else:
            found[-1].append(text)
    return [title.strip(), *(" ".join(block) for block in found if block)]
