"""Text of programs without their markup, where both sides allow it.

Menu texts mark the key that chooses them (`_File`, `&File`, `~File`, `ファイル(&F)`), messages hold
placeholders (`%s`, `{count}`) and tags. The marks go; a pair stays only where both sides have the
same placeholders, at most three, and are mostly letters. What is taken out is counted by reason.
"""

import re
import unicodedata
from collections import Counter
from typing import NamedTuple

from gshard_m4.preparing.markup import without_html

LONGEST = 600
"""Characters of the longest text that stays."""
MOST_PLACEHOLDERS = 3

_PLACEHOLDER = re.compile(
    r"%(?:\d+\$)?[-+ #0]*\d*(?:\.\d+)?(?:h|l|ll|z|j|q)*[diouxXeEfgGcsSnp@]|%\d+|%[A-Z][A-Z_]+%?"
    r"|%\(\w+\)[sd]|\$\{?\w+\}?|\{[\w$. -]*\}|%%"
)
_STARTS_PLACEHOLDER = re.compile("[%${]")
_BRACKETED_KEY = re.compile(r"\s*[(（][&_~][A-Za-z0-9][)）]")
# An ampersand may also begin an entity.
_KEY = {
    "&": re.compile(r"&(?!\w+;)[A-Za-z0-9]"),
    "_": re.compile("_[A-Za-z0-9]"),
    "~": re.compile("~[A-Za-z0-9]"),
}
_IDENTIFIER = re.compile(r"[_.:/]|[a-z][A-Z]")
_SNAKE_CASE = re.compile("[a-z0-9]_[a-z0-9]{2,}")
_CODE = re.compile(r"<|\{\{|\\")


class English(NamedTuple):
    """The English side, cleaned: its text, the marks of keys in it, its placeholders sorted."""

    text: str
    marks: str
    placeholders: tuple[str, ...]


class Cleaner:
    """Cleans pairs, the English of each only once, and counts what it takes out.

    Attributes:
        removed: pairs taken out, by reason.
    """

    def __init__(self) -> None:
        self.removed: Counter[str] = Counter()
        self._english: dict[str, English | str] = {}

    def pair(self, english: str, text: str) -> tuple[str, str] | None:
        """Text and English, in the order of a translation's source and target, or None."""
        if not text:
            self.removed["empty"] += 1
            return None
        ours = self._english.get(english)
        if ours is None:
            ours = self._english[english] = _english(english)
        if isinstance(ours, str):
            self.removed[ours] += 1
            return None
        theirs = _plain(text, ours.marks)
        reason = _fault(theirs, text, ours)
        if reason:
            self.removed[reason] += 1
            return None
        return theirs, ours.text


def _english(raw: str) -> English | str:
    """The English side, or the reason why it is of no use."""
    if len(raw) > 2 * LONGEST:
        return "too long"
    marks, text = "", raw.replace("&&", " and ")
    for mark, key in _KEY.items():
        names_code = mark == "_" and " " not in text and _SNAKE_CASE.search(text)
        if text.count(mark) == 1 and key.search(text) and not names_code:
            text = text.replace(mark, "")
            marks += mark
    text = _without_markup(text)
    placeholders = _placeholders(text)
    if len(text) < 2:
        return "empty"
    if len(text) > LONGEST:
        return "too long"
    if "|/|" in raw or "://" in text or _CODE.search(text):
        return "code"
    if len(placeholders) > MOST_PLACEHOLDERS:
        return "placeholders"
    if sum(map(str.isalpha, text)) < 0.6 * len(text.replace(" ", "")):
        return "few letters"
    if not text.isascii() and sum(map(str.isascii, text)) < 0.9 * len(text):
        return "not English"
    if " " not in text and _IDENTIFIER.search(text):
        return "identifier or label of one word"
    return English(text, marks, placeholders)


def _plain(raw: str, marks: str) -> str:
    text = raw.replace("&&", "&")
    for mark in marks:
        text = _BRACKETED_KEY.sub("", text)
        if text.count(mark) == 1:
            text = text.replace(mark, "")
    return _without_markup(text)


def _fault(text: str, raw: str, english: English) -> str:
    """Why the pair is of no use, or nothing."""
    if not text:
        return "empty"
    if text.casefold() == english.text.casefold():
        return "copy of the English"
    if len(text) > LONGEST:
        return "too long"
    if "|/|" in raw or _CODE.search(text):
        return "code"
    if _placeholders(text) != english.placeholders:
        return "placeholders"
    if len(text.translate(_LETTERS)) < 0.5 * len(text.replace(" ", "")):
        return "few letters"
    return ""


def _without_markup(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", without_html(text)).split())


def _placeholders(text: str) -> tuple[str, ...]:
    if not _STARTS_PLACEHOLDER.search(text):
        return ()
    return tuple(sorted(_PLACEHOLDER.findall(text)))


class _Letters(dict[int, int | None]):
    """A translation table that keeps letters and the marks that belong to them."""

    def __missing__(self, code_point: int) -> int | None:
        kept = unicodedata.category(chr(code_point))[0] in "LM"
        self[code_point] = code_point if kept else None
        return self[code_point]


_LETTERS = _Letters()
