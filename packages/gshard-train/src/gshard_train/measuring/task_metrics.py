"""The metrics that seqio tasks bring with them, as seqio.Evaluator computes them.

Axes: X examples, L target length.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from gshard_train.decode import EOS_ID
from gshard_train.decoding.decoder import Hypothesis
from gshard_train.errors import UserError

if TYPE_CHECKING:
    import seqio
    from seqio.metrics import Metric

PREDICTIONS = ("PREDICTION", "PREDICTION_WITH_AUX")
_KNOWN = (*PREDICTIONS, "SCORE")


class Measured(NamedTuple):
    """What the metrics of one task gave."""

    metrics: dict[str, Any]  # by name; seqio.metrics.MetricValue where they are no numbers
    targets: Sequence[Any]  # as the task's postprocessor leaves them
    inferences: dict[str, Sequence[Any]]  # "prediction", "output", "score", "aux_value"


def metrics_of(task: "seqio.Task", *, predictions: bool) -> "list[Metric]":
    """A task's metrics, without those of predictions if these are not made.

    Raises:
      UserError: a metric wants what there is not.
    """
    metrics = list(task.metric_objs)
    if odd := {kind(metric) for metric in metrics} - set(_KNOWN):
        raise UserError(
            f"task {task.name} has metrics of {', '.join(sorted(odd))}; there are "
            f"{', '.join(_KNOWN)}: leave the task out or its metric"
        )
    return [metric for metric in metrics if predictions or kind(metric) not in PREDICTIONS]


def kind(metric: "Metric") -> str:
    """What a metric wants of the model, such as "PREDICTION"."""
    return metric.model_output_type.name


def measure(
    task: "seqio.Task",
    metrics: "Sequence[Metric]",
    rows: Sequence[Mapping[str, Any]],
    outputs: Mapping[str, Any],
) -> Measured:
    """The metrics of a task's rows.

    Args:
      task: whose vocabularies and postprocessor are used.
      metrics: of that task.
      rows: all that the task gave of each example.
      outputs: what the model made of them, by kind, as `model_outputs` gives it.

    Raises:
      ValueError: two metrics of the task have one name.
    """
    found, inferences, targets = {}, {}, []
    for metric in metrics:
        filled = metric.from_model_output(rows, outputs[kind(metric)], task.output_features)
        try:
            values, seen = _compute(filled, task, rows)
        except Exception as error:
            error.add_note(f"while computing a metric of task {task.name}")
            raise
        if twice := found.keys() & values.keys():
            raise ValueError(f"task {task.name} has several metrics named {', '.join(twice)}")
        found |= values
        targets = seen.pop("targets", targets)
        inferences |= seen
    return Measured(found, targets, inferences)


def model_outputs(
    hypotheses: Sequence[Hypothesis] | None, nats_X: Float[np.ndarray, " X"], length: int
) -> dict[str, Any]:
    """What metrics want of the model, by kind, as T5X's models give it.

    Args:
      hypotheses: of each example, if they were made.
      nats_X: -log p of each whole target.
      length: longest target; predictions end with the end of sentence and are filled up with 0.
    """
    outputs: dict[str, Any] = {"SCORE": -nats_X}
    if hypotheses is not None:
        tokens_XL = np.zeros((len(hypotheses), length), np.int32)
        for tokens_L, hypothesis in zip(tokens_XL, hypotheses, strict=True):
            tokens = [*hypothesis.tokens, *([] if hypothesis.truncated else [EOS_ID])]
            tokens_L[: len(tokens)] = tokens
        scores = {"scores": np.array([hypothesis.score for hypothesis in hypotheses])}
        outputs |= {"PREDICTION": tokens_XL, "PREDICTION_WITH_AUX": (tokens_XL, scores)}
    return outputs


def scalar(value: Any) -> float | None:
    """A metric's value as a number, None where it is none."""
    value = np.asarray(getattr(value, "value", value))
    plain = value.ndim == 0 and value.dtype.kind in "fiub"
    return float(value) if plain else None


def _compute(metric: Any, task: "seqio.Task", rows: Sequence[Mapping[str, Any]]):
    from seqio.metrics import CollectingMetric

    if isinstance(metric, CollectingMetric):
        return metric.actual_compute(rows, task.output_features)
    return metric.compute(), dict(getattr(metric, "targets_and_inferences", {}))
