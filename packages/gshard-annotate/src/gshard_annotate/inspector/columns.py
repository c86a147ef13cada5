"""Aligned columns of text that fit a width: long cells lose their middle, never their ends."""

import dataclasses
from collections.abc import Sequence

WIDTH = 120
_NARROWEST = 12
_GAP = 2


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      title: Its heading.
      right: Whether its cells stand at the right, as numbers do.
      shrinks: Whether its cells may be shortened to make the table fit, and the room that it
        gets relative to others when they are; 0 for a column that keeps its width.
    """

    title: str
    right: bool = False
    shrinks: int = 0


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """The rows under their headings; columns that are empty throughout are left out."""
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    columns = [columns[i] for i in kept]
    cells = [[one.title for one in columns], *([row[i] for i in kept] for row in rows)]
    widths = _widths(columns, cells, width)
    return "\n".join(_line(columns, row, widths) for row in cells)


def shorten(text: str, width: int) -> str:
    """The text without its middle when it is longer than `width`."""
    if len(text) <= width:
        return text
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    shrinking = [i for i, one in enumerate(columns) if one.shrinks]
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        widest = max(shrinking, key=lambda i: widths[i] / columns[i].shrinks, default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    padded = []
    for one, text, width in zip(columns, row, widths, strict=True):
        text = shorten(text, width) if one.shrinks else text
        padded.append(text.rjust(width) if one.right else text.ljust(width))
    return (" " * _GAP).join(padded).rstrip()
