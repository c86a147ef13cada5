"""An evaluation in a screenful of text."""

from collections.abc import Iterator

from gshard_m4.evaluation.ranking import best_and_worst
from gshard_m4.evaluation.scores import (
    SHORT_FOR_BLEU,
    LanguageScores,
    Macro,
    Metric,
    Scores,
    SplitScores,
)

_LISTED = 5
# Shares that are worth a line when any language has them.
_WATCHED = {
    "empty": "empty",
    "copied": "copied",
    "truncated": "cut off",
    "repeated": "in a loop",
    "over_long": "far too long",
    "wrong_language": "not in English",
    "tokenized": "tokenised",
}


def summary(scores: Scores) -> str:
    """The text: every set's ends in a blank line; then what is to be remarked."""
    lines = [line for split in scores.splits for line in _split_lines(split, scores)]
    return "\n".join([*lines, *scores.remarks])


def _split_lines(split: SplitScores, scores: Scores) -> Iterator[str]:
    step = "" if split.checkpoint_step is None else f", checkpoint step {split.checkpoint_step}"
    yield f"{split.title} ({split.name}){step}"
    if split.not_scored:
        yield f"  {len(split.not_scored)} languages of the set were left out, as asked"
    kinds = [("", split.macro), (f", fewer than {scores.min_phrases} phrases", split.macro_few)]
    for kind, macro in kinds:
        if macro is not None:
            yield f"  mean of {macro.counted}{kind}: {_means(macro, scores)}"
    yield from _band_lines(split, scores)
    yield from _baseline_lines(split, scores)
    short = split.headline.mean.get("short", 0)
    if short >= SHORT_FOR_BLEU and "bleu" in scores.signatures:
        yield f"  {short:.0%} of references have under four tokens: go by chrF++, not BLEU"
    yield from _defect_lines(split)
    best, worst = best_and_worst(split, _LISTED, scores.leading)
    for name, languages in (("best", best), ("worst", worst)):
        for one in languages:
            yield f"  {name:5}  {one.name:16} {one.code:4} {_language(one, scores)}"
    yield ""


def _means(macro: Macro, scores: Scores) -> str:
    said = [
        f"{metric.title} {macro.mean[metric.key]:.{_digits(metric)}f}{_of(macro, metric.key)}"
        for metric in _ordered(scores)
        if metric.key in macro.mean
    ]
    exact = f"exactly right {macro.mean['exact']:.1%}"
    return ", ".join([*said[:1], exact, *said[1:]])


def _of(macro: Macro, key: str) -> str:
    known = macro.known[key]
    return "" if known == macro.languages else f" (of {known})"


def _band_lines(split: SplitScores, scores: Scores) -> Iterator[str]:
    leading = scores.leading
    if len(split.bands) < 2 or leading is None or leading.merged:
        return
    said = []
    for band in split.bands:
        ends = "" if band.smallest is None else f", {band.smallest:,} to {band.largest:,} rows"
        value = f"{band.macro.mean[leading.key]:.{_digits(leading)}f}"
        said.append(f"{band.name} {value} (n = {band.macro.languages}{ends})")
    without = sum(one.band is None for one in split.quoted)
    also = f"; {without} in no band, as their training size is not known" if without else ""
    yield f"  {leading.title} by band: {'; '.join(said)}{also}"


def _baseline_lines(split: SplitScores, scores: Scores) -> Iterator[str]:
    if scores.baseline is None:
        return
    for metric in _ordered(scores):
        key = f"delta_{metric.key}"
        mean = split.headline.mean.get(key)
        if mean is not None:
            known = split.headline.known[key]
            yield (
                f"  {metric.title} against {scores.baseline.name}: {mean:+.{_digits(metric)}f}, "
                f"mean of {known} of {split.headline.languages} languages"
                f"{_significant(split, metric)}"
            )
    without = [one.name for one in split.quoted if not one.baseline]
    if without:
        more = f" and {len(without) - _LISTED} more" if len(without) > _LISTED else ""
        listed = ", ".join(without[:_LISTED]) + more
        yield f"  no score in the baseline {scores.baseline.name}: {listed}"


def _significant(split: SplitScores, metric: Metric) -> str:
    tested = [one for one in split.quoted if metric.key in one.paired]
    if not tested:
        return ""
    sure = [one for one in tested if one.paired[metric.key].p_holm < 0.05]
    sign = 1 if metric.higher_is_better else -1
    deltas = [sign * one.delta.get(metric.key, 0) for one in sure]
    better, worse = sum(delta > 0 for delta in deltas), sum(delta < 0 for delta in deltas)
    return f"; {better} better and {worse} worse of {len(tested)} tested (p < 0.05, Holm)"


def _defect_lines(split: SplitScores) -> Iterator[str]:
    said = []
    for key, words in _WATCHED.items():
        values = [(one.value(key) or 0.0, one) for one in split.languages]
        largest, language = max(values, key=lambda found: found[0])
        mean = split.headline.mean.get(key)
        if mean is not None and largest > 0:
            said.append(f"{words} {mean:.1%} (most: {language.code} {largest:.1%})")
    if said:
        yield f"  translations {', '.join(said)}"


def _language(one: LanguageScores, scores: Scores) -> str:
    said = []
    for metric in _ordered(scores)[:1]:
        value = one.value(metric.key)
        if value is not None:
            said.append(f"{metric.title} {value:5.{_digits(metric)}f}")
    return "  ".join([*said, f"exact {one.exact:6.1%}"])


def _ordered(scores: Scores) -> list[Metric]:
    """The metrics, the leading one first."""
    leading = scores.leading
    return sorted(scores.metrics, key=lambda metric: metric != leading)


def _digits(metric: Metric) -> int:
    """Scores computed elsewhere are often between 0 and 1."""
    return 4 if metric.merged else 1
