"""Metric functions for seqio's evaluation, with the numbers of `gshard-m4 evaluate`."""

from collections.abc import Sequence

from gshard_m4.evaluation import metrics
from gshard_m4.evaluation.defects import is_exact
from gshard_m4.evaluation.language_scores import signatures as signatures
from gshard_m4.evaluation.translations import Translation


def translation_metrics(
    targets: Sequence[str], predictions: Sequence[str], *, asked: metrics.Asked | None = None
) -> dict[str, float]:
    """The scores of one language's translations under the names that `scores.json` has.

    By default `bleu` (13a) and `chrfpp`, from 0 to 100, and `exact`, a share from 0 to 1. The
    registered tasks have it as their metric function. `signatures(asked)` has sacrebleu's.

    Args:
        targets: references.
        predictions: one translation of each.
        asked: other metrics or another tokenizer, as in
            `functools.partial(translation_metrics, asked=Asked(names=("spbleu",)))`.

    Raises:
        ValueError: where there is nothing to score, or lengths differ.
        InputError: for a metric whose model is missing.
    """
    if len(targets) != len(predictions) or not targets:
        raise ValueError(
            f"translation_metrics: {len(targets)} targets and {len(predictions)} predictions; there"
            " must be as many of both, at least one"
        )
    asked = asked or metrics.Asked()
    metrics.check(asked)
    scores = {
        key: metric.corpus_score(list(predictions), None).score
        for key, metric in metrics.build(asked, [list(targets)]).items()
    }
    if "exact" in asked.names:
        rows = zip(targets, predictions, strict=True)
        exact = [is_exact(Translation(0, None, target, said, None)) for target, said in rows]
        scores["exact"] = sum(exact) / len(exact)
    return scores
