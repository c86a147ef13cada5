"""Everything about one split but its examples: headline, groups, pictures, table, experts."""

from html import escape

from gshard_m4.evaluation.experts import Experts
from gshard_m4.evaluation.scores import Metric, Scores, SplitScores
from gshard_m4.report.experts_section import experts_section
from gshard_m4.report.groups import group_tables
from gshard_m4.report.headline import extremes, figures, notes, ranking_chart
from gshard_m4.report.scatter_picture import scatter_picture
from gshard_m4.report.score_table import score_table
from gshard_m4.report.series import Point, Series
from gshard_m4.report.sizes import sizes_of
from gshard_m4.report.trend_picture import trend_picture


def split_section(
    scores: Scores, split: SplitScores, experts: Experts | None, *, number: int
) -> str:
    """The section as HTML; `number` begins the ids inside it."""
    return "\n".join(
        [
            f'<section id="set-{escape(split.name)}"><h2>{escape(split.title)}</h2>',
            f"<p>{escape(split.shows)}</p>" if split.shows else "",
            figures(scores, split),
            notes(scores, split),
            group_tables(scores, split),
            "" if _sizes_given(split) else ranking_chart(scores, split),
            _pictures(scores, split, number),
            extremes(scores, split),
            score_table(scores, split),
            experts_section(split, experts, number=number),
            "</section>",
        ]
    )


def drawn_metrics(scores: Scores) -> list[Metric]:
    """The metrics with pictures: the leading one and BLEU."""
    leading = scores.leading
    keys = ([leading.key] if leading else []) + ["bleu"]
    return [metric for key in dict.fromkeys(keys) for metric in scores.metrics if metric.key == key]


def series_of(split: SplitScores, key: str, name: str = "") -> Series:
    """The languages behind the averages with their values of `key`, ready to be drawn."""
    bands = {band.name: band.macro.languages for band in split.bands}
    sizes = sizes_of(split.quoted)
    points = []
    for one in split.quoted:
        value = one.value(key)
        if value is not None:
            band = f"{one.band} ({bands[one.band]})" if one.band in bands else ""
            points.append(Point(one.code, one.name, value, sizes.by_code.get(one.code), band))
    return Series(name, tuple(points), size_of=sizes.of)


def drawn_series(split: SplitScores, key: str) -> tuple[Series, str]:
    """The differences to the baseline where there are any, else the scores; and what against."""
    delta = series_of(split, f"delta_{key}")
    return (delta, "the baseline") if delta.points else (series_of(split, key), "")


def _sizes_given(split: SplitScores) -> bool:
    return any(one.train_rows is not None for one in split.quoted)


def _pictures(scores: Scores, split: SplitScores, number: int) -> str:
    """Trend and scatter of the leading metric, then those of BLEU, folded."""
    found = [_metric_pictures(scores, split, metric, number) for metric in drawn_metrics(scores)]
    found = [pictures for pictures in found if pictures]
    return "\n".join(found)


def _metric_pictures(scores: Scores, split: SplitScores, metric: Metric, number: int) -> str:
    main, against = drawn_series(split, metric.key)
    key = f"p{number}-{metric.key}"
    trend = trend_picture([main], key=f"{key}-t", measure=metric.title, against=against)
    if not trend:
        return ""
    raw = trend_picture([main], key=f"{key}-r", measure=metric.title, against=against, smooth=False)
    scatter = scatter_picture([series_of(split, metric.key)], key=f"{key}-s", measure=metric.title)
    name = escape(metric.title)
    baseline = f" against {escape(scores.baseline.name)}" if against and scores.baseline else ""
    pictures = (
        f"{trend}<details><summary><span class='name'>Without smoothing</span></summary>"
        f"<div>{raw}</div></details><h3>{name} against {main.size_of.text}</h3>{scatter}"
    )
    title = f"{'Δ ' if against else ''}{name}{baseline}, from most {main.size_of.text} to least"
    if metric == scores.leading:
        return f"<h3>{title}</h3>{pictures}"
    return (
        f"<details class='more'><summary><span class='name'>{title}</span></summary>"
        f"<div>{pictures}</div></details>"
    )
