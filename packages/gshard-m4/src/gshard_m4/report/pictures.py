"""The report's pictures as PNG and SVG files, drawn with matplotlib.

The same numbers give the same bytes: no dates, no random ids, none of the user's matplotlib
settings. Colours are those of the page's light scheme, and systems differ in marks and dashes too.
"""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gshard_m4.report.axes import extent, log_ticks, short_count
from gshard_m4.report.heat_map import Row, palette
from gshard_m4.report.labels import place_labels
from gshard_m4.report.scatter_picture import by_surprise
from gshard_m4.report.series import Point, Series, in_order, measured, order_of, trend_rule
from gshard_m4.report.trend_picture import trend_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _SOFT, _LINE, _STRIP = "#1c2024", "#5d666f", "#dfe2e0", "#f2f4f2"
_COLOURS = ("#0b6e69", "#c4500a", "#3b4cc0", "#a8307f", "#6b6b00", "#111827")
_MARKS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", (0, (5, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)), (0, (3, 1.5)), (0, (9, 3)))
_DPI = 150
_UPRIGHT_FROM = 40
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "gshard-m4",
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "text.color": _INK,
}


def trend_file(
    series: Sequence[Series], *, measure: str, against: str = "", smooth: bool = True
) -> "Figure":
    """The picture of `trend_picture`; the size of some language must be known."""
    order = order_of(series)
    places = {point.code: place for place, point in enumerate(order)}
    figure, axes = _blank(measured(measure, against, series))
    _strips(axes, order)
    for one in in_order(series):
        at = [(places[point.code], point.value) for point in one.points]
        _draw(axes, at, trend_places(one, places) if smooth else at, one)
    axes.set_xlim(-0.5, len(order) - 0.5)
    low, high = extent([p.value for one in series for p in one.points], zero=bool(against))
    axes.set_ylim(low, high + 0.06 * (high - low))  # room for the names of bands
    if against:
        axes.axhline(0, color=_INK, linewidth=1, zorder=1)
    _codes(axes, [point.code for point in order])
    most, least = (short_count(order[end].size or 0) for end in (0, -1))
    below = f"languages, from most {series[0].size_of.unit} ({most}) to least ({least})"
    rule = trend_rule(max(len(one.points) for one in series)) if smooth else ""
    axes.set_xlabel(f"{below}\n{rule}".strip(), fontsize=8, labelpad=24)
    _legend(axes, series)
    return figure


def scatter_file(series: Sequence[Series], *, measure: str, against: str = "") -> "Figure":
    """The picture of `scatter_picture`; the size of some language must be known."""
    shown = in_order(series)
    points = [point for one in shown for point in one.points]
    figure, axes = _blank(measured(measure, against, series))
    for one in shown:
        _draw(axes, [(_size(point), point.value) for point in one.points], [], one)
    ticks = log_ticks(min(map(_size, points)), max(map(_size, points)))
    axes.set_xscale("log")
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_xticks(ticks, [short_count(tick) for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color=_LINE, linewidth=0.7)
    axes.set_ylim(*extent([point.value for point in points], zero=bool(against)))
    axes.set_xlabel(f"{series[0].size_of.unit}, logarithmic")
    if len(shown) == 1:
        _label(axes, by_surprise(points))
    _legend(axes, series)
    return figure


def heat_file(rows: Sequence[Row], *, layer: str) -> "Figure":
    """The picture of `heat_map`."""
    from matplotlib.colors import ListedColormap, PowerNorm
    from matplotlib.figure import Figure

    colours = ListedColormap([tuple(part / 255 for part in each) for each in palette()])
    height = max(2.4, 1.0 + 0.115 * len(rows))
    figure = Figure(figsize=(11, height))
    axes = figure.add_axes((0.12, 0.62 / height, 0.77, 1 - 1.0 / height))
    most = max(max(row.shares) for row in rows)
    image = axes.imshow(
        [row.shares for row in rows],
        aspect="auto",
        interpolation="nearest",
        cmap=colours,
        norm=PowerNorm(0.5, 0, most),
    )
    axes.set_yticks([])
    side = axes.get_yaxis_transform()
    for place, row in enumerate(rows):
        axes.text(-0.006, place, row.name, transform=side, ha="right", va="center", fontsize=6.5)
    axes.set_xlabel("expert")
    figure.text(0.12, 1 - 0.3 / height, f"Experts of {layer} by language", fontsize=9)
    axes.tick_params(length=0)
    tall = min(1.6 / height, 1 - 1.0 / height)
    bar = figure.add_axes((0.905, 1 - 0.38 / height - tall, 0.012, tall))
    figure.colorbar(image, cax=bar).set_label("share of the language's choices", fontsize=7)
    bar.tick_params(labelsize=7)
    return figure


def files(drawn: Callable[[], Iterable[tuple[str, "Figure"]]]) -> dict[str, bytes]:
    """Every figure that `drawn` yields, as PNG and SVG, by the names of their files.

    Stems keep letters, digits, `_`, `-` and `.`; of stems that become the same, later ones get a
    number. Drawing happens inside, under settings that are nobody's but the report's.
    """
    import matplotlib

    found: dict[str, bytes] = {}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        for stem, figure in drawn():
            plain = re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII)
            name, number = plain, 2
            while f"{name}.png" in found:
                name, number = f"{plain}-{number}", number + 1
            found |= {f"{name}.{kind}": data for kind, data in _rendered(figure).items()}
    return found


