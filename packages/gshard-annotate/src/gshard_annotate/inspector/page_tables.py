"""The tables of the page: collectives and values, each row with what is wrong with it in words."""

from collections.abc import Sequence
from html import escape

from gshard_annotate.inspector.cuts import brief, same
from gshard_annotate.inspector.page_figures import cut_drawing
from gshard_annotate.inspector.quantities import duration, number, percent, place, size
from gshard_annotate.inspector.report import Exchange, Report, Source, Value
from gshard_annotate.inspector.scope_sums import ScopeSum, scope_sums
from gshard_annotate.inspector.text import axes_of

_LONGEST_UNBROKEN = 24
# A heading, and whether its column holds numbers.
Heading = tuple[str, bool]

_EXCHANGE_HEADINGS: tuple[Heading, ...] = (
    ("Kind", False),
    ("Mesh axes", False),
    ("A device", True),
    ("Times", True),
    ("Time", True),
    ("Share", True),
    ("Source", False),
    ("Cause", False),
)
_VALUE_HEADINGS: tuple[Heading, ...] = (
    ("Role", False),
    ("Name", False),
    ("Shape and cut", False),
    ("Asked", False),
    ("Compiled", False),
    ("Whole", True),
    ("A device", True),
    ("Source", False),
)
_SCOPE_HEADINGS: tuple[Heading, ...] = (
    ("Scope", False),
    ("Pass", False),
    ("Mostly", False),
    ("Work", True),
    ("Accessed", True),
    ("Time", True),
    ("Share", True),
)


def exchange_table(report: Report) -> str:
    """Every collective, in the report's order: surprises first, then by bytes."""
    if not report.exchanges:
        return '<section id="collectives"><h2>No collectives</h2></section>'
    timed = any(one.seconds is not None for one in report.exchanges)
    untimed = () if timed else ("Time", "Share")
    headings = [one for one in _EXCHANGE_HEADINGS if one[0] not in untimed]
    rows = [_exchange_row(i, one, timed) for i, one in enumerate(report.exchanges)]
    return table_section("collectives", f"Collectives ({len(rows):,})", headings, rows)


def value_table(report: Report) -> str:
    """Every argument, result and annotated value, in the program's order."""
    if not report.values:
        return '<section id="values"><h2>No values</h2></section>'
    sourced = any(value.source for value in report.values)
    headings = [one for one in _VALUE_HEADINGS if sourced or one[0] != "Source"]
    rows = [_value_row(i, one, report.mesh, sourced) for i, one in enumerate(report.values)]
    return table_section("values", f"Values ({len(rows):,})", headings, rows)


def scope_table(report: Report) -> str:
    """The work by named scope and pass; nothing for a report of an older version."""
    if not report.operations:
        return ""
    sums = scope_sums(report)
    timed = report.cost.step_seconds is not None
    headings = [one for one in _SCOPE_HEADINGS if timed or one[0] not in ("Time", "Share")]
    rows = [_scope_row(i, one, timed) for i, one in enumerate(sums)]
    title = f"{'Time' if timed else 'Work'} by scope, without collectives ({len(rows):,})"
    return table_section("scopes", title, headings, rows)


