"""Help written as pages: LibreOffice's HTML with numbered paragraphs, GNOME's Mallard XML."""

import re
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from gshard_m4.debian.archive import File
from gshard_m4.debian.translations import Translation, sentences

_PARAGRAPH = re.compile(r'<(p|h[1-6]|td|th)\b[^>]*\bid="([^"]+)"[^>]*>(.*?)</\1>', re.DOTALL)
_HELP_PATH = re.compile(r"/help/([^/]+)/(?:text/)?(.*)$")
_TAG = re.compile("<[^>]+>")
_BLOCKS = ("p", "title", "desc", "td", "th")
_HOLDS_BLOCKS = ("p", "list", "steps", "media")


Paragraphs = dict[tuple[str, str], str]
"""Text by page and number."""


def libreoffice_english(files: Iterable[File], unreadable: Callable[[str], None]) -> Paragraphs:
    """The English paragraphs."""
    return {key: text for _, key, text in _paragraphs(files, unreadable)}


def libreoffice_help(
    files: Iterable[File], ours: Paragraphs, unreadable: Callable[[str], None]
) -> Iterator[Translation]:
    """Sentences of paragraphs that have the same page and number in English."""
    seen = set()
    for locale, key, text in _paragraphs(files, unreadable):
        if key in ours and key not in seen:
            seen.add(key)
            yield from sentences(locale, ours[key], text)


def _paragraphs(
    files: Iterable[File], unreadable: Callable[[str], None]
) -> Iterator[tuple[str, tuple[str, str], str]]:
    """Locale, page with paragraph number, and text without markup."""
    for name, content in files:
        found = _HELP_PATH.search(name)
        text = _decoded(name, content, unreadable)
        if not found or text is None:
            continue
        locale, page = found.groups()
        for _, number, body in _PARAGRAPH.findall(text):
            # Text that changes with the platform says everything at once here.
            if "switchinline" not in body and "<div" not in body:
                yield locale, (page, number), _TAG.sub("", body)


def mallard(
    files: Iterable[File], ours: None, unreadable: Callable[[str], None]
) -> Iterator[Translation]:
    """Sentences of pages that have the same sequence of blocks as the English page."""
    del ours
    pages: dict[str, dict[str, list[tuple[str, str]]]] = defaultdict(dict)
    for name, content in files:
        found = _HELP_PATH.search(name)
        if not found:
            continue
        locale, page = found.groups()
        try:
            pages[locale][page] = _blocks(ElementTree.fromstring(content))
        except ElementTree.ParseError as error:
            unreadable(f"{name}: {error}")
    originals = pages.pop("C", {})
    for locale, theirs in pages.items():
        for page, blocks in theirs.items():
            reference = originals.get(page, [])
            if [tag for tag, _ in reference] != [tag for tag, _ in blocks]:
                continue
            for (_, one), (_, other) in zip(reference, blocks, strict=True):
                yield from sentences(locale, one, other)


def _blocks(page: ElementTree.Element) -> list[tuple[str, str]]:
    """Tag and text of the blocks that hold text and no other block."""
    blocks = []
    for element in page.iter():
        tag = _local(element)
        if tag in _BLOCKS and not any(_local(child) in _HOLDS_BLOCKS for child in element):
            blocks.append((tag, "".join(element.itertext())))
    return blocks


def _local(element: ElementTree.Element) -> str:
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""


def _decoded(name: str, content: bytes, unreadable: Callable[[str], None]) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        unreadable(f"{name}: {error}")
        return None
