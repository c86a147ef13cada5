"""The pictures of the page: the mesh, the step's time, memory, and how a value is cut."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from gshard_annotate.inspector.cuts import Cut, copies, cuts
from gshard_annotate.inspector.quantities import duration, percent, plural, size
from gshard_annotate.inspector.report import Memory, Report

_MOST_CELLS = 32
_MOST_BLOCKS = 4
# One segment of a bar: its class, what it is called, its length, its length as text.
Segment = tuple[str, str, float, str]


def mesh_drawing(mesh: Mapping[str, int]) -> str:
    """The devices as a grid: the last axis across, the one before down, the others as blocks."""
    axes = list(mesh.items()) or [("device", 1)]
    across, down = axes[-1], axes[-2] if len(axes) > 1 else None
    rows = min(down[1] if down else 1, _MOST_CELLS)
    columns = min(across[1], _MOST_CELLS)
    cell = max(4, min(18, 160 // max(rows, columns)))
    outer = math.prod(number for _, number in axes[:-2])
    width, height = columns * cell, rows * cell
    blocks = "".join(
        f'<svg width="{width + 1}" height="{height + 1}" aria-hidden="true">'
        f'<defs><pattern id="cell-{i}" width="{cell}" height="{cell}" '
        f'patternUnits="userSpaceOnUse"><rect width="{cell - 1.5}" height="{cell - 1.5}" '
        f'x="1" y="1" rx="2"/></pattern></defs>'
        f'<rect width="{width}" height="{height}" fill="url(#cell-{i})"/></svg>'
        for i in range(min(outer, _MOST_BLOCKS))
    )
    directions = [f"<b>{escape(name)}</b> {number:,}" for name, number in axes]
    notes = ["across"] if len(axes) == 1 else [*["blocks"] * (len(axes) - 2), "down", "across"]
    listed = "".join(
        f'<li>{text} <span class="soft">{note}</span></li>'
        for text, note in zip(directions, notes, strict=True)
    )
    cut_off = outer > _MOST_BLOCKS or any(number > _MOST_CELLS for _, number in axes[-2:])
    note = '<p class="small soft">The drawing shows a part.</p>' if cut_off else ""
    return (
        f'<figure class="mesh"><div class="blocks">{blocks}</div><figcaption>'
        f"<p>Mesh</p><ul>{listed}</ul>{note}</figcaption></figure>"
    )


def step_bar(report: Report) -> str:
    """The estimated step: work on the device, then each kind of collective."""
    cost = report.cost
    if not cost.step_seconds:
        return ""
    seconds: Counter[str] = Counter()
    for one in report.exchanges:
        seconds[one.collective.kind] += one.seconds or 0.0  # type: ignore[assignment]
    work = max(0.0, cost.step_seconds - (cost.collective_seconds or 0.0))
    spent = [("work", "compute and memory", work), *((k, k, s) for k, s in seconds.most_common())]
    segments = [
        (kind, name, each, f"{duration(each)}, {percent(each / cost.step_seconds)}")
        for kind, name, each in spent
    ]
    compute, memory = cost.compute_seconds or 0.0, cost.memory_seconds or 0.0
    longer = "memory" if memory > compute else "compute"
    note = (
        f"At the chip's peak, compute alone takes {duration(compute)} and memory alone "
        f"{duration(memory)}: between exchanges, {longer} is the limit."
    )
    title = f"Estimated step, {duration(cost.step_seconds)}"
    return stacked_bar(title, segments, cost.step_seconds) + f'<p class="small soft">{note}</p>'


def memory_bar(memory: Memory) -> str:
    """What one device holds, against what it has."""
    fresh = max(0, memory.results - memory.aliased)
    name = "results, without those in donated arguments" if memory.aliased else "results"
    held = [
        ("arguments", "arguments", memory.arguments),
        ("results", name, fresh),
        ("temporaries", "temporaries", memory.temporaries),
    ]
    segments: list[Segment] = [(kind, name, each, size(each)) for kind, name, each in held]
    used = max(memory.peak, sum(each for _, _, each in held))
    # Against a limit that is far away nothing could be seen.
    total = max(used, memory.limit or 0) if 50 * used > (memory.limit or 0) else used
    title = f"Memory at its peak, {size(memory.peak)}"
    note = ""
    if memory.limit:
        title += f" of {size(memory.limit)} ({percent(memory.peak / memory.limit)})"
        left = memory.limit - memory.peak
        note = (
            f"{size(left)} free." if left >= 0 else f"Too much by {size(-left)}: it will not fit."
        )
        if total < memory.limit:
            note = f"The bar shows what is used; {note}"
        note = f'<p class="small {"soft" if left >= 0 else "warn"}">{note}</p>'
    return stacked_bar(title, segments, total, memory.limit) + note


def cut_drawing(shape: str, sharding: str | None, mesh: Mapping[str, int]) -> str:
    """A bar for each dimension of a value, in its parts, those of one device filled."""
    found = cuts(shape, sharding, mesh)
    if not found:
        return ""
    dims = "".join(map(_dimension, found))
    each = copies(found, mesh)
    same = f'<span class="copies">{plural(each, "copy").replace("copys", "copies")}</span>'
    return f'<span class="cut">{dims}{same if each > 1 else ""}</span>'


def stacked_bar(
    title: str, segments: Sequence[Segment], total: float, limit: float | None = None
) -> str:
    """A bar of segments under its title, with what they are below; a mark where a limit is."""
    shown = [one for one in segments if one[2] > 0]
    scale = 100 / (total or 1)
    starts = itertools.accumulate((one[2] for one in shown), initial=0.0)
    drawn = "".join(
        f'<rect class="{escape(kind)}" height="100%" x="{start * scale:.3f}%" '
        f'width="{length * scale:.3f}%"/>'
        for (kind, _, length, _), start in zip(shown, starts, strict=False)
    )
    if limit and limit < total:
        drawn += f'<rect class="limit" x="{limit * scale:.3f}%" width="2" height="100%"/>'
    listed = "".join(
        f'<li><span class="key {escape(kind)}"></span>{escape(name)} <b>{text}</b></li>'
        for kind, name, _, text in shown
    )
    return (
        f'<h3>{title}</h3><svg class="stack" width="100%" height="22" aria-hidden="true">'
        f'{drawn}</svg><ul class="keys">{listed}</ul>'
    )


def _dimension(cut: Cut) -> str:
    over = "+".join(cut.axes)
    label = f"{cut.size:,} ÷ {cut.parts:,}" if cut.axes else f"{cut.size:,}"
    axes = f"<small>{escape(over)}</small>" if over else ""
    parts = min(cut.parts, _MOST_CELLS)
    return f'<span class="dim"><i style="--n:{parts}"></i>{label}{axes}</span>'
