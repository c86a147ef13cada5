"""The columns of a file of tab-separated values: by number, or by names in its first line."""

import dataclasses
import re
from collections.abc import Sequence

from gshard_m4 import languages
from gshard_m4.input_error import InputError
from gshard_m4.sources.files import File
from gshard_m4.sources.parts import Part

NAMES = (
    ("source", "target"), ("src", "tgt"), ("src", "trg"), ("source", "english"), ("src", "english"),
)  # fmt: skip
"""What the columns (or fields) of the source and of English are called."""
_LONGEST_NAME = 40
# Names of columns: where two of them stand in a first line, it is no text.
_WORDS = frozenset(word for names in NAMES for word in names) | frozenset(
    [
        "id", "lang", "language", "origin", "score", "sentence", "source_lang", "source_text",
        "src_lang", "src_text", "target_lang", "target_text", "text", "tgt_lang", "tgt_text",
        "translation", "url",
    ]
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a row has its sides and its origin, and how many cells every row has."""

    source: int
    english: int
    origin: int | None
    width: int
    is_header: bool

    def check(self, cells: Sequence[str], file: File, number: int) -> None:
        """Refuses a row of another width: which of its cells are the sides, nobody can tell.

        Raises:
            InputError: the row has more or fewer cells than the first.
        """
        if len(cells) == self.width:
            return
        least = max(self.source, self.english) + 1
        found = f"{len(cells)} column{'s' * (len(cells) != 1)} between tabs"
        if len(cells) < least:
            raise InputError([f"{file} line {number}: {found}, at least {least} are needed"])
        raise InputError(
            [
                f"{file} line {number}: {found}, the first line has {self.width}; take tabs out of"
                f" texts, or keep the rows that fit: awk -F'\\t' 'NF == {self.width}'"
            ]
        )


def columns_of(cells: Sequence[str], part: Part) -> Columns:
    """The columns, by the first line of a part's file.

    Raises:
        InputError: the line names columns, but not which are the two sides.
    """
    source, english = (int(column) for column in part.columns)
    width = len(cells)
    names = [cell.strip().casefold() for cell in cells]
    named = _named(names, part)
    if named is not None:
        origin = names.index("origin") if "origin" in names else None
        return Columns(*named, origin, width, is_header=True)
    if _is_header(names):
        raise InputError(
            [
                f"{part.files[0]} line 1 names the columns {', '.join(names)}; name those to take"
                f" source and target, or {part.spelling} and en"
            ]
        )
    origin = 2 if width == 3 and not _is_number(cells[2]) else None
    return Columns(source, english, origin, width, is_header=False)


def _named(names: list[str], part: Part) -> tuple[int, int] | None:
    for source, english in NAMES:
        if names.count(source) == names.count(english) == 1:
            return names.index(source), names.index(english)
    own = [i for i, name in enumerate(names) if _language(name) == part.language]
    english = [i for i, name in enumerate(names) if _language(name) == languages.ENGLISH]
    return (own[0], english[0]) if len(own) == len(english) == 1 else None


def _is_header(names: list[str]) -> bool:
    """Whether a line is of names: two different ones, or of English and another language."""
    known = {name for name in names if name in _WORDS}
    spoken = {found for name in names if (found := _language(name))}
    return len(known) > 1 or (len(spoken) > 1 and languages.ENGLISH in spoken)


def _language(name: str) -> str | None:
    """The language that a column's name is a code or the name of."""
    if len(name) > _LONGEST_NAME:
        return None
    if languages.is_english(name):
        return languages.ENGLISH
    try:
        return languages.find(name, variants=True, others=True).code
    except ValueError:
        return None


def _is_number(text: str) -> bool:
    """Whether a third column holds scores rather than names of collections."""
    return re.fullmatch(r"\s*[-+]?[\d.,]+(e[-+]?\d+)?\s*", text) is not None
