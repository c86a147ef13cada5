"""The paper's picture: scores or gains of languages, from most training text to least.

GShard, arXiv 2006.16668, Figure 6: gains over bilingual baselines, the trend smoothed with a
window of ten languages. The points themselves are drawn too, since a trend hides single failures.
"""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from gshard_m4.report import svg
from gshard_m4.report.axes import extent, linear_ticks, short_count, signed
from gshard_m4.report.series import (
    Point,
    Series,
    SizeOf,
    in_order,
    left_out,
    measured,
    moving_average,
    order_of,
    trend_rule,
    trend_window,
)

_HEIGHT = 430
_LETTER = 5.9  # width of a letter in a label, in the picture's units
_LEAST_SLOT = 9.5  # what a label needs when it stands upright


def trend_picture(
    series: Sequence[Series], *, key: str, measure: str, against: str = "", smooth: bool = True
) -> str:
    """The picture as HTML; empty where the size of no language is known.

    Args:
      series: one a system; languages without a known size are left out, and named.
      key: begins the ids of the picture.
      measure: what the values are, such as `chrF++` or `BLEU`.
      against: what values are differences to, if they are differences.
      smooth: points with a trend through them; otherwise lines from language to language.
    """
    places = {point.code: place for place, point in enumerate(order_of(series))}
    if not places:
        return ""
    order, difference = order_of(series), bool(against)
    shown = in_order(series)
    values = [point.value for one in shown for point in one.points]
    y_range = extent(values, zero=difference)
    frame = svg.Frame((-0.5, len(order) - 0.5), y_range, _HEIGHT)
    systems = "".join(
        f'<g class="{svg.style(one)}">{_system(one, places, frame, difference, smooth)}</g>'
        for one in shown
    )
    title = measured(measure, against, series)
    y_axis = svg.y_axis(frame, linear_ticks(*y_range), title, zero=difference)
    body = _bands(order, frame) + y_axis + systems + _names(order, frame, shown[0].size_of)
    picture = svg.figure(
        key=key,
        title=f"{title}, languages from most {series[0].size_of.text} to least",
        description=_description(shown, difference),
        height=_HEIGHT,
        body=body,
        below=f"{_below(shown, smooth)} {left_out(series)}".strip(),
    )
    return svg.legend(series, line=True) + picture


def _system(
    series: Series,
    places: dict[str, int],
    frame: svg.Frame,
    difference: bool,
    smooth: bool,
) -> str:
    at = [(places[point.code], point.value) for point in series.points]
    drawn = trend_places(series, places) if smooth else at
    marks = "".join(
        svg.mark(
            frame.x(x),
            frame.y(y),
            series.style,
            code=point.code,
            tip=tip(point, series, difference),
        )
        for (x, y), point in zip(at, series.points, strict=True)
    )
    return marks + svg.line(((frame.x(x), frame.y(y)) for x, y in drawn), series.style)


def trend_places(series: Series, places: dict[str, int]) -> list[tuple[float, float]]:
    """The trend of a system as (place on the axis, mean).

    A window holds ten languages that the system has a value for; its middle is halfway between
    the places of its two middle languages, or at the middle one.
    """
    at = [places[point.code] for point in series.points]
    means = moving_average(
        [point.value for point in series.points], trend_window(len(series.points))
    )
    return [((at[int(x)] + at[int(x + 0.5)]) / 2, mean) for x, mean in means]


def tip(point: Point, series: Series, difference: bool) -> str:
    """What is said about a language when its mark is pointed at."""
    value = signed(point.value) if difference else f"{point.value:.1f}"
    size = "" if point.size is None else f", {point.size:,} {series.size_of.unit}"
    system = f" · {series.name}" if series.name else ""
    return f"{point.name} ({point.code}): {value}{size}{system}"


def _bands(order: Sequence[Point], frame: svg.Frame) -> str:
    """A strip behind each resource band with its name above it."""
    runs = [(band, len(list(points))) for band, points in groupby(order, lambda each: each.band)]
    if len(runs) != len({band for band, _ in runs}):
        return ""  # bands by something else than this size: strips would mislead
    found, start = [], 0
    for band, count in runs:
        left, right = frame.x(start - 0.5), frame.x(start + count - 0.5)
        start += count
        if band:
            found.append(
                f'<rect class="strip" x="{left + 1:.1f}" y="{frame.top:g}" '
                f'width="{right - left - 2:.1f}" height="{frame.floor - frame.top:g}"/>'
                f'<text class="tick" x="{(left + right) / 2:.1f}" y="{frame.top - 5:g}" '
                f'text-anchor="middle">{escape(band)}</text>'
            )
    return "".join(found)


def _names(order: Sequence[Point], frame: svg.Frame, size_of: SizeOf) -> str:
    """Names of the languages if they fit beside each other, else codes, lying or upright."""
    slot = frame.x(1) - frame.x(0)
    names = max(len(point.name) for point in order) * _LETTER < slot
    words = [point.name if names else point.code for point in order]
    upright = max(map(len, words)) * _LETTER + 4 > slot
    every = -int(-_LEAST_SLOT // slot) if upright else 1
    texts = []
    for place, word in enumerate(words):
        if place % every == 0:
            x, y = frame.x(place), frame.floor + (8 if upright else 17)
            turn = f' transform="translate({x + 3:.1f},{y:g}) rotate(-90)"' if upright else (
                f' x="{x:.1f}" y="{y:g}"')  # fmt: skip
            anchor = "end" if upright else "middle"
            texts.append(f'<text class="name"{turn} text-anchor="{anchor}">{escape(word)}</text>')
    most, least = order[0].size or 0, order[-1].size or 0
    y = frame.height - 4
    ends = (
        f'<text class="axis-title" x="{frame.left:g}" y="{y:g}">'
        f"← most {size_of.unit} ({short_count(most)})</text>"
        f'<text class="axis-title" x="{svg.WIDTH - frame.right:g}" y="{y:g}" text-anchor="end">'
        f"least ({short_count(least)}) →</text>"
    )
    return "".join(texts) + ends


def _description(series: Sequence[Series], difference: bool) -> str:
    """The trend in words: where each system's line begins, peaks and ends."""
    said = []
    for one in series:
        values = [point.value for point in one.points]
        means = [mean for _, mean in moving_average(values, trend_window(len(values)))]
        if means:
            show = signed if difference else "{:.1f}".format
            said.append(
                f"{one.name or 'Trend'}: {show(means[0])} at most text, then between "
                f"{show(min(means))} and {show(max(means))}, {show(means[-1])} at least."
            )
    return " ".join([*said, "The table has every number."])


def _below(series: Sequence[Series], smooth: bool) -> str:
    if not smooth:
        return "Points are languages. The line joins them, without smoothing."
    return f"Points are languages. {trend_rule(max(len(one.points) for one in series))}".strip()
