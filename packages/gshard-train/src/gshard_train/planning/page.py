"""A search as one HTML page that needs nothing beside itself: a picture and the table.

Style, script and tables are those of the sharding report. Every text that comes from a program or
a user passes through `html.escape`.
"""

import string
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import NamedTuple

from gshard_annotate.inspector.page_tables import Heading, cell, table_section
from gshard_annotate.inspector.quantities import duration, size
from gshard_train.monitoring.short_numbers import short
from gshard_train.planning.row import Row
from gshard_train.planning.search import Found
from gshard_train.planning.table import best_first, layout_cells, layout_line, outcome, said_of
from gshard_train.precompiling.card import ESTIMATE, title_of
from gshard_train.precompiling.job import Job

_HEADINGS: tuple[Heading, ...] = (
    ("Mesh", False),
    ("Rules", False),
    ("Groups", True),
    ("Recomputed", False),
    ("Parts", False),
    ("Dispatch", False),
    ("Memory", True),
    ("Step", True),
    ("Source tokens/s", True),
    ("Most of it", False),
)
_WIDTH, _HEIGHT, _MARGIN = 720, 300, 56
_GIB = 2**30
_STYLE = """
.plan { width: 100%; max-width: 60rem; height: auto; font: .8rem var(--sans); }
.plan text { fill: var(--soft); }
.plan line { stroke: var(--line); }
.plan .limit { stroke: var(--warn); stroke-dasharray: 4 3; }
.plan circle { fill: var(--bar); stroke: var(--paper); }
.plan .own { fill: var(--hue-3); }
.plan .best { fill: var(--accent); stroke: var(--ink); stroke-width: 2; }
td.best { font-weight: 600; }
"""


def page(job: Job, found: Found, refused: Mapping[str, int], conclusion: str) -> str:
    """The text of the page.

    Args:
      job: with the gin files and the machine.
      found: by the search.
      refused: how many layouts the checks before it refused, for which reason.
      conclusion: in lines.
    """
    folder = resources.files("gshard_annotate") / "inspector" / "page"
    template = string.Template((folder / "report.html").read_text("utf-8"))
    said = "".join(f"<p>{escape(line)}</p>" for line in conclusion.splitlines())
    rows = best_first(found.rows)
    body = [
        '<header><div><p class="eyebrow">Layouts</p>'
        f"<h1>{escape(title_of(job))}</h1>"
        f'<p class="soft">{escape(job.topology)}</p></div></header>',
        f"<section><h2>What was found</h2>{said}</section>",
        _picture(rows, found.best),
        table_section("layouts", f"Compiled ({len(rows):,})", _HEADINGS, _rows(rows, found.best)),
        _counts("Left out", found.skipped),
        _counts("Refused by the checks", refused),
        f"<section><h2>How to read it</h2><p>{escape(ESTIMATE)}</p></section>",
    ]
    return template.substitute(
        title=escape(f"{title_of(job)} on {job.topology}: layouts"),
        body="\n".join(filter(None, body)),
        css=(folder / "report.css").read_text("utf-8") + _STYLE,
        js=(folder / "report.js").read_text("utf-8"),
    )


def _rows(rows: Sequence[Row], best: Row | None) -> list[str]:
    listed = []
    for row in rows:
        mesh, *cells = (escape(each) for each in layout_cells(row.candidate))
        kind = ' class="best"' if row is best else ""
        own = ' <span class="flag">own</span>' if row.candidate.own else ""
        rules, groups, *rest = cells
        speed = row.tokens_per_second
        listed.append(
            f"<tr><td{kind}>{mesh}{own}</td><td>{rules}</td>"
            f"{cell(groups, float(groups or 0))}{''.join(map(cell, rest))}"
            f"{cell(size(row.bytes) if row.bytes else '', float(row.bytes or 0))}"
            f"{cell(duration(row.seconds) if row.seconds else '', row.seconds or 0.0)}"
            f"{cell(f'{speed:,.0f}' if speed else '', speed or 0.0)}"
            f"{cell(escape(said_of(row)))}</tr>\n"
        )
    return listed


class _Scale(NamedTuple):
    """Where a picture has so many bytes and tokens a second."""

    most: float
    fastest: float

    def across(self, count: float) -> float:
        return _MARGIN + count / self.most * (_WIDTH - _MARGIN - 10)

    def up(self, speed: float) -> float:
        return _HEIGHT - 40 - speed / self.fastest * (_HEIGHT - 60)


def _picture(rows: Sequence[Row], best: Row | None) -> str:
    """Each layout with a program by its memory and its speed."""
    shown = [row for row in rows if row.tokens_per_second and row.bytes]
    if not shown:
        return ""
    limit = max((row.limit or 0 for row in shown), default=0)
    most = max(limit, *(row.bytes or 0 for row in shown)) * 1.05
    scale = _Scale(most, max(row.tokens_per_second or 0 for row in shown) * 1.05)
    dots = "".join(_dot(row, best, scale) for row in reversed(shown))
    return (
        "<section><h2>Memory and speed</h2>"
        f'<svg class="plan" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Layouts by memory and speed; the table below has the numbers">'
        f"{_axes(scale, limit)}{dots}</svg>"
        '<p class="small soft">Ringed: the fastest that fits; brown: the gin files\' own; dashed: '
        "what a device has for programs.</p></section>"
    )


def _dot(row: Row, best: Row | None, scale: _Scale) -> str:
    x, y = scale.across(row.bytes or 0), scale.up(row.tokens_per_second or 0)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{8 if row is best else 6}" '
        f'class="{_kind(row, best)}">'
        f"<title>{escape(f'{layout_line(row.candidate)}: {outcome(row)}')}</title></circle>"
    )


def _axes(scale: _Scale, limit: int) -> str:
    base, top = scale.up(0), scale.up(scale.fastest)
    lines = f'<line x1="{_MARGIN}" y1="{base}" x2="{_WIDTH}" y2="{base}"/>'
    lines += f'<line x1="{_MARGIN}" y1="{base}" x2="{_MARGIN}" y2="{top}"/>'
    if limit:
        x = scale.across(limit)
        lines += f'<line class="limit" x1="{x:.1f}" y1="{base}" x2="{x:.1f}" y2="{top}"/>'
    texts = f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}">memory of a device, GiB</text>'
    texts += f'<text x="{_MARGIN}" y="12">source tokens a second</text>'
    for share in (0, 0.5, 1):
        count, speed = (end * share / 1.05 for end in scale)
        texts += f'<text x="{scale.across(count):.1f}" y="{base + 16}">{count / _GIB:.3g}</text>'
        texts += f'<text x="0" y="{scale.up(speed) + 4:.1f}">{short(speed)}</text>'
    return lines + texts


def _kind(row: Row, best: Row | None) -> str:
    return " ".join(["best"] * (row is best) + ["own"] * row.candidate.own)


def _counts(title: str, reasons: Mapping[str, int]) -> str:
    if not reasons:
        return ""
    listed = sorted(reasons.items(), key=lambda each: -each[1])
    items = "".join(f"<li>{count:,}: {escape(reason)}</li>" for reason, count in listed)
    return f"<section><h2>{title}: {sum(reasons.values()):,}</h2><ul>{items}</ul></section>"
