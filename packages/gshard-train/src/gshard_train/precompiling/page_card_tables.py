"""The tables of a cost card's page: collectives, and what takes the room."""

from html import escape

from gshard_annotate.inspector.page_tables import Heading, cell, table_section, wrapping
from gshard_annotate.inspector.quantities import duration, percent, size
from gshard_train.precompiling.card import CostCard
from gshard_train.precompiling.exchange_sums import ExchangeSum
from gshard_train.precompiling.rooms import Room

_EXCHANGES: tuple[Heading, ...] = (
    ("Kind", False),
    ("Mesh axes", False),
    ("In all", True),
    ("Times", True),
    ("Time", True),
    ("Share", True),
    ("Source", False),
    ("Cause", False),
)
_ARRAYS: tuple[Heading, ...] = (
    ("What", False),
    ("A device", True),
    ("Shape", False),
    ("Split over", False),
    ("Name", False),
    ("Source", False),
)


def exchanges_section(card: CostCard) -> str:
    """The collectives; "" where nothing was compiled."""
    if not card.is_compiled:
        return ""
    if not card.exchanges:
        return '<section id="collectives"><h2>No collectives</h2></section>'
    runs = sum(one.times for one in card.exchanges)
    moved = size(sum(one.bytes for one in card.exchanges))
    title = f"Collectives: {runs:,} runs, {moved} in all on a device"
    rows = [_exchange(one, card.step_seconds) for one in card.exchanges]
    return table_section("collectives", title, _EXCHANGES, rows)


def _exchange(one: ExchangeSum, step_seconds: float | None) -> str:
    share = one.seconds / step_seconds if one.seconds is not None and step_seconds else None
    bar = f'<span class="bar" style="--v:{100 * (share or 0):.1f}"></span>'
    wrong = escape(one.surprise)
    flag = f' <span class="flag" title="{wrong}">surprise</span>' if wrong else ""
    cells = [
        f"<td>{escape(one.kind)}{flag}</td>",
        cell(escape(", ".join(one.mesh_axes) or f"groups of {one.group_size}")),
        cell(size(one.bytes), one.bytes),
        cell(f"{one.times:,}", one.times),
        cell(duration(one.seconds), one.seconds or 0.0),
        cell(f"{bar}{percent(share)}", share or 0.0),
        cell(f'<span class="source"><code>{escape(one.source)}</code></span>'),
        cell(f"<code>{wrapping(one.cause)}</code>"),
    ]
    flagged = ' class="flagged"' if wrong else ""
    return f"<tr{flagged}>{''.join(cells)}</tr>\n"


def arrays_section(card: CostCard) -> str:
    """What takes most of a device's memory."""
    if not card.rooms:
        return ""
    sourced = any(one.source for one in card.rooms)
    headings = [one for one in _ARRAYS if sourced or one[0] != "Source"]
    rows = [_array(one, sourced) for one in card.rooms]
    return table_section("arrays", "What takes the room", headings, rows)


def _array(one: Room, sourced: bool) -> str:
    cells = [
        cell(escape(one.what)),
        cell(size(one.bytes), one.bytes),
        cell(f"<code>{wrapping(one.shape)}</code>"),
        cell(escape(one.split)),
        cell(f"<code>{wrapping(one.names)}</code>"),
    ]
    if sourced:
        source = f'<span class="source"><code>{escape(one.source)}</code></span>'
        cells.append(cell(source if one.source else ""))
    return f"<tr>{''.join(cells)}</tr>\n"
