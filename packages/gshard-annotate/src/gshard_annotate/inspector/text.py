"""A report as text: surprises, collectives, values, memory and work, in lines of 120 letters."""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from gshard_annotate.checks import describe_mesh
from gshard_annotate.inspector.columns import WIDTH, Column, table
from gshard_annotate.inspector.cuts import brief, same
from gshard_annotate.inspector.grouping import (
    exchange_groups,
    name_of,
    surprise_groups,
    value_groups,
)
from gshard_annotate.inspector.quantities import duration, number, percent, place, plural, size
from gshard_annotate.inspector.report import Exchange, Report, Value
from gshard_annotate.inspector.scope_sums import scope_sums

MOST_SURPRISES, MOST_EXCHANGES, MOST_VALUES, MOST_SCOPES = 20, 30, 40, 20

_EXCHANGE_COLUMNS = (
    Column(""),
    Column("kind"),
    Column("mesh axes", shrinks=2),
    Column("a device", right=True),
    Column("times", right=True),
    Column("time", right=True),
    Column("share", right=True),
    Column("source"),
    Column("cause", shrinks=3),
)
_VALUE_COLUMNS = (
    Column(""),
    Column("role"),
    Column("name", shrinks=4),
    Column("shape", shrinks=3),
    Column("asked", shrinks=3),
    Column("compiled", shrinks=3),
    Column("a device", right=True),
    Column("source"),
)
_SCOPE_COLUMNS = (
    Column("scope", shrinks=2),
    Column("pass"),
    Column("mostly", shrinks=1),
    Column("work", right=True),
    Column("accessed", right=True),
    Column("time", right=True),
    Column("share", right=True),
)


def report_text(report: Report) -> str:
    """What `print(report)` shows."""
    parts = [
        head(report),
        _surprises(report),
        _exchanges(report),
        _values(report),
        _memory(report),
        _work(report),
    ]
    if report.operations:
        parts.append(_scopes(report))
    if report.notes:
        parts.append("\n".join(["NOTES", *listed(report.notes, len(report.notes))]))
    return "\n\n".join(parts)


def head(report: Report) -> str:
    """The function, and what it was compiled for."""
    devices = plural(math.prod(report.mesh.values()), f"{report.platform.upper()} device")
    mesh = f"mesh {describe_mesh(report.mesh)} ({devices})"
    chip = f"chip {report.chip}" if report.chip else "no chip named, so no times"
    return f"{report.title}\n{mesh}, {chip}, compiled in {duration(report.compile_seconds)}"


def totals(exchanges: Iterable[Exchange]) -> dict[str, int]:
    """The bytes on one device that each kind of collective yields in a call."""
    found: Counter[str] = Counter()
    for one in exchanges:
        found[one.collective.kind] += one.collective.bytes * one.times
    return dict(sorted(found.items()))


def axes_of(exchange: Exchange) -> str:
    """The mesh axes that an exchange runs over, or how many devices take part."""
    return ", ".join(exchange.mesh_axes) or f"groups of {exchange.group_size}"


def outcome(value: Value) -> str:
    """What became of a value: its sharding in the program, shortly when that was asked for."""
    if value.compiled is None:
        return "not there"
    return "as asked" if same(value.asked, value.compiled) else brief(value.compiled, value.shape)


def listed(sentences: Sequence[str], most: int) -> list[str]:
    """Numbered lines, wrapped; those beyond the first `most` are counted."""
    lines: list[str] = []
    for position, sentence in enumerate(sentences[:most], start=1):
        mark = f"  {position}. "
        lines += textwrap.wrap(
            sentence, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark)
        )
    if (left := len(sentences) - most) > 0:
        lines.append(f"  … and {left:,} more: report.json()")
    return lines


def _surprises(report: Report) -> str:
    count, accepted = len(report.surprises), len(report.accepted)
    if not count and accepted:
        return f"NO SURPRISES but {accepted:,} that you accept"
    if not count:
        return "NO SURPRISES: what was compiled is what was asked for"
    found = [one.sentence for one in surprise_groups(report)]
    more = f", and {accepted:,} that you accept" if accepted else ""
    return "\n".join([f"SURPRISES ({count:,}){more}", *listed(found, MOST_SURPRISES)])


