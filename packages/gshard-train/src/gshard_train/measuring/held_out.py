"""The held-out examples of seqio tasks, tokenised as the tasks say, as plain numpy.

Axes: T source length.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from gshard_train import tensorflow_devices
from gshard_train.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import seqio

NO_ROW: Mapping[str, Any] = MappingProxyType({})
_TEXTS = ("inputs_pretokenized", "targets_pretokenized")
_NAMED = 5  # tasks named in one message


class Example(NamedTuple):
    """One sentence to translate."""

    tokens_T: np.ndarray  # int32, no longer than the longest input
    source: str
    reference: str
    row: Mapping[str, Any] = NO_ROW  # all that the task gave, by feature


class TaskSplit(NamedTuple):
    """One task's examples, and how its target tokens become text."""

    task: str
    examples: list[Example]
    target_vocabulary: Any  # seqio.Vocabulary
    vocabulary_sizes: Mapping[str, int]


def read_splits(
    mixture_or_task_name: str,
    split: str,
    lengths: Mapping[str, int],
    *,
    leave_out_lacking: bool = False,
    num_examples: int | None = None,
    use_cached: bool = False,
    need_texts: bool = True,
) -> list[TaskSplit]:
    """The examples of one split of every task of a mixture, in their order.

    Args:
      mixture_or_task_name: a seqio name.
      split: the split's name.
      lengths: longest "inputs" and "targets" in tokens; longer ones are cut.
      leave_out_lacking: leave out tasks without that split and name them in the log; otherwise
        they are an error.
      num_examples: at most so many of each task, from the front.
      use_cached: read what seqio_cache_tasks wrote, where tasks allow caching.
      need_texts: whether examples without their texts are an error; otherwise the vocabularies
        decode them.

    Raises:
      UserError: no such mixture or task, tasks without that split, source text or cache, or a
        vocabulary that is not there.
    """
    tasks = _having(split, find_tasks(mixture_or_task_name), leave_out_lacking)
    faults = [*_vocabulary_faults(tasks), *cache_faults(tasks, split, use_cached)]
    if faults:
        raise UserError(*faults)
    found = []
    for task in tasks:
        data = task.get_dataset(
            lengths, split=split, shuffle=False, num_epochs=1, use_cached=use_cached
        )
        rows = list(data.take(num_examples or -1).as_numpy_iterator())
        found.append(_examples(task, rows, need_texts))
    if empty := [read.task for read in found if not read.examples]:
        _refuse_or_tell("has no examples", split, empty, tasks, leave_out_lacking)
    return [read for read in found if read.examples]


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
    tensorflow_devices.hide_gpus()
    import seqio

    known = [*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()]
    if mixture_or_task_name not in known:
        near = did_you_mean(mixture_or_task_name, known, count=3) or "."
        raise UserError(
            f"MIXTURE_OR_TASK_NAME={mixture_or_task_name!r} is not registered with seqio{near} "
            "MIXTURE_OR_TASK_MODULE names the module whose import registers it"
        )
    return seqio.get_mixture_or_task(mixture_or_task_name)


def cache_faults(tasks: "list[seqio.Task]", split: str, use_cached: bool) -> Iterator[str]:
    """A sentence where a cache is asked for and not there, or needed and not asked for."""
    import seqio
    import tensorflow as tf

    def cached(task: "seqio.Task") -> bool:
        folder = task.cache_dir
        return bool(folder) and tf.io.gfile.exists(seqio.get_cached_info_path(folder, split))

    if not use_cached:
        if needing := [task.name for task in tasks if task.requires_caching]:
            yield f"{_named(needing)} can only be read cached; set use_cached=True"
        return
    if lacking := [task.name for task in tasks if task.supports_caching and not cached(task)]:
        folders = ", ".join(map(repr, seqio.get_global_cache_dirs())) or "none are given"
        yield (
            f"use_cached: split {split!r} of {len(lacking)} of {len(tasks)} tasks "
            f"({_named(lacking)}) is in no cache directory ({folders}); write it with "
            "seqio_cache_tasks and give its --output_cache_dir as --seqio_additional_cache_dirs"
        )


def _having(split: str, tasks: "list[seqio.Task]", leave_out: bool) -> "list[seqio.Task]":
    """The tasks that have the split."""
    if lacking := [task.name for task in tasks if split not in task.splits]:
        _refuse_or_tell("is missing", split, lacking, tasks, leave_out)
    return [task for task in tasks if split in task.splits]


def _refuse_or_tell(
    what: str, split: str, lacking: list[str], tasks: "list[seqio.Task]", leave_out: bool
) -> None:
    of_all = f"in {len(lacking)} of {len(tasks)} tasks"
    some_have_it = len(lacking) < len(tasks)
    if leave_out and some_have_it:
        logging.warning("Split %r %s %s, left out: %s", split, what, of_all, ", ".join(lacking))
        return
    hint = "; leave_out_lacking=True leaves them out" if some_have_it else ""
    raise UserError(
        f"split {split!r} {what} {of_all} ({_named(lacking)}); "
        f"{tasks[0].name} has {', '.join(tasks[0].splits)}{hint}"
    )


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")


def _vocabulary_faults(tasks: "list[seqio.Task]") -> Iterator[str]:
    """SentencePiece models that are not where the tasks say, and what they are for."""
    import tensorflow as tf

    files: dict[str, str] = {}
    for task in tasks:
        for side, feature in task.output_features.items():
            if file := getattr(feature.vocabulary, "sentencepiece_model_file", None):
                files.setdefault(file, f"{side} of {task.name}")
    for file, what in files.items():
        if not tf.io.gfile.exists(file):
            yield f"vocabulary: no file '{file}' for the {what}"


def _examples(task: "seqio.Task", rows: list[dict[str, Any]], need_texts: bool) -> TaskSplit:
    features = task.output_features
    if lacking := {"inputs", "targets"} - features.keys():
        raise UserError(f"task {task.name} has no feature {' and '.join(sorted(lacking))}")
    if rows and need_texts and not rows[0].keys() >= set(_TEXTS):
        raise UserError(
            f"task {task.name} gives no {' and '.join(_TEXTS)}; tokenise with "
            "seqio.preprocessors.tokenize(copy_pretokenized=True)"
        )

    def text(row: dict[str, Any], side: str) -> str:
        given = row.get(f"{side}_pretokenized")
        if isinstance(given, bytes):
            return given.decode()
        return features[side].vocabulary.decode([int(token) for token in row[side]])

    return TaskSplit(
        task.name,
        [
            Example(row["inputs"].astype(np.int32), text(row, "inputs"), text(row, "targets"), row)
            for row in rows
        ],
        features["targets"].vocabulary,
        {name: feature.vocabulary.vocab_size for name, feature in features.items()},
    )
