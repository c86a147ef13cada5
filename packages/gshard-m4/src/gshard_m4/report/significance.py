"""What paired tests found, in words."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from gshard_m4.evaluation.scores import LanguageScores, Metric, Scores
from gshard_m4.report import cells


def differences(rows: Iterable[LanguageScores], metrics: Sequence[Metric]) -> str:
    """In how many languages a system is significantly better and worse; empty without tests."""
    listed = list(rows)
    said = "; ".join(filter(None, (_of_metric(listed, metric) for metric in metrics)))
    return f"{said} (p &lt; {cells.SIGNIFICANT} after Holm's correction)" if said else ""


def too_few_samples(scores: Scores) -> str:
    """What to do where no language can be significant, however clear: p >= 1 / (samples + 1)."""
    tested = scores.significance
    if tested is None:
        return ""
    least = tested.languages / (tested.samples + 1)
    if least < cells.SIGNIFICANT:
        return ""
    wanted = math.ceil(tested.languages / cells.SIGNIFICANT)
    return (
        f"With {tested.samples:,} samples and {cells.languages(tested.languages)} no p-value can "
        f"be below {min(least, 1.0):.3f} after Holm's correction, however clear the difference: "
        f"test with {wanted:,} samples or more."
    )


def _of_metric(rows: Sequence[LanguageScores], metric: Metric) -> str:
    tested = [one for one in rows if metric.key in one.paired and metric.key in one.delta]
    if not tested:
        return ""
    sign = 1 if metric.higher_is_better else -1
    clear = [one for one in tested if one.paired[metric.key].p_holm < cells.SIGNIFICANT]
    deltas = [sign * one.delta[metric.key] for one in clear]
    better, worse = sum(delta > 0 for delta in deltas), sum(delta < 0 for delta in deltas)
    return (
        f"{escape(metric.title)}: {better} of {cells.languages(len(tested))} significantly better, "
        f"{worse} worse"
    )