def _rendered(figure: "Figure") -> dict[str, bytes]:
    found = {}
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=_DPI, metadata=metadata)
        found[kind] = out.getvalue()
    return found


def _blank(title: str) -> tuple["Figure", "Axes"]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6))
    axes = figure.add_axes((0.05, 0.17, 0.935, 0.74))
    figure.text(0.05, 0.93, title, fontsize=9)
    axes.grid(axis="y", color=_LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure, axes


def _codes(axes: "Axes", codes: Sequence[str]) -> None:
    """Codes below the axis, upright where there are many.

    As texts, because drawing a tick of matplotlib's for each takes twice the time.
    """
    axes.set_xticks([])
    many = len(codes) > _UPRIGHT_FROM
    for place, code in enumerate(codes):
        axes.text(
            place, -0.015, code, transform=axes.get_xaxis_transform(), ha="center", va="top",
            rotation=90 if many else 0, fontsize=6.2 if many else 8, color=_SOFT,
        )  # fmt: skip


def _draw(
    axes: "Axes",
    at: Sequence[tuple[float, float]],
    line: Sequence[tuple[float, float]],
    series: Series,
) -> None:
    """A system's points and, where there is one, its line; both under its name in the legend."""
    index = series.style
    colour = _COLOURS[index % len(_COLOURS)]
    mark = {"marker": _MARKS[index % len(_MARKS)], "markersize": 4, "color": colour}
    axes.plot(*zip(*at, strict=True), linestyle="", alpha=0.6, **mark)
    xs, ys = zip(*line, strict=True) if line else ((), ())
    dashes = _DASHES[index % len(_DASHES)] if line else ""
    axes.plot(xs, ys, linestyle=dashes, color=colour, linewidth=1.8)
    # Never seen; it gives the legend both the mark and the dashes.
    axes.plot([], [], linestyle=dashes, linewidth=1.8, label=series.name, **mark)


def _legend(axes: "Axes", series: Sequence[Series]) -> None:
    if len(series) > 1:
        axes.legend(
            loc="lower right", bbox_to_anchor=(1, 1), ncols=min(len(series), 4), fontsize=8,
            frameon=False, borderaxespad=0.2, handlelength=3,
        )  # fmt: skip


def _strips(axes: "Axes", order: Sequence[Point]) -> None:
    """Every other resource band shaded, all of them named inside at the top."""
    bands = [point.band for point in order]
    edges = [i for i in range(len(bands)) if i == 0 or bands[i] != bands[i - 1]] + [len(bands)]
    if len(edges) - 1 != len(set(bands)):
        return
    for number, (start, end) in enumerate(pairwise(edges)):
        if number % 2 == 0 and len(edges) > 2:
            axes.axvspan(start - 0.5, end - 0.5, color=_STRIP, zorder=0, linewidth=0)
        axes.text(
            (start + end - 1) / 2, 0.99, bands[start], transform=axes.get_xaxis_transform(),
            ha="center", va="top", fontsize=8, color=_SOFT,
        )  # fmt: skip


def _label(axes: "Axes", points: Sequence[Point]) -> None:
    """Codes beside the points that have room, those farthest from the trend first."""
    per_point = axes.figure.dpi / 72
    places = axes.transData.transform([(_size(point), point.value) for point in points])
    box = axes.get_window_extent()
    placed = place_labels(
        [(x / per_point, -y / per_point) for x, y in places],
        [point.code for point in points],
        letter=4.3,
        height=7.5,
        gap=3.2,
        area=(box.x0 / per_point, -box.y1 / per_point, box.x1 / per_point, -box.y0 / per_point),
    )
    back = axes.transData.inverted()
    for index, left, baseline in placed:
        x, y = back.transform((left * per_point, -baseline * per_point))
        axes.text(x, y, points[index].code, fontsize=6.5)


def _size(point: Point) -> int:
    return max(point.size or 0, 1)
