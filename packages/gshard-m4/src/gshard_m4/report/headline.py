"""What is read first of a split: averages, what to know about them, the best and the worst."""

from collections.abc import Iterator, Sequence
from html import escape

from gshard_m4.evaluation.ranking import best_and_worst
from gshard_m4.evaluation.scores import (
    SHORT_FOR_BLEU,
    LanguageScores,
    Macro,
    Metric,
    Scores,
    SplitScores,
)
from gshard_m4.report import cells
from gshard_m4.report.columns import value_of
from gshard_m4.report.significance import differences, too_few_samples

_MOST_FIGURES = 3
WATCHED = 0.05  # a language is named when more of its translations have a defect
_MOST_NAMED = 8
_DEFECTS = (
    ("not in English", "wrong_language"),
    ("empty", "empty"),
    ("copied from the source", "copied"),
    ("cut off", "truncated"),
    ("repeated", "repeated"),
    ("over-long", "over_long"),
    ("tokenised", "tokenized"),
)


def figures(scores: Scores, split: SplitScores) -> str:
    """The averages to quote, large."""
    found = list(_figures(scores, split.headline))
    cells_ = "".join(
        f'<div class="figure{"" if position == 0 else " minor"}"><dt>{escape(name)}</dt>'
        f'<dd class="value">{value}</dd><dd class="small soft">{note}</dd></div>'
        for position, (name, value, note) in enumerate(found)
    )
    return f'<dl class="figures">{cells_}</dl>'


def _figures(scores: Scores, average: Macro) -> Iterator[tuple[str, str, str]]:
    metrics = cells.leading_first(scores)
    for metric in metrics[:_MOST_FIGURES]:
        if metric.key in average.mean:
            show = cells.metric_show(scores, metric.key)
            yield _figure(f"{metric.title}, mean over languages", metric.key, average, show)
    leading = scores.leading
    for metric in metrics if scores.baseline is not None else []:
        key = f"delta_{metric.key}"
        if key in average.mean and metric.key in ("bleu", leading.key if leading else ""):
            yield _figure(
                f"Δ {metric.title}, mean over languages",
                key,
                average,
                cells.metric_show(scores, key),
            )
    if "exact" in average.mean and average.mean.get("short", 1.0) >= SHORT_FOR_BLEU:
        unit = '<span class="unit"> %</span>'
        name, value, note = _figure(
            "Exactly right, mean over languages", "exact", average, cells.percent
        )
        yield name, value + unit, f"{note} %"
    yield "Languages in these means", f"{average.languages}", f"{average.phrases:,} phrases"


def _figure(name: str, key: str, average: Macro, show: cells.Show) -> tuple[str, str, str]:
    known = average.known[key]
    of = f" · of {cells.languages(known)}" if known < average.languages else ""
    return name, show(average.mean[key]), f"median {show(average.median[key])}{of}"


def notes(scores: Scores, split: SplitScores) -> str:
    """What must be known before the numbers are believed."""
    found = [
        _few_note(scores, split),
        _missing_baselines(scores, split),
        _not_scored(split),
        too_few_samples(scores),
        _watch(split.languages),
    ]
    listed = "".join(f'<p class="note small">{text}</p>' for text in found if text)
    return _bleu_note(scores, split) + _significance(scores, split) + listed


def _significance(scores: Scores, split: SplitScores) -> str:
    if scores.significance is None or scores.baseline is None:
        return ""
    found = differences(split.quoted, cells.leading_first(scores))
    against = escape(scores.baseline.name)
    return f"<p>Against {against}: {found}.</p>" if found else ""


def _bleu_note(scores: Scores, split: SplitScores) -> str:
    short = split.headline.mean.get("short", 0.0)
    if short < SHORT_FOR_BLEU or "bleu" not in scores.signatures:
        return ""
    return (
        f'<p class="small soft">Go by chrF++ and by the share that is exactly right, not by BLEU: '
        f"{cells.percent(short)} % of the references are shorter than the four tokens that it "
        "compares. For a single language it comes out near 0, or undefined where no translation "
        "has four tokens (sacrebleu counts that as 0, the table shows –).</p>"
    )


def _few_note(scores: Scores, split: SplitScores) -> str:
    few = split.macro_few
    if few is None:
        return ""
    if split.macro is None:
        return (
            f"Every language here has fewer than {scores.min_phrases} phrases: numbers are rough."
        )
    numbers = [
        f"{escape(metric.title)} {cells.metric_show(scores, metric.key)(few.mean[metric.key])}"
        for metric in cells.leading_first(scores)[:_MOST_FIGURES]
        if metric.key in few.mean
    ]
    if few.mean.get("short", 1.0) >= SHORT_FOR_BLEU:
        numbers.append(f"exactly right {cells.percent(few.mean['exact'])} %")
    return (
        f"{few.counted} with fewer than {scores.min_phrases} phrases, averaged apart from the "
        f"others and not in the pictures: {', '.join(numbers)}."
    )


