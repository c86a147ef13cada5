"""What readers give: an English text and its translation under the locale they were found with."""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Translation(NamedTuple):
    """One text in the English of a program and in the locale's language, as found."""

    locale: str
    english: str
    text: str


_SENTENCE_END = re.compile(r"(?<=[.!?。])\s+(?=\S)")
_SPACE = re.compile(r"\s+")


def sentences(locale: str, english: str, text: str) -> Iterator[Translation]:
    """A paragraph's sentences where both sides have as many, otherwise the whole paragraph."""
    english, text = _SPACE.sub(" ", english).strip(), _SPACE.sub(" ", text).strip()
    ours, theirs = _SENTENCE_END.split(english), _SENTENCE_END.split(text)
    if len(ours) != len(theirs):
        ours, theirs = [english], [text]
    for one, other in zip(ours, theirs, strict=True):
        yield Translation(locale, one, other)
