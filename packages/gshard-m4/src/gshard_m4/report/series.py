"""Numbers of languages as pictures take them, in order of size, and their trend.

A series is one system; its values are scores or differences to a baseline, one for each language.
Both kinds of pictures, in the page and as files, are drawn from these.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

TREND_WINDOW = 10  # as in the paper: GShard, arXiv 2006.16668, Figure 6
_FEWEST_FOR_TREND = 4

# What every picture with a trend says below itself.
TREND_RULE = (
    "The line is the mean of {window} neighbouring languages, drawn in their middle. Only full "
    "windows count, so it begins and ends {margin:g} {places} from the ends."
)


@dataclass(frozen=True)
class SizeOf:
    """What languages are ordered by: how the text is called and what of it is counted."""

    text: str
    unit: str


TRAINING = SizeOf("training text", "training pairs")


@dataclass(frozen=True)
class Point:
    """One language; `size` is how much text it has, None where nobody knows."""

    code: str
    name: str
    value: float
    size: int | None = None
    band: str = ""


@dataclass(frozen=True)
class Series:
    """One system's points; `style` numbers its colour, mark and dashes in every picture."""

    name: str
    points: tuple[Point, ...]
    style: int = 0
    size_of: SizeOf = TRAINING


def by_size(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points whose size is known, largest first; ties in order of their codes."""
    known = [(-point.size, point.code, point) for point in points if point.size is not None]
    return tuple(point for *_, point in sorted(known, key=lambda each: each[:2]))


def in_order(series: Sequence[Series]) -> list[Series]:
    """The series without the languages of unknown size, those with most text first."""
    places = {point.code: place for place, point in enumerate(order_of(series))}
    found = []
    for one in series:
        known = [point for point in one.points if point.code in places]
        points = sorted(known, key=lambda point: places[point.code])
        found.append(replace(one, points=tuple(points)))
    return found


def left_out(series: Sequence[Series]) -> str:
    """Which languages have a value but no known size, in words; empty where all have one."""
    unknown = {point.code for one in series for point in one.points if point.size is None}
    if not unknown:
        return ""
    return f"Left out, as their size is not known: {', '.join(sorted(unknown))}."


def trend_window(count: int) -> int:
    """How many of `count` languages a point of the trend averages; 0: too few for a trend.

    Ten as in the paper; half of the languages where there are fewer than twenty, because ten of
    them would leave no line to see.
    """
    return 0 if count < _FEWEST_FOR_TREND else min(TREND_WINDOW, count // 2)


def moving_average(values: Sequence[float], window: int) -> list[tuple[float, float]]:
    """Means of all full windows as (position, mean); the position is the window's middle."""
    return [
        (start + (window - 1) / 2, sum(values[start : start + window]) / window)
        for start in range(len(values) - window + 1)
        if window > 0
    ]


def trend_rule(count: int) -> str:
    """How the trend over `count` languages is drawn, in words; empty where there is none."""
    window = trend_window(count)
    margin = (window - 1) / 2
    places = "place" if margin == 1 else "places"
    return TREND_RULE.format(window=window, margin=margin, places=places) if window else ""


def measured(measure: str, against: str, series: Sequence[Series]) -> str:
    """What an axis says: the measure, or the difference in it to what it is against.

    It names the system where there is a single one with a name, since then there is no legend.
    """
    said = f"Difference in {measure} to {against}" if against else measure
    return f"{said}: {series[0].name}" if len(series) == 1 and series[0].name else said


def order_of(series: Sequence[Series]) -> list[Point]:
    """One point for each language of any series, largest first.

    The places on the axis of several systems, which may lack different languages.
    """
    found = {point.code: point for one in series for point in one.points}
    return list(by_size(found.values()))
