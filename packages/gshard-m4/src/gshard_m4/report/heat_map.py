"""Which experts the tokens of each language went to: one map a layer of experts.

Rows are languages, columns experts; a cell is the share of the language's choices that the
expert got. A map is one small PNG of as many pixels as cells, which stays light with thousands of
experts.
"""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gshard_m4.report import svg

LEVELS = 256
_STOPS = (  # dark to light through one hue after another, in even steps of lightness
    (13, 20, 51),
    (38, 61, 110),
    (62, 106, 142),
    (72, 151, 155),
    (122, 191, 150),
    (196, 222, 146),
    (252, 248, 196),
)
_ROW, _FEW_ROWS, _TALL_ROW = 11, 30, 18  # heights of a language's row, in the picture's units
_TOP, _LEFT, _RIGHT, _BOTTOM = 22, 130, 84, 40
_MOST_USED = 3
_MOST_TICKS = 16


@dataclass(frozen=True)
class Row:
    """A language's choices in one layer: `shares[e]` went to expert e, together 1."""

    code: str
    name: str
    shares: tuple[float, ...]


def heat_map(rows: Sequence[Row], *, key: str, layer: str) -> str:
    """The map of one layer with its numbers in a table, as HTML.

    Colours go with the square root of the share, up to the largest of any language, because
    among many experts most shares are small.
    """
    most = max(max(row.shares) for row in rows)
    count = len(rows[0].shares)
    height = _TOP + len(rows) * _row_height(rows) + _BOTTOM
    return svg.figure(
        key=key,
        title=f"Experts of {layer} by language",
        description=_description(rows, most),
        height=height,
        body=_map(rows, most, count) + _names(rows) + _experts(count, height) + _scale(most),
        below=_description(rows, most),
    ) + _table(rows, layer)


def _map(rows: Sequence[Row], most: float, count: int) -> str:
    image = png(levels([row.shares for row in rows], most))
    return (
        f'<image href="{data_address(image)}" x="{_LEFT}" y="{_TOP}" width="{_width()}" '
        f'height="{len(rows) * _row_height(rows)}" preserveAspectRatio="none" class="pixels"/>'
    )


def _row_height(rows: Sequence[Row]) -> int:
    return _TALL_ROW if len(rows) <= _FEW_ROWS else _ROW


def _width() -> int:
    return svg.WIDTH - _LEFT - _RIGHT


def _names(rows: Sequence[Row]) -> str:
    height = _row_height(rows)
    return "".join(
        f'<text class="name" x="{_LEFT - 6}" y="{_TOP + (place + 0.5) * height + 3.5:.1f}" '
        f'text-anchor="end">{escape(row.name)}</text>'
        for place, row in enumerate(rows)
    )


def _experts(count: int, height: int) -> str:
    """Numbers of experts below the map, as many as there is room for."""
    every = 2 ** max(0, math.ceil(math.log2(count / _MOST_TICKS)))
    marks = "".join(
        f'<text class="tick" x="{_LEFT + (number + 0.5) / count * _width():.1f}" '
        f'y="{height - _BOTTOM + 15}" text-anchor="middle">{number}</text>'
        for number in range(0, count, every)
    )
    title = (
        f'<text class="axis-title" x="{_LEFT + _width()}" y="{height - 6}" '
        'text-anchor="end">expert</text>'
    )
    return marks + title


def _scale(most: float) -> str:
    """What the colours mean, right of the map."""
    x, height = svg.WIDTH - _RIGHT + 22, 110
    image = png([bytes([level]) for level in range(LEVELS - 1, -1, -1)])
    texts = "".join(
        f'<text class="tick" x="{x + 17}" y="{_TOP + 4 + height * (1 - part):.1f}">'
        f"{_percent(part * part * most)}</text>"
        for part in (0, 0.25, 0.5, 0.75, 1)
    )
    return (
        f'<image href="{data_address(image)}" x="{x}" y="{_TOP}" width="12" height="{height}" '
        f'preserveAspectRatio="none"/>{texts}'
    )


def _description(rows: Sequence[Row], most: float) -> str:
    count = len(rows[0].shares)
    used = [effective_experts(row.shares) for row in rows]
    top = max(rows, key=lambda row: max(row.shares))
    expert = top.shares.index(max(top.shares))
    return (
        f"Share of a language's choices that each of {count} experts got; evenly used, each would "
        f"get {_percent(1 / count)}. The largest is {_percent(most)}: {top.name} at expert "
        f"{expert}. Languages use {min(used):.1f} to {max(used):.1f} experts' worth (exponential "
        "of the entropy). Colours go with the square root of the share."
    )


def _table(rows: Sequence[Row], layer: str) -> str:
    count = min(_MOST_USED, len(rows[0].shares))
    body = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th>'
        f'<td class="number">{effective_experts(row.shares):.1f}</td>{_most_used(row, count)}</tr>'
        for row in rows
    )
    heads = "".join(
        f'<th scope="col" class="number">{word}</th>'
        for word in ("Experts' worth", *("Most used", "Second", "Third")[:count])
    )
    return (
        f'<details><summary><span class="name">Numbers of {escape(layer)}</span></summary>'
        f'<div class="wide"><table class="small-table"><thead><tr><th scope="col">Language</th>'
        f"{heads}</tr></thead><tbody>{body}</tbody></table></div></details>\n"
    )


def _most_used(row: Row, count: int) -> str:
    order = sorted(range(len(row.shares)), key=lambda expert: (-row.shares[expert], expert))
    return "".join(
        f'<td class="number">{expert}: {_percent(row.shares[expert])}</td>'
        for expert in order[:count]
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def effective_experts(shares: Sequence[float]) -> float:
    """How many evenly used experts have the same entropy as these shares."""
    return math.exp(-sum(share * math.log(share) for share in shares if share > 0))


def palette() -> list[tuple[int, ...]]:
    """The colours of a map, from nothing to the largest share; in order in grey as well."""
    found = []
    for level in range(LEVELS):
        place = level / (LEVELS - 1) * (len(_STOPS) - 1)
        low = min(int(place), len(_STOPS) - 2)
        pairs = zip(_STOPS[low], _STOPS[low + 1], strict=True)
        found.append(tuple(round(a + (b - a) * (place - low)) for a, b in pairs))
    return found


def levels(rows: Sequence[Sequence[float]], most: float) -> list[bytes]:
    """The shares as numbers of colours, by their square roots; `most` has the last."""
    scale = (LEVELS - 1) / math.sqrt(most)
    return [bytes(round(math.sqrt(share) * scale) for share in row) for row in rows]


def png(rows: Sequence[bytes]) -> bytes:
    """A PNG image of one pixel a number, coloured by `palette`."""
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    colours = bytes(part for colour in palette() for part in colour)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def data_address(image: bytes) -> str:
    """The image as an address that holds all of it."""
    return f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
