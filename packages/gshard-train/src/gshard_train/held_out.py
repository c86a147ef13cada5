"""The held-out examples of seqio tasks, tokenised as the tasks say, as plain numpy.

Axes: T source length.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gshard_train.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import seqio


class Example(NamedTuple):
    """One sentence to translate."""

    tokens_T: np.ndarray  # int32, no longer than the longest input
    source: str
    reference: str


class TaskSplit(NamedTuple):
    """One task's examples, and how its target tokens become text."""

    task: str
    examples: list[Example]
    target_vocabulary: Any  # seqio.Vocabulary
    vocabulary_sizes: Mapping[str, int]


def read_splits(
    mixture_or_task_name: str, split: str, lengths: Mapping[str, int]
) -> list[TaskSplit]:
    """The examples of one split of every task of a mixture, in their order.

    Raises:
      UserError: no such mixture or task, tasks without that split, or without source text, or a
        vocabulary that is not there.
    """
    tasks = find_tasks(mixture_or_task_name)
    if lacking := [task.name for task in tasks if split not in task.splits]:
        raise UserError(
            f"split {split!r} is missing in {len(lacking)} of {len(tasks)} tasks "
            f"({', '.join(lacking[:3])}{' ...' if len(lacking) > 3 else ''}); "
            f"{tasks[0].name} has {', '.join(tasks[0].splits)}"
        )
    if missing := _missing_vocabularies(tasks):
        raise UserError(*(f"vocabulary: no file '{file}' for the {what}" for file, what in missing))
    return [_read(task, split, lengths) for task in tasks]


def find_tasks(mixture_or_task_name: str) -> "list[seqio.Task]":
    """The tasks of a seqio mixture, or the task of that name, in the order of their names.

    Raises:
      UserError: seqio knows no such name.
    """
    found = find_source(mixture_or_task_name)
    tasks = getattr(found, "tasks", [found])
    return sorted(tasks, key=lambda task: task.name)


def find_source(mixture_or_task_name: str) -> "seqio.Task | seqio.Mixture":
    """The seqio mixture or task of that name.

    Raises:
      UserError: seqio knows no such name.
    """
    import seqio

    known = [*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()]
    if mixture_or_task_name not in known:
        near = did_you_mean(mixture_or_task_name, known, count=3) or "."
        raise UserError(
            f"MIXTURE_OR_TASK_NAME={mixture_or_task_name!r} is not registered with seqio{near} "
            "MIXTURE_OR_TASK_MODULE names the module whose import registers it"
        )
    return seqio.get_mixture_or_task(mixture_or_task_name)


def _missing_vocabularies(tasks: "list[seqio.Task]") -> list[tuple[str, str]]:
    """SentencePiece models that are not where the tasks say, and what they are for."""
    import tensorflow as tf

    files: dict[str, str] = {}
    for task in tasks:
        for side, feature in task.output_features.items():
            if file := getattr(feature.vocabulary, "sentencepiece_model_file", None):
                files.setdefault(file, f"{side} of {task.name}")
    return [(file, what) for file, what in files.items() if not tf.io.gfile.exists(file)]


def _read(task: "seqio.Task", split: str, lengths: Mapping[str, int]) -> TaskSplit:
    data = task.get_dataset(lengths, split=split, shuffle=False, num_epochs=1)
    rows = list(data.as_numpy_iterator())
    features = task.output_features
    if rows and not {"inputs_pretokenized", "targets_pretokenized"} <= rows[0].keys():
        raise UserError(
            f"task {task.name} gives no inputs_pretokenized and targets_pretokenized; tokenise "
            "with seqio.preprocessors.tokenize(copy_pretokenized=True)"
        )
    return TaskSplit(
        task.name,
        [
            Example(
                row["inputs"].astype(np.int32),
                row["inputs_pretokenized"].decode(),
                row["targets_pretokenized"].decode(),
            )
            for row in rows
        ],
        features["targets"].vocabulary,
        {name: feature.vocabulary.vocab_size for name, feature in features.items()},
    )
