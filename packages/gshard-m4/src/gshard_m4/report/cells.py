"""Numbers as the page shows them, and what its parts are called by."""

from collections.abc import Callable
from functools import partial
from html import escape

from gshard_m4.evaluation.scores import LanguageScores, Metric, Scores, known_values
from gshard_m4.report.axes import signed

Show = Callable[[float], str]
NOTHING = "–"  # where there is no number
SIGNIFICANT = 0.05
_BAND_ORDER = {"high": 3, "mid": 2, "low": 1}


def anchor(code: str) -> str:
    """The id of a language's examples on the page."""
    return f"language-{escape(code)}"


def find_words(one: LanguageScores, band: str = "") -> str:
    """The attributes by which the page's filter finds a language."""
    words = " ".join(filter(None, (one.name, one.code, one.script, band or one.band)))
    return f'data-code="{escape(one.code)}" data-find="{escape(words)}"'


def link(one: LanguageScores) -> str:
    """The language's name, which leads to its examples."""
    return f'<a href="#{anchor(one.code)}">{escape(one.name)}</a>'


def score(value: float, digits: int = 1) -> str:
    """A metric, by default with one decimal."""
    return f"{value:.{digits}f}".replace("-", "\u2212")


def percent(share: float) -> str:
    """A share between 0 and 1 as a percentage with one decimal, without the sign."""
    return f"{100 * share:.1f}"


def count(number: float) -> str:
    """A whole number with thousands set apart."""
    return f"{number:,.0f}"


def probability(p: float) -> str:
    """A p-value with three decimals, bold where it is significant; none is ever 0."""
    said = "&lt; 0.001" if p < 0.001 else f"{p:.3f}"
    return f"<b>{said}</b>" if p < SIGNIFICANT else said


def margin(half: float) -> str:
    """How far an interval goes to both sides of its middle."""
    return f"± {half:.1f}"


def shown(value: float | None, show: Show) -> str:
    """The value, or a dash where there is none."""
    return NOTHING if value is None else show(value)


def metric_show(scores: Scores, key: str) -> Show:
    """How a metric, or as `delta_<key>` a difference in it, is shown.

    With one decimal; with three where a metric from elsewhere goes up to 1, as COMET does.
    """
    plain = key.removeprefix("delta_")
    merged = {metric.key for metric in scores.metrics if metric.merged}
    values = [v for split in scores.splits for v in known_values(split.languages, plain)]
    small = plain in merged and all(abs(value) <= 1 for value in values)
    return partial(signed if key != plain else score, digits=3 if small else 1)


def leading_first(scores: Scores) -> list[Metric]:
    """The metrics, beginning with the one that languages are ranked by."""
    return sorted(scores.metrics, key=lambda metric: metric != scores.leading)


def languages(number: int) -> str:
    """How many languages, in words."""
    return f"{number} language{'' if number == 1 else 's'}"


def bar(value: float) -> str:
    """A bar of so many per cent of its length."""
    return f'<span class="bar" style="--v:{min(max(value, 0.0), 100.0):.2f}"></span>'


def number(value: float | None, show: Show, *, tip: str = "", text: str = "") -> str:
    """A cell that sorts by its number; `text` stands for what `show` would say."""
    title = f' title="{escape(tip)}"' if tip else ""
    said = text or shown(value, show)
    return f'<td class="number" data-v="{"" if value is None else repr(value)}"{title}>{said}</td>'


def band_cell(band: str) -> str:
    """A cell with a resource band, which sorts by size."""
    return f'<td class="number" data-v="{_BAND_ORDER.get(band, "")}">{escape(band or NOTHING)}</td>'