def table_section(anchor: str, title: str, headings: Sequence[Heading], rows: Sequence[str]) -> str:
    """A section with one table, which scrolls by itself where the screen is narrow."""
    head = "".join(
        f'<th scope="col"{" data-numeric" if numeric else ""}>{name}</th>'
        for name, numeric in headings
    )
    return (
        f'<section id="{anchor}"><h2 id="{anchor}-title">{title}</h2>'
        f'<div class="wide" tabindex="0" role="region" aria-labelledby="{anchor}-title">'
        f'<table class="rows"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def cell(text: str, value: float | None = None) -> str:
    """A cell of a table; `value` is what a column of numbers is sorted by."""
    return (
        f'<td class="number" data-v="{value!r}">{text}</td>'
        if value is not None
        else f"<td>{text}</td>"
    )


def wrapping(text: str) -> str:
    """Text that may go on in the next line behind a comma and in front of a bracket."""
    return escape(text).replace(",", ",<wbr>").replace("[", "<wbr>[")


def source_line(source: Source | None) -> str:
    """A line of the program with its folder, and the function under it."""
    if source is None:
        return ""
    function = f"<br><small>in {escape(source.function)}</small>" if source.function else ""
    line = escape(place(source, 1))
    return (
        f'<span class="source"><code title="{escape(source.file)}">{line}</code></span>{function}'
    )


def _exchange_row(position: int, one: Exchange, timed: bool) -> str:
    made = one.collective
    cells = [
        cell(escape(axes_of(one))),
        cell(size(made.bytes), made.bytes),
        cell(f"{one.times:,}", one.times),
    ]
    if timed:
        cells += _time_cells(one.seconds, one.share)
    cells += [cell(source_line(one.source)), cell(_cause(one))]
    return _row(f"collective-{position}", escape(made.kind), one.surprise, cells)


def _scope_row(position: int, one: ScopeSum, timed: bool) -> str:
    cells = [
        cell(one.during),
        cell(f"<code>{escape(one.largest)}</code>"),
        cell(number(one.flops, "FLOP"), one.flops),
        cell(size(one.bytes_accessed), one.bytes_accessed),
    ]
    if timed:
        cells += _time_cells(one.seconds, one.share)
    return _row(f"scope-{position}", f"<code>{wrapping(one.scope)}</code>", "", cells)


def _time_cells(seconds: float | None, share: float | None) -> list[str]:
    bar = f'<span class="bar" style="--v:{100 * (share or 0.0):.1f}"></span>'
    return [
        cell(duration(seconds), seconds or 0.0),
        cell(f"{bar}{percent(share)}", share or 0.0),
    ]


def _cause(one: Exchange) -> str:
    made = one.collective
    cause = one.cause.removesuffix(f" at {place(one.source)}")
    shown = f"<code>{wrapping(cause)}</code>" if cause else ""
    facts = "".join(
        f"<code>{escape(text)}</code>"
        for text in (made.shape, made.computation, made.op_name)
        if text
    )
    return f"{shown}<details><summary>instruction</summary>{facts}</details>"


def _value_row(position: int, value: Value, mesh: dict[str, int], sourced: bool) -> str:
    drawing = cut_drawing(value.shape, value.compiled or value.asked, mesh)
    times = f' <span class="soft">× {value.times:,}</span>' if value.times != 1 else ""
    cells = [
        f'<th scope="row"><code>{wrapping(value.name)}</code>{times}</th>',
        cell(f"<code>{escape(value.shape)}</code>{drawing}"),
        cell("open" if value.asked is None else _sharding(value.asked, value.shape)),
        cell(_compiled(value)),
        cell(size(value.bytes), value.bytes),
        cell(size(value.bytes_per_device), value.bytes_per_device),
    ]
    if sourced:
        cells.append(cell(source_line(value.source)))
    return _row(f"value-{position}", escape(value.role), value.note, cells)


def _compiled(value: Value) -> str:
    if value.compiled is None:
        return '<span class="soft">not there</span>'
    if same(value.asked, value.compiled):
        return '<span class="soft">as asked</span>'
    return _sharding(value.compiled, value.shape)


def _sharding(sharding: str, shape: str) -> str:
    short = brief(sharding, shape)
    whole = ' class="whole"' if len(short) <= _LONGEST_UNBROKEN else ""
    return f'<code title="{escape(sharding)}"{whole}>{escape(short)}</code>'


def _row(anchor: str, first: str, wrong: str, cells: Sequence[str]) -> str:
    flag = f' <span class="flag" title="{escape(wrong)}">surprise</span>' if wrong else ""
    flagged = ' class="flagged"' if wrong else ""
    return f'<tr id="{anchor}"{flagged}><td>{first}{flag}</td>{"".join(cells)}</tr>\n'
