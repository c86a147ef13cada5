"""A report as one HTML page that needs nothing beside itself.

The page is readable without scripts; `page/report.js` adds sorting and filtering. Every text that
comes from a program (names, files, shardings) passes through `html.escape`.
"""

import math
import string
from html import escape
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING

from gshard_annotate.inspector.grouping import Surprise, counted, surprise_groups
from gshard_annotate.inspector.page_figures import memory_bar, mesh_drawing, step_bar
from gshard_annotate.inspector.page_tables import exchange_table, scope_table, value_table
from gshard_annotate.inspector.quantities import duration, number, percent, plural, size
from gshard_annotate.inspector.report import Report
from gshard_annotate.inspector.text import MOST_SURPRISES, totals

if TYPE_CHECKING:
    from gshard_annotate.inspector.differences import Diff

_HOW_TO_READ = (
    (
        "Bytes, FLOP, times",
        "of one device and one call of the function. What stands in a loop counts as often as the "
        "loop runs.",
    ),
    (
        "Asked, compiled",
        "the sharding that the program asks for, and the one that the compiler chose: "
        "[data,-] is P(&#x27;data&#x27;, None), whole is P(). An open value was left to the "
        "compiler.",
    ),
    (
        "Cut",
        "one bar a dimension, in as many parts as it is split into; the filled part is what one "
        "device holds. Devices that hold the same part are copies.",
    ),
    (
        "Collective",
        "an exchange between devices that the compiler put in. Its bytes are those of its result "
        "on one device; its cause is the annotation that asks for it.",
    ),
    ("Surprise", "a collective without such an annotation, or a value not split as asked."),
    (
        "Estimated step",
        "for each operation the longest of matrix products, other arithmetic and memory at the "
        "chip's peak, and all collectives one after the other. Nothing waits and nothing overlaps, "
        "so a real step differs.",
    ),
    (
        "Scope",
        "the jax.named_scope around an operation. A fusion counts with the matrix products in it, "
        "what has no scope with the one that made its operands.",
    ),
)


def page(report: Report, diff: "Diff | None" = None) -> str:
    """The text of the page.

    Args:
      report: What is shown.
      diff: What changed on the way to it, shown on top.
    """
    changes = ""
    if diff is not None:
        from gshard_annotate.inspector.diff_page import changes_section

        changes = changes_section(diff)
    body = [
        _header(report, bool(changes)),
        changes,
        _surprises(report),
        _finder(),
        _figures(report),
        exchange_table(report),
        scope_table(report),
        value_table(report),
        _how_to_read(report),
    ]
    folder = resources.files("gshard_annotate") / "inspector" / "page"
    texts = {kind: (folder / f"report.{kind}").read_text("utf-8") for kind in ("css", "js")}
    template = string.Template((folder / "report.html").read_text("utf-8"))
    title = escape(f"{report.title}: sharding report")
    return template.substitute(title=title, body="\n".join(filter(None, body)), **texts)


def _header(report: Report, has_changes: bool) -> str:
    devices = math.prod(report.mesh.values())
    links = [("#changes", "Changes")] if has_changes else []
    links += [("#surprises", "Surprises"), ("#figures", "Time and memory")]
    links += [("#collectives", "Collectives")]
    links += [("#scopes", "Scopes")] if report.operations else []
    links += [("#values", "Values"), ("#read", "How to read this")]
    nav = "".join(f'<a href="{to}">{text}</a>' for to, text in links)
    chip = f"Estimates for {escape(report.chip)}" if report.chip else "No chip named: no times"
    facts = [
        escape(plural(devices, f"{report.platform.upper()} device")),
        chip,
        f"Compiled in {duration(report.compile_seconds)}",
    ]
    return (
        '<header><div><p class="eyebrow">Sharding report</p>\n'
        f"<h1>{escape(report.title)}</h1>\n"
        f'<p class="soft">{" · ".join(facts)}</p>\n<nav aria-label="Parts">{nav}</nav></div>\n'
        f"{mesh_drawing(report.mesh)}</header>"
    )


def _surprises(report: Report) -> str:
    items = list(map(_surprise, surprise_groups(report)))
    accepted = _accepted(report)
    if not items:
        good = "What was compiled is what was asked for" + (" or accepted." if accepted else ".")
        return (
            f'<section id="surprises"><h2>No surprises</h2><p class="good">{good}</p>{accepted}'
            "</section>"
        )
    first, others = items[:MOST_SURPRISES], items[MOST_SURPRISES:]
    folded = ""
    if others:
        folded = (
            f"<details><summary>{len(others):,} more</summary>"
            f'<ol class="surprises" style="--before:{len(first)}">{"".join(others)}</ol></details>'
        )
    return (
        f'<section id="surprises"><h2>{plural(len(report.surprises), "surprise")}</h2>'
        f'<ol class="surprises">{"".join(first)}</ol>{folded}{accepted}</section>'
    )


def _accepted(report: Report) -> str:
    if not report.accepted:
        return ""
    listed = "".join(f"<li>{escape(one)}</li>" for one in counted(report.accepted))
    return (
        f"<details><summary>{len(report.accepted):,} accepted</summary><ul>{listed}</ul></details>"
    )


def _surprise(surprise: Surprise) -> str:
    where = ""
    if source := surprise.source:
        function = f" in {source.function}" if source.function else ""
        where = f"<code>{escape(source.file)}:{source.line}{escape(function)}</code> "
    kind, _, _ = surprise.row.partition(" ")
    return (
        f'<li><p>{escape(surprise.sentence)}</p><p class="small">{where}'
        f'<a href="#{surprise.row.replace(" ", "-")}">Show the {kind}</a></p></li>\n'
    )


def _finder() -> str:
    return (
        '<form class="finder" role="search" hidden><label for="find">Filter tables</label>'
        '<input id="find" type="search" placeholder="kind, axis, name, file" autocomplete="off">'
        '<label><input id="flagged" type="checkbox"> Only surprises</label>'
        '<output for="find flagged" class="soft"></output></form>'
    )


def _figures(report: Report) -> str:
    memory, cost = report.memory, report.cost
    moved = sum(totals(report.exchanges).values())
    limit = f"of {size(memory.limit)}" if memory.limit else "no limit known"
    step = cost.step_seconds
    share = cost.collective_seconds / step if step and cost.collective_seconds is not None else None
    note = f"{percent(share)} in collectives" if share is not None else "no chip named"
    ratio = number(cost.flops / cost.bytes_accessed) if cost.bytes_accessed else "–"
    figures = [
        ("Estimated step", duration(step), note),
        ("Peak of memory", size(memory.peak), limit),
        ("Collectives", size(moved), plural(sum(one.times for one in report.exchanges), "run")),
        ("Work", number(cost.flops, "FLOP"), f"{ratio} FLOP a byte accessed"),
    ]
    listed = "".join(
        f'<div class="figure"><dt>{what}</dt><dd class="value">{value}</dd>'
        f'<dd class="soft small">{below}</dd></div>'
        for what, value, below in figures
    )
    return (
        '<section id="figures"><h2>Time and memory of one device</h2>'
        f'<dl class="figures">{listed}</dl>\n{step_bar(report)}\n{memory_bar(memory)}</section>'
    )


def _how_to_read(report: Report) -> str:
    listed = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in _HOW_TO_READ)
    listed += "".join(f"<dt>Note</dt><dd>{escape(note)}</dd>" for note in report.notes)
    made = f"<dt>Made by</dt><dd>gshard-annotate {version('gshard-annotate')}</dd>"
    return (
        '<section id="read"><h2>How to read this</h2>'
        f'<dl class="made">{listed}{made}</dl></section>'
    )
