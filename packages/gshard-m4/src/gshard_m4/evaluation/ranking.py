"""Which languages come first, and which count in averages over several systems."""

from collections.abc import Sequence

from gshard_m4.evaluation.scores import LanguageScores, Metric, SplitScores


def rank(one: LanguageScores, leading: Metric | None) -> tuple[bool, float, str]:
    """Sorts languages best first by the metric, those without it last; without one by `exact`."""
    value = one.exact if leading is None else one.value(leading.key)
    sign = 1 if leading is not None and not leading.higher_is_better else -1
    return value is None, sign * (value or 0.0), one.code


def best_and_worst(
    split: SplitScores, count: int = 10, leading: Metric | None = None
) -> tuple[list[LanguageScores], list[LanguageScores]]:
    """The `count` best languages and, of the others, the `count` worst (worst first).

    Those that lack the leading metric are neither.
    """
    ranked = [one for one in split.ranked if leading is None or one.value(leading.key) is not None]
    return ranked[:count], ranked[count:][: -count - 1 : -1]


def quoted_rows(
    rows: Sequence[tuple[LanguageScores, ...]],
) -> list[tuple[LanguageScores, ...]]:
    """The languages of several systems that averages are of, as `SplitScores.quoted` of one.

    A language counts that has enough phrases in every system; where there is none, all count.
    """
    enough = [row for row in rows if not any(one.few_phrases for one in row)]
    return enough or list(rows)
