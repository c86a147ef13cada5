"""The columns of the table of languages: which there are depends on what was computed."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from gshard_m4.evaluation.defects import MEANINGS
from gshard_m4.evaluation.scores import (
    SHORT_FOR_BLEU,
    LanguageScores,
    Metric,
    Scores,
    SplitScores,
)
from gshard_m4.report import cells

# Title of a column, the share behind it and whether it is shown at first.
_SHARES = (
    ("Not English %", "wrong_language", True),
    ("Empty %", "empty", True),
    ("Copied %", "copied", True),
    ("Cut %", "truncated", True),
    ("Repeated %", "repeated", True),
    ("Over-long %", "over_long", False),
    ("Tokenised %", "tokenized", False),
    ("Short refs %", "short", False),
)

BAND_TIP = "resource band: high, mid or low"


@dataclass(frozen=True)
class Column:
    """One column of numbers.

    `key` is what `value_of` and `Macro.mean` call it. `leading` is the metric that languages are
    ranked by, with a `bar` where its scores go up to 100. One that is not `first` is hidden until
    it is asked for. Sorting begins with the smallest value where `ascending`.
    """

    title: str
    key: str
    tip: str
    show: cells.Show
    first: bool = True
    leading: bool = False
    ascending: bool = False
    bar: bool = False


def columns_of(scores: Scores, split: SplitScores) -> list[Column]:
    """The columns that some language of the split has a value for, in order."""
    listed = [
        Column("Training pairs", "train_rows", _training_tip(scores), cells.count),
        Column("Phrases", "phrases", "held-out phrases", cells.count),
        *(
            column
            for metric in cells.leading_first(scores)
            for column in _of_metric(metric, scores)
        ),
        *(
            Column(title, key, MEANINGS[key], cells.percent, first=first)
            for title, key, first in _shares(split)
        ),
    ]
    return [
        column
        for column in listed
        if any(value_of(one, column.key) is not None for one in split.languages)
    ]


def value_of(one: LanguageScores, key: str) -> float | None:
    """The number in a column of the language; None where there is none.

    Beside the keys of `LanguageScores.value` there are `baseline_`, `p_` and `ci_` of a metric.
    BLEU is None where no translation has four tokens, though sacrebleu gives 0.
    """
    kind, _, metric = key.partition("_")
    if kind == "baseline":
        return one.baseline.get(metric)
    if kind in ("p", "ci"):
        found = one.paired.get(metric)
        return None if found is None else found.p_holm if kind == "p" else found.ci
    if key == "bleu" and one.bleu_four_grams == 0:
        return None
    return one.value(key)


def tip_of(one: LanguageScores, key: str) -> str:
    """What is said of a cell when it is pointed at, if anything."""
    if key.startswith("p_") and key[2:] in one.paired:
        return f"{one.paired[key[2:]].p:.4g} before the correction for the number of languages"
    if key == "wrong_language" and one.other_languages:
        taken = dict.fromkeys(other.language for other in one.other_languages)
        return f"of {one.identified:,} long enough to tell; taken for {', '.join(taken)}"
    return ""


def _of_metric(metric: Metric, scores: Scores) -> Iterator[Column]:
    """The metric and what compares it with the baseline; only the leading one shows all of it."""
    key, name, leading = metric.key, metric.title, metric == scores.leading
    better = "higher is better" if metric.higher_is_better else "lower is better"
    from_file = "computed elsewhere; " if metric.merged else ""
    undefined = "; – where no translation has four tokens" if key == "bleu" else ""
    tip = f"{from_file}{better}{undefined}"
    lower, show = not metric.higher_is_better, cells.metric_show(scores, key)
    bar = leading and not metric.merged
    yield Column(name, key, tip, show, leading=leading, ascending=lower, bar=bar)
    baseline = scores.baseline
    if baseline is not None:
        yield Column(
            f"{name} of baseline", f"baseline_{key}", f"{baseline.name}", show, first=False
        )
        tip = f"{name} minus that of {baseline.name}; {better}"
        difference = cells.metric_show(scores, f"delta_{key}")
        yield Column(f"Δ {name}", f"delta_{key}", tip, difference, ascending=lower)
    tested = scores.significance
    if tested is not None:
        tip = f"paired {tested.method} against the baseline, corrected for languages (Holm)"
        yield Column(f"p {name}", f"p_{key}", tip, cells.probability, first=leading, ascending=True)
        tip = (
            f"95 % interval of {name}: so much to both sides of the mean over resamples, which "
            "scores.csv has and which is not quite the score"
        )
        yield Column(f"± {name}", f"ci_{key}", tip, cells.margin, first=False)


def _shares(split: SplitScores) -> list[tuple[str, str, bool]]:
    """The shares with their titles; few but phrases are translated exactly as their reference."""
    phrases = split.headline.mean.get("short", 1.0) >= SHORT_FOR_BLEU
    return [("Exact %", "exact", phrases), *_SHARES]


def _training_tip(scores: Scores) -> str:
    return scores.bands_from or "pairs in training"


def header(
    title: str,
    tip: str,
    *,
    numeric: bool,
    column: Column | None = None,
    sort: str = "",
    wide: bool = False,
) -> str:
    """The head of a column as HTML; `wide` ones are hidden at first on narrow screens."""
    attributes = [f'title="{escape(tip)}"'] if tip else []
    attributes += ['class="number"', "data-numeric"] if numeric else []
    if column is not None:
        attributes += ["data-minor"] if not column.first else []
        attributes += ["data-ascending"] if column.ascending else []
    wide = wide or (column is not None and column.key == "phrases")
    attributes += ["data-wide"] if wide else []
    attributes += [f'aria-sort="{sort}"'] if sort else []
    return f'<th scope="col" {" ".join(attributes)}>{_breakable(title)}</th>'


def _breakable(title: str) -> str:
    """The title as HTML; long names of systems may break behind their marks."""
    return re.sub("([,_/])(?!$)", r"\1<wbr>", escape(title))
