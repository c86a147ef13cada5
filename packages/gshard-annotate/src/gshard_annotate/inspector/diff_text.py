"""The difference of two reports as text and as JSON."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from gshard_annotate.inspector.columns import Column, table
from gshard_annotate.inspector.cuts import brief
from gshard_annotate.inspector.differences import Change, Diff
from gshard_annotate.inspector.grouping import (
    counted,
    exchange_changes,
    name_of,
    value_changes,
)
from gshard_annotate.inspector.json_form import write_form
from gshard_annotate.inspector.quantities import duration, number, place, size
from gshard_annotate.inspector.report import Exchange, Report, Value
from gshard_annotate.inspector.text import axes_of, listed, totals

MOST_CHANGES = 40
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
    if diff:
        parts += [_surprises(diff), _exchanges(diff), _values(diff), _figures(diff)]
    else:
        parts.append("NO DIFFERENCE")
    if notes := [one for one in diff.after.notes if one not in diff.before.notes]:
        parts.append("\n".join(["NEW NOTES", *listed(notes, len(notes))]))
    return "\n\n".join(part for part in parts if part)


def diff_json(diff: Diff) -> str:
    """The difference as JSON: what changed, and the figures before and after."""
    form = {
        "format": "gshard-annotate diff",
        "version": 1,
        "differs": bool(diff),
        "warnings": diff.warnings,
        "surprises": diff.surprises._asdict(),
        "collectives": [_change_form(one) for one in diff.exchanges],
        "values": [_change_form(one) for one in diff.values],
        "before": _figures_form(diff.before),
        "after": _figures_form(diff.after),
    }
    return write_form(form)


def surprises(diff: Diff) -> dict[str, list[str]]:
    """The surprises that are new, those that are gone, and those of another size."""
    found = diff.surprises
    return {
        "NEW SURPRISES": found.new,
        "SURPRISES GONE": found.gone,
        "SURPRISES OF ANOTHER SIZE": found.resized,
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


def moved(group: Sequence[Exchange | None]) -> str:
    """What exchanges that are alike yield on a device, as `12 × 16 KiB`."""
    found = [one for one in group if one is not None]
    if not found:
        return "–"
    times = sum(one.times for one in found)
    return (f"{times:,} × " if times != 1 else "") + size(found[0].collective.bytes)


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
            lines += [f"{title} ({len(found):,})", *listed(counted(found), MOST_CHANGES)]
    return "\n".join(lines)


def _exchanges(diff: Diff) -> str:
    if not diff.exchanges:
        return "COLLECTIVES: as before"
    groups = exchange_changes(diff.exchanges)
    rows = [
        [
            SIGNS[group[0].what],
            group[0].known.collective.kind,
            axes_of(group[0].known),
            moved([one.before for one in group]),
            moved([one.after for one in group]),
            place(group[0].known.source),
            group[0].known.cause.removesuffix(f" at {place(group[0].known.source)}"),
        ]
        for group in groups
    ]
    return _section("COLLECTIVES", groups, table(_EXCHANGE_COLUMNS, rows[:MOST_CHANGES]))


def _values(diff: Diff) -> str:
    if not diff.values:
        return "VALUES: as before"
    groups = value_changes(diff.values)
    rows = [
        [
            SIGNS[group[0].what],
            group[0].known.role,
            name_of([one.known for one in group]),
            cut(group[0].before, group[0].after),
            cut(group[0].after, group[0].before),
        ]
        for group in groups
    ]
    return _section("VALUES", groups, table(_VALUE_COLUMNS, rows[:MOST_CHANGES]))


def _section(title: str, groups: Sequence[Sequence[Change]], shown: str) -> str:
    kinds = Counter(one.what for group in groups for one in group)
    said = ", ".join(f"{kinds[what]:,} {what}" for what in SIGNS if kinds[what])
    left = sum(len(group) for group in groups[MOST_CHANGES:])
    more = f"\n… and {left:,} more: diff.json()" if left else ""
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
