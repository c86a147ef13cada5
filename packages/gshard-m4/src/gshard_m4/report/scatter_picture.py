"""Scores against how much text there is, one point a language, on a logarithmic axis."""

import math
import statistics
from collections.abc import Sequence
from html import escape

from gshard_m4.report import svg
from gshard_m4.report.axes import extent, linear_ticks, log_ticks, short_count
from gshard_m4.report.labels import place_labels
from gshard_m4.report.series import Point, Series, in_order, left_out, measured
from gshard_m4.report.trend_picture import tip

_HEIGHT = 460
_LETTER = 6.2


def scatter_picture(series: Sequence[Series], *, key: str, measure: str, against: str = "") -> str:
    """The picture as HTML; empty where the size of no language is known."""
    shown = in_order(series)
    points = [point for one in shown for point in one.points]
    if not points:
        return ""
    across = log_ticks(min(map(_size, points)), max(map(_size, points)))
    y_range = extent([point.value for point in points], zero=bool(against))
    x_range = (math.log10(across[0]), math.log10(across[-1]))
    frame = svg.Frame(x_range, y_range, _HEIGHT, bottom=44)
    places = [[_place(point, frame) for point in one.points] for one in shown]
    marks = "".join(
        f'<g class="{svg.style(one)}">'
        + "".join(
            svg.mark(x, y, one.style, code=point.code, tip=tip(point, one, bool(against)))
            for (x, y), point in zip(places[index], one.points, strict=True)
        )
        + "</g>"
        for index, one in enumerate(shown)
    )
    # Labels of several systems would be the same words beside every mark.
    labels = _labels(shown[0].points, frame) if len(shown) == 1 else ""
    title = measured(measure, against, series)
    y_axis = svg.y_axis(frame, linear_ticks(*y_range), title, zero=bool(against))
    picture = svg.figure(
        key=key,
        title=f"{title} against {shown[0].size_of.unit}",
        description=f"{correlations(shown)} The table has every number.".strip(),
        height=_HEIGHT,
        body=_x_axis(frame, across, shown[0].size_of.unit) + y_axis + marks + labels,
        below=f"Points are languages; a code stands where there is room. {correlations(shown)} "
        f"{left_out(series)}".strip(),
    )
    return svg.legend(series, line=False) + picture


def correlations(series: Sequence[Series]) -> str:
    """How far the values of each system go with the logarithm of the sizes, in words."""
    found = []
    for one in series:
        values = [point.value for point in one.points]
        sizes = [math.log10(_size(point)) for point in one.points]
        if len(set(values)) > 1 and len(set(sizes)) > 1:
            who = f"{one.name}: " if len(series) > 1 else ""
            found.append(f"{who}{statistics.correlation(sizes, values):.2f}".replace("-", "\u2212"))
    if not found:
        return ""
    return f"Correlation with the logarithm of {series[0].size_of.unit}: {', '.join(found)}."


def by_surprise(points: Sequence[Point]) -> list[Point]:
    """The points, those first that lie farthest from the straight line through all of them."""
    sizes = [math.log10(_size(point)) for point in points]
    if len(set(sizes)) < 2:
        return list(points)
    values = [point.value for point in points]
    slope, start = statistics.linear_regression(sizes, values)
    off = [abs(v - slope * s - start) for v, s in zip(values, sizes, strict=True)]
    order = sorted(range(len(points)), key=lambda index: (-off[index], points[index].code))
    return [points[index] for index in order]


def _labels(points: Sequence[Point], frame: svg.Frame) -> str:
    chosen = by_surprise(points)
    placed = place_labels(
        [_place(point, frame) for point in chosen],
        [point.code for point in chosen],
        letter=_LETTER,
        height=11,
        gap=5,
        area=(frame.left, frame.top, svg.WIDTH, frame.floor),
    )
    return "".join(
        f'<text class="name" x="{x:.1f}" y="{y:.1f}">{escape(chosen[index].code)}</text>'
        for index, x, y in placed
    )


def _size(point: Point) -> int:
    """The size, at least 1: a logarithm has no place for none."""
    return max(point.size or 0, 1)


def _place(point: Point, frame: svg.Frame) -> tuple[float, float]:
    return frame.x(math.log10(_size(point))), frame.y(point.value)


def _x_axis(frame: svg.Frame, ticks: Sequence[int], unit: str) -> str:
    marks = "".join(
        f'<line class="grid" x1="{frame.x(math.log10(tick)):.1f}" y1="{frame.top:g}" '
        f'x2="{frame.x(math.log10(tick)):.1f}" y2="{frame.floor:g}"/><text class="tick" '
        f'x="{frame.x(math.log10(tick)):.1f}" y="{frame.floor + 16:g}" '
        f'text-anchor="{"end" if tick == ticks[-1] else "middle"}">{short_count(tick)}</text>'
        for tick in ticks
    )
    return (
        f'{marks}<text class="axis-title" x="{svg.WIDTH - frame.right:g}" '
        f'y="{frame.height - 5:g}" text-anchor="end">{unit}, logarithmic</text>'
    )
