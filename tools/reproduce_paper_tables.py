"""Tables with the paper's figures beside ours, as Markdown, JSON and HTML."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

NOTHING = "-"


class Column(NamedTuple):
    """A heading, and the format of the numbers below it; "" for text."""

    name: str
    form: str = ""


PERCENT = "+.0%"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One of the paper's tables or figures, made again.

    Attributes:
      key: by which the option chooses it.
      title: what it is.
      of: where the paper has it.
      columns: of the table.
      rows: of cells: numbers, text, or None where there is nothing to say.
      says: what a reader has to know: what is assumed, what is an estimate, what came out.
      picture: draws it into matplotlib's axes.
    """

    key: str
    title: str
    of: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    says: tuple[str, ...] = ()
    picture: Callable[[Any], None] | None = None

    def form(self) -> dict[str, Any]:
        """What JSON gets: the numbers, not rounded."""
        names = [column.name for column in self.columns]
        return {
            "title": self.title,
            "of": self.of,
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows],
            "says": list(self.says),
        }


def deviation(ours: float | None, papers: float | None) -> float | None:
    """By which part ours is more than the paper's."""
    return None if ours is None or not papers else ours / papers - 1


def markdown(section: Section) -> str:
    """The section under a heading of the second level."""
    cells = [[column.name for column in section.columns], *_cells(section)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths, section.columns) for row in cells]
    rule = [
        "-" * (width - 1) + (":" if column.form else "-")
        for width, column in zip(widths, section.columns, strict=True)
    ]
    lines.insert(1, "| " + " | ".join(rule) + " |")
    said = [f"- {one}" for one in section.says]
    return "\n".join([f"## {section.title} ({section.of})", "", *lines, "", *said]).rstrip() + "\n"


def table_html(section: Section) -> str:
    """The table alone."""
    head = "".join(f"<th{_number(one)}>{html.escape(one.name)}</th>" for one in section.columns)
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{_number(column)}>{html.escape(cell)}</td>"
            for cell, column in zip(row, section.columns, strict=True)
        )
        + "</tr>"
        for row in _cells(section)
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _cells(section: Section) -> list[list[str]]:
    return [
        [_cell(value, column) for value, column in zip(row, section.columns, strict=True)]
        for row in section.rows
    ]


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    return format(value, column.form).replace("%", " %")


def _line(row: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    each = zip(row, widths, columns, strict=True)
    padded = [
        cell.rjust(width) if column.form else cell.ljust(width) for cell, width, column in each
    ]
    return "| " + " | ".join(padded) + " |"


def _number(column: Column) -> str:
    return ' class="n"' if column.form else ""
