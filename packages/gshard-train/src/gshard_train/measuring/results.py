"""The numbers of an evaluation: of each task, and of all together."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gshard_train.measuring.held_out import TaskSplit
from gshard_train.measuring.task_metrics import PREDICTIONS, Measured, kind, scalar
from gshard_train.measuring.teacher_forcing import Scores

if TYPE_CHECKING:
    import seqio
    from seqio.metrics import Metric

_SHOWN = 6  # numbers in one line of the log


class EvaluatedTask(NamedTuple):
    """A task, its metrics, its examples, and where these stand among those of its split."""

    task: "seqio.Task"
    metrics: "Sequence[Metric]"
    read: TaskSplit
    rows: slice

    @property
    def decoded(self) -> bool:
        """Whether a metric wants translations."""
        return any(kind(metric) in PREDICTIONS for metric in self.metrics)


def results(
    tasks: Sequence[EvaluatedTask], scores: Scores, measured: Mapping[str, Measured]
) -> dict[str, Any]:
    """Counts and metrics of all and of each task."""
    of_task = {task.read.task: _forced(scores, task.rows) for task in tasks}
    numbers: dict[str, list[float]] = {}
    for name, found in measured.items():
        if taken := of_task[name].keys() & found.metrics.keys():
            raise ValueError(f"task {name}: a metric has the name {', '.join(taken)}; rename it")
        of_task[name] |= {metric: _value(value) for metric, value in found.metrics.items()}
        for metric, value in found.metrics.items():
            if (number := scalar(value)) is not None:
                numbers.setdefault(metric, []).append(number)
    means = {metric: float(np.mean(values)) for metric, values in numbers.items()}
    return {
        "target_tokens": {task.read.task: int(scores.tokens_X[task.rows].sum()) for task in tasks},
        "all": _forced(scores, slice(None)) | means,
        "tasks": of_task,
    }


def _value(value: Any) -> Any:
    number = scalar(value)
    return value if number is None else number


def _forced(scores: Scores, rows: slice) -> dict[str, Any]:
    """The mean over target tokens, and the share of them that the model would have chosen."""
    tokens = max(1, int(scores.tokens_X[rows].sum()))
    return {
        "loss": float(scores.nats_X[rows].sum()) / tokens,
        "token_accuracy": int(scores.correct_X[rows].sum()) / tokens,
    }


def told(result: Mapping[str, Any]) -> str:
    """A result in one line."""
    numbers = "   ".join(
        f"{name} {value:.4g}" for name, value in list(result["all"].items())[:_SHOWN]
    )
    examples = sum(result["settings"]["tasks"].values())
    return (
        f"step {result['step']:,} {result['split']}   {numbers}   "
        f"{counted(len(result['tasks']), 'task')}, {counted(examples, 'example')} in "
        f"{result['seconds']:.1f} s"
    )


def counted(number: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
