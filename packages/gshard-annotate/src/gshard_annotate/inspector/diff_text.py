"""The difference of two reports as text and as JSON."""

import dataclasses
import re
from collections.abc import Callable

from gshard_annotate.inspector.columns import Column, table
from gshard_annotate.inspector.cuts import brief
from gshard_annotate.inspector.differences import Change, Diff
from gshard_annotate.inspector.json_form import write_form
from gshard_annotate.inspector.quantities import duration, number, place, size
from gshard_annotate.inspector.report import Exchange, Report, Value
from gshard_annotate.inspector.text import axes_of, listed, totals

MOST_CHANGES = 40
# Where a surprise is may change with every line that is written above it.
_LINE = re.compile(r":\d+")
SIGNS = {"added": "+", "removed": "-", "changed": "~"}

_EXCHANGE_COLUMNS = (
    Column(""),
    Column("kind"),
    Column("mesh axes", shrinks=2),
    Column("before", right=True),
    Column("after", right=True),
    Column("source"),
    Column("cause", shrinks=3),
)
_VALUE_COLUMNS = (
    Column(""),
    Column("role"),
    Column("name", shrinks=4),
    Column("before", shrinks=3),
    Column("after", shrinks=3),
)


def diff_text(diff: Diff) -> str:
    """What `print(diff)` shows."""
    parts = [f"{diff.after.title}: before and after"]
    if diff.warnings:
        parts.append("\n".join(f"WARNING: {warning}" for warning in diff.warnings))
    if not diff:
        return "\n\n".join([*parts, "NO DIFFERENCE"])
    parts += [_surprises(diff), _exchanges(diff), _values(diff), _figures(diff)]
    return "\n\n".join(part for part in parts if part)


def diff_json(diff: Diff) -> str:
    """The difference as JSON: what changed, and the figures before and after."""
    form = {
        "format": "gshard-annotate diff",
        "version": 1,
        "differs": bool(diff),
        "warnings": diff.warnings,
        "collectives": [_change_form(one) for one in diff.exchanges],
        "values": [_change_form(one) for one in diff.values],
        "before": _figures_form(diff.before),
        "after": _figures_form(diff.after),
    }
    return write_form(form)


def surprises(diff: Diff) -> dict[str, list[str]]:
    """The surprises that are new, and those that are gone."""
    both = (diff.before, diff.after)
    before, after = ({_LINE.sub("", one): one for one in each.surprises} for each in both)
    return {
        "NEW SURPRISES": [one for key, one in after.items() if key not in before],
        "SURPRISES GONE": [one for key, one in before.items() if key not in after],
    }


def figures(diff: Diff) -> list[tuple[str, str, str]]:
    """What each figure is called, and what it was and is: bytes of collectives, memory, work."""
    before, after = totals(diff.before.exchanges), totals(diff.after.exchanges)
    rows = [
        (kind, size(before.get(kind, 0)), size(after.get(kind, 0)))
        for kind in sorted({*before, *after})
    ]
    shown: dict[str, Callable[[Report], str]] = {
        "all collectives": lambda one: size(sum(totals(one.exchanges).values())),
        "arguments": lambda one: size(one.memory.arguments),
        "results": lambda one: size(one.memory.results),
        "temporaries": lambda one: size(one.memory.temporaries),
        "peak of memory": lambda one: size(one.memory.peak),
        "work": lambda one: number(one.cost.flops, "FLOP"),
        "bytes accessed": lambda one: size(one.cost.bytes_accessed),
        "estimated step": lambda one: duration(one.cost.step_seconds),
    }
    return rows + [(what, show(diff.before), show(diff.after)) for what, show in shown.items()]


def moved(one: Exchange | None) -> str:
    """What an exchange yields on a device, as `12 × 16 KiB`."""
    if one is None:
        return "–"
    times = f"{one.times:,} × " if one.times != 1 else ""
    return times + size(one.collective.bytes)


def cut(value: Value | None, other: Value | None) -> str:
    """How a value is cut, with its shape where that changed, and what was asked if not done."""
    if value is None:
        return "–"
    compiled = "not there" if value.compiled is None else brief(value.compiled, value.shape)
    shape = f"{value.shape} " if other is None or other.shape != value.shape else ""
    asked = "open" if value.asked is None else brief(value.asked, value.shape)
    return (
        f"{shape}{compiled}" if asked in (compiled, "open") else f"{shape}{compiled}, asked {asked}"
    )


def _surprises(diff: Diff) -> str:
    lines = []
    for title, found in surprises(diff).items():
        if found:
            lines += [f"{title} ({len(found)})", *listed(found, MOST_CHANGES)]
    return "\n".join(lines)


def _exchanges(diff: Diff) -> str:
    if not diff.exchanges:
        return "COLLECTIVES: as before"
    rows = [
        [
            SIGNS[one.what],
            one.known.collective.kind,
            axes_of(one.known),
            moved(one.before),
            moved(one.after),
            place(one.known.source),
            one.known.cause.removesuffix(f" at {place(one.known.source)}"),
        ]
        for one in diff.exchanges
    ]
    return _section("COLLECTIVES", diff.exchanges, table(_EXCHANGE_COLUMNS, rows[:MOST_CHANGES]))


def _values(diff: Diff) -> str:
    if not diff.values:
        return "VALUES: as before"
    rows = [
        [
            SIGNS[one.what],
            one.known.role,
            one.known.name,
            cut(one.before, one.after),
            cut(one.after, one.before),
        ]
        for one in diff.values
    ]
    return _section("VALUES", diff.values, table(_VALUE_COLUMNS, rows[:MOST_CHANGES]))


def _section(title: str, changes: tuple[Change, ...], shown: str) -> str:
    counts = {what: sum(one.what == what for one in changes) for what in SIGNS}
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    left = len(changes) - MOST_CHANGES
    more = f"\n… and {left:,} more: diff.json()" if left > 0 else ""
    return f"{title}: {said}\n{shown}{more}"


def _figures(diff: Diff) -> str:
    columns = (
        Column("a device, a call"),
        Column("before", right=True),
        Column("after", right=True),
    )
    rows = [row for row in figures(diff) if row[1] != row[2]]
    return table(columns, rows) if rows else "FIGURES: as before"


def _change_form(one: Change) -> dict[str, object]:
    return {
        "what": one.what,
        "before": one.before and dataclasses.asdict(one.before),
        "after": one.after and dataclasses.asdict(one.after),
    }


def _figures_form(report: Report) -> dict[str, object]:
    return {
        "title": report.title,
        "platform": report.platform,
        "chip": report.chip,
        "mesh": report.mesh,
        "bytes_by_kind": totals(report.exchanges),
        "memory": dataclasses.asdict(report.memory),
        "cost": dataclasses.asdict(report.cost),
        "surprises": report.surprises,
    }