def _missing_baselines(scores: Scores, split: SplitScores) -> str:
    if scores.baseline is None:
        return ""
    without = [one.name for one in split.quoted if not one.baseline]
    if not without:
        return ""
    verb = "has" if len(without) == 1 else "have"
    return (
        f"{_listed(without)} {verb} no score in the baseline {escape(scores.baseline.name)}: "
        "no difference is shown for them, and means of differences leave them out."
    )


def _not_scored(split: SplitScores) -> str:
    if not split.not_scored:
        return ""
    return f"In the test set and left out on request: {_listed(split.not_scored)}."


def _watch(languages: Sequence[LanguageScores]) -> str:
    """Which languages have many translations with a defect, one line a defect."""
    found = []
    for words, key in _DEFECTS:
        high = [(value_of(one, key) or 0.0, one) for one in languages]
        high = sorted((pair for pair in high if pair[0] > WATCHED), key=lambda pair: -pair[0])
        named = [f"{cells.link(one)}&nbsp;{cells.percent(share)}&nbsp;%" for share, one in high]
        if named:
            rest = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
            found.append(f"<br><b>{words}</b> {', '.join(named[:_MOST_NAMED])}{rest}")
    if not found:
        return ""
    return f"Languages in which more than {WATCHED:.0%} of the translations are{''.join(found)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return escape(", ".join(names[:_MOST_NAMED])) + more


def ranking_chart(scores: Scores, split: SplitScores) -> str:
    """One column a language, best first; for the eye only, as the table says the same."""
    metric = scores.leading
    if metric is None or metric.merged or not metric.higher_is_better:
        return ""
    ordered = sorted(split.languages, key=lambda one: (-(one.value(metric.key) or 0.0), one.code))
    columns = "".join(_column(one, metric) for one in ordered)
    both = split.macro is not None and split.macro_few is not None
    key = f'<span class="key">fewer than {scores.min_phrases} phrases</span>' if both else ""
    ends = [
        f"<span>{escape(one.name)} {cells.shown(one.value(metric.key), cells.score)}</span>"
        for one in ordered
    ]
    mean = split.headline.mean[metric.key]
    axis = f'{ends[0]}<span class="mean">mean {mean:.1f}</span>{key}{"".join(ends[1:][-1:])}'
    return (
        f'<h3>{escape(metric.title)} of every language, 0 to 100</h3>'
        f'<div class="chart" aria-hidden="true"><div class="columns" style="--mean:{mean:.2f}">'
        f'{columns}</div><p class="axis">{axis}</p></div>'
    )  # fmt: skip


def _column(one: LanguageScores, metric: Metric) -> str:
    value = one.value(metric.key) or 0.0
    return (
        f'<a class="{"few" if one.few_phrases else "enough"}" href="#{cells.anchor(one.code)}" '
        f'tabindex="-1" style="--v:{value:.2f}" '
        f'title="{escape(one.name)} ({escape(one.code)}): {value:.1f}"></a>'
    )


def extremes(scores: Scores, split: SplitScores) -> str:
    """The best and the worst languages beside each other."""
    metric = scores.leading
    if metric is None or len(split.languages) < 2:
        return ""
    best, worst = best_and_worst(split, leading=metric)
    names = ("Highest", "Lowest") if metric.higher_is_better else ("Lowest", "Highest")
    exact = split.headline.mean.get("short", 1.0) >= SHORT_FOR_BLEU
    show = cells.metric_show(scores, metric.key)
    lists = [
        _ranking(f"{name} {metric.title}", languages, metric, exact, show)
        for name, languages in zip(names, (best, worst), strict=True)
        if languages
    ]
    return f'<div class="extremes">{"".join(lists)}</div>'


def _ranking(
    title: str,
    languages: Sequence[LanguageScores],
    metric: Metric,
    exact: bool,
    show: cells.Show,
) -> str:
    """The languages in order; a bar only where scores go up to 100."""
    items = "".join(
        f"<li>{cells.link(one)}"
        f"{'<span></span>' if metric.merged else cells.bar(one.value(metric.key) or 0.0)}"
        f'<span class="number">{cells.shown(one.value(metric.key), show)}</span>'
        f"{_exact(one) if exact else ''}</li>"
        for one in languages
    )
    aside = f'<span class="aside">{escape(metric.title)}{" · exact" if exact else ""}</span>'
    return f"<div><h3>{escape(title)}{aside}</h3><ol>{items}</ol></div>"


def _exact(one: LanguageScores) -> str:
    return f'<span class="number soft" style="grid-column:4">{cells.percent(one.exact)} %</span>'