def _exchanges(report: Report) -> str:
    if not report.exchanges:
        return "COLLECTIVES: none"
    runs: Counter[str] = Counter()
    for one in report.exchanges:
        runs[one.collective.kind] += one.times
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(runs.items()))
    moved = size(sum(totals(report.exchanges).values()))
    groups = exchange_groups(report.exchanges)
    shown = groups[:MOST_EXCHANGES]
    lines = [
        f"COLLECTIVES: {kinds}; {moved} on a device",
        table(_EXCHANGE_COLUMNS, [_exchange_row(group) for group in shown]),
    ]
    if left := sum(len(group) for group in groups[MOST_EXCHANGES:]):
        lines.append(f"… and {left:,} more: report.json()")
    return "\n".join(lines)


def _exchange_row(group: Sequence[Exchange]) -> list[str]:
    one = group[0]
    timed = one.seconds is not None
    return [
        "!" if one.surprise else "",
        one.collective.kind,
        axes_of(one),
        size(one.collective.bytes),
        f"{sum(each.times for each in group):,}",
        duration(sum(each.seconds or 0.0 for each in group)) if timed else "",
        percent(sum(each.share or 0.0 for each in group)) if timed else "",
        place(one.source),
        one.cause.removesuffix(f" at {place(one.source)}"),
    ]


def _values(report: Report) -> str:
    if not report.values:
        return "VALUES: none"
    groups = value_groups(report.values)
    shown = _most_telling(groups, MOST_VALUES)
    differing = sum(bool(value.note) for value in report.values)
    lines = [
        f"VALUES: {len(report.values):,}, {differing or 'none'} otherwise than asked",
        table(_VALUE_COLUMNS, [_value_row(group) for group in shown]),
    ]
    if left := len(report.values) - sum(len(group) for group in shown):
        lines.append(f"… and {left:,} more, smaller and as asked: report.json()")
    return "\n".join(lines)


def _most_telling(groups: list[list[Value]], most: int) -> list[list[Value]]:
    """Those with a note first, then the largest, in the program's order."""
    if len(groups) <= most:
        return groups
    weights = [
        (bool(group[0].note), sum(value.bytes_per_device for value in group)) for group in groups
    ]
    kept = sorted(range(len(groups)), key=lambda i: weights[i], reverse=True)[:most]
    return [groups[i] for i in sorted(kept)]


def _value_row(group: Sequence[Value]) -> list[str]:
    one = group[0]
    return [
        "!" if one.note else "",
        one.role,
        name_of(group),
        one.shape,
        "open" if one.asked is None else brief(one.asked, one.shape),
        outcome(one),
        size(one.bytes_per_device),
        place(one.source),
    ]


def _scopes(report: Report) -> str:
    sums = scope_sums(report)
    what = "TIME" if report.cost.step_seconds is not None else "WORK"
    rows = [
        [
            one.scope,
            one.during,
            one.largest,
            number(one.flops, "FLOP") if one.flops else "",
            size(one.bytes_accessed),
            duration(one.seconds) if one.seconds is not None else "",
            percent(one.share) if one.share is not None else "",
        ]
        for one in sums[:MOST_SCOPES]
    ]
    lines = [f"{what} BY SCOPE, without collectives", table(_SCOPE_COLUMNS, rows)]
    if left := len(sums) - MOST_SCOPES:
        lines += [f"… and {left:,} more, smaller: report.json()"] if left > 0 else []
    return "\n".join(lines)


def _memory(report: Report) -> str:
    memory = report.memory
    limit = (
        f" of {size(memory.limit)} ({percent(memory.peak / memory.limit)})" if memory.limit else ""
    )
    over = "; IT DOES NOT FIT" if memory.limit and memory.peak > memory.limit else ""
    aliased = f" ({size(memory.aliased)} of it in donated arguments)" if memory.aliased else ""
    return (
        f"MEMORY of a device: {size(memory.peak)}{limit}{over}\n"
        f"  arguments {size(memory.arguments)}, results {size(memory.results)}{aliased}, "
        f"temporaries {size(memory.temporaries)}"
    )


def _work(report: Report) -> str:
    cost = report.cost
    done = f"{number(cost.flops, 'FLOP')}, {size(cost.bytes_accessed)} accessed"
    ratio = cost.flops / cost.bytes_accessed if cost.bytes_accessed else None
    lines = [f"WORK of a device: {done}" + (f", {number(ratio)} FLOP a byte" if ratio else "")]
    if cost.step_seconds is not None:
        lines.append(
            f"  estimated step {duration(cost.step_seconds)}: "
            f"compute {duration(cost.compute_seconds)}, memory {duration(cost.memory_seconds)}, "
            f"collectives {duration(cost.collective_seconds)}"
        )
    return "\n".join(lines)
