"""Pieces of pictures drawn in the page: frame, axes, marks, legend.

Colours are classes of the style sheet, so that a picture follows light and dark; systems differ
in shape and dashes too. Text in a picture never replaces the table, which has the same numbers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from gshard_m4.report.series import Series

WIDTH = 1120
SERIES_STYLES = 6  # after so many systems colours, shapes and dashes repeat

# Outlines of marks about (0, 0), one a system.
_SHAPES = (
    "M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0z",
    "M-3,-3h6v6h-6z",
    "M0,-4l3.9,6.8h-7.8z",
    "M0,-4.3l4.3,4.3l-4.3,4.3l-4.3,-4.3z",
    "M0,4l3.9,-6.8h-7.8z",
    "M-3.6,-1.2h2.4v-2.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4z",
)
_DASHES = ("", "7 3", "2 2.5", "9 3 2 3", "4 2", "12 4")


@dataclass(frozen=True)
class Frame:
    """Where numbers are in a picture: the range of each axis and the margins around them."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    height: float
    top: float = 36
    bottom: float = 64
    left: float = 52
    right: float = 16

    @property
    def floor(self) -> float:
        """Height at which the plotted area ends."""
        return self.height - self.bottom

    def x(self, value: float) -> float:
        """From left to right."""
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * (WIDTH - self.left - self.right)

    def y(self, value: float) -> float:
        """From top to bottom."""
        low, high = self.y_range
        return self.floor - (value - low) / (high - low) * (self.floor - self.top)


def figure(*, key: str, title: str, description: str, height: float, body: str, below: str) -> str:
    """A picture with what it is called and shows, for eyes and for readers of the page aloud."""
    return (
        f'<figure class="picture"><div class="scroller">'
        f'<svg role="img" viewBox="0 0 {WIDTH} {height:g}" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(title)}</title>'
        f'<desc id="{key}-d">{escape(description)}</desc>{body}</svg></div>'
        f"<figcaption>{escape(below)}</figcaption></figure>\n"
    )


def legend(series: Sequence[Series], *, line: bool) -> str:
    """Which colour, shape and dash is which system; empty for a single one."""
    if len(series) < 2:
        return ""
    items = "".join(
        f'<li><svg viewBox="-18 -7 36 14" aria-hidden="true" class="{style(one)}">'
        f"{_dash_path('M-18,0H18', one.style) if line else ''}{mark(0, 0, one.style)}</svg>"
        f"{escape(one.name)}</li>"
        for one in series
    )
    return f'<ul class="legend">{items}</ul>'


def style(series: Series) -> str:
    """The class that gives a system its colour."""
    return f"series-{series.style % SERIES_STYLES}"


def mark(x: float, y: float, index: int, *, code: str = "", tip: str = "") -> str:
    """A system's mark at a place, with the text that shows when it is pointed at.

    `code` is of the language, for the script that dims those that are not looked for.
    """
    inside = f"<title>{escape(tip)}</title>" if tip else ""
    place = f' transform="translate({x:.1f},{y:.1f})"' if x or y else ""
    place += f' data-mark="{escape(code)}"' if code else ""
    return f'<path class="mark-point" d="{_SHAPES[index % len(_SHAPES)]}"{place}>{inside}</path>'


def line(places: Iterable[tuple[float, float]], index: int) -> str:
    """A system's line through the places."""
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return _dash_path(f"M{path}", index) if path else ""


def y_axis(frame: Frame, ticks: Sequence[float], title: str, *, zero: bool) -> str:
    """Lines across the picture with their numbers; the one at zero stands out if asked."""
    lines = "".join(
        f'<line class="{"zero" if zero and tick == 0 else "grid"}" x1="{frame.left:g}" '
        f'x2="{WIDTH - frame.right:g}" y1="{frame.y(tick):.1f}" y2="{frame.y(tick):.1f}"/>'
        f'<text class="tick" x="{frame.left - 8:g}" y="{frame.y(tick) + 4:.1f}" '
        f'text-anchor="end">{f"{tick:g}".replace("-", chr(0x2212))}</text>'
        for tick in ticks
    )
    return f'{lines}<text class="axis-title" x="0" y="12">{escape(title)}</text>'


def _dash_path(path: str, index: int) -> str:
    dash = _DASHES[index % len(_DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path class="trend" d="{path}"{dashes}/>'
