"""The pictures of a report as files: which there are and what they are called."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gshard_m4.evaluation.scores import Scores, SplitScores
from gshard_m4.evaluation.translations import Split
from gshard_m4.report import pictures
from gshard_m4.report.compared import compared
from gshard_m4.report.experts_section import expert_rows
from gshard_m4.report.series import Series, order_of
from gshard_m4.report.split_section import (
    drawn_metrics,
    drawn_series,
    series_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Named = tuple[str, "Figure"]


def picture_files(scores: Scores, splits: Sequence[Split]) -> dict[str, bytes]:
    """The pictures of a report, each as PNG and as SVG, by the names of their files.

    `<split>-<metric>-trend`, `-raw` (without smoothing) and `-scatter`, the first two with
    `-delta` where there is a baseline, and `<split>-experts-<layer>`. Those by
    size are there where the size of some language is known.
    """

    def drawn() -> Iterator[_Named]:
        for split, translations in zip(scores.splits, splits, strict=True):
            yield from _of_split(scores, split)
            yield from _of_experts(split, translations)

    return pictures.files(drawn)


def comparison_picture_files(systems: Sequence[Scores]) -> dict[str, bytes]:
    """The pictures of a comparison, named as those of a report; `-delta` is to the first system."""

    def drawn() -> Iterator[_Named]:
        for split in compared(systems):
            for metric in split.metrics:
                if metric == split.metrics[0] or metric.key == "bleu":
                    stem, first = f"{split.name}-{metric.key}", split.systems[0]
                    series, gains = split.series(metric.key), split.differences(metric.key)
                    yield from _by_size(stem, series, metric.title, "")
                    yield from _by_size(f"{stem}-delta", gains, metric.title, first)
                    yield from _scatter(stem, series, metric.title)

    return pictures.files(drawn)


def _of_split(scores: Scores, split: SplitScores) -> Iterator[_Named]:
    for metric in drawn_metrics(scores):
        series, against = drawn_series(split, metric.key)
        stem = f"{split.name}-{metric.key}"
        delta = "-delta" if against else ""
        yield from _by_size(stem + delta, [series], metric.title, against)
        yield from _scatter(stem, [series_of(split, metric.key)], metric.title)


def _of_experts(split: SplitScores, translations: Split) -> Iterator[_Named]:
    experts = translations.experts
    if experts is None or not expert_rows(split, experts, 0):
        return
    for layer, name in enumerate(experts.layers):
        rows = expert_rows(split, experts, layer)
        yield f"{split.name}-experts-{layer}-{name}", pictures.heat_file(rows, layer=name)


def _by_size(stem: str, series: Sequence[Series], measure: str, against: str) -> Iterator[_Named]:
    if order_of(series):
        trend = pictures.trend_file(series, measure=measure, against=against)
        yield f"{stem}-trend", trend
        yield (
            f"{stem}-raw",
            pictures.trend_file(series, measure=measure, against=against, smooth=False),
        )


def _scatter(stem: str, series: Sequence[Series], measure: str) -> Iterator[_Named]:
    if order_of(series):
        yield f"{stem}-scatter", pictures.scatter_file(series, measure=measure)
