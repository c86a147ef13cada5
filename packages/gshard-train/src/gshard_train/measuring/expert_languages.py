"""Which experts the text of each language went to: `experts.json`.

Axes: N languages, E experts.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from gshard_train import state
from gshard_train.experiment import Experiment, Prepared
from gshard_train.measuring.held_out import TaskSplit
from gshard_train.measuring.teacher_forcing import TeacherForcing
from gshard_train.models.config import TransformerConfig
from gshard_train.monitoring.overview import moe_layer_names

FILE_NAME = "experts.json"
_DIGITS = 6  # of a share


def collect(
    experiment: Experiment,
    prepared: Prepared,
    params: state.Params,
    tasks: Sequence[TaskSplit],
    *,
    batch_size: int,
    language_of: Callable[[str], str],
) -> dict[str, Any]:
    """The shares of each language's tokens by layer and expert, sources and targets alike.

    Args:
      experiment: gives rules and lengths.
      prepared: the experiment's mesh and model.
      params: the model's parameters.
      tasks: examples, which are run through the model with their references.
      batch_size: examples at once.
      language_of: the language of a task, by its name.

    Returns:
      What `write` takes; nothing for a model without experts.
    """
    names, labels = label(tasks, language_of)
    forcing = TeacherForcing(experiment, prepared, batch_size=batch_size, num_labels=len(names))
    examples = [example for task in tasks for example in task.examples]
    load_NE = forcing.score(params, examples, labels, progress=True).load_NE
    return {} if load_NE is None else shares(prepared.model.config, names, load_NE)


def label(
    tasks: Sequence[TaskSplit], language_of: Callable[[str], str]
) -> tuple[list[str], list[int]]:
    """The languages of tasks, and the number of its language for each example of each task."""
    of_task = [language_of(task.task) for task in tasks]
    names = sorted(set(of_task))
    sizes = [len(task.examples) for task in tasks]
    return names, [
        names.index(name) for name, size in zip(of_task, sizes, strict=True) for _ in range(size)
    ]


def shares(
    config: TransformerConfig, names: Sequence[str], load_NE: Float[np.ndarray, "layers N E"]
) -> dict[str, Any]:
    """Counts as the document that is `experts.json`: rows sum to 1.

    Languages without a token in some layer have no shares and are left out.
    """
    sums_N = load_NE.sum(-1)
    return {
        "layers": moe_layer_names(config),
        "num_experts": config.num_experts,
        "languages": {
            name: [
                [round(float(count) / float(total), _DIGITS) for count in row]
                for row, total in zip(load_NE[:, n], sums_N[:, n], strict=True)
            ]
            for n, name in enumerate(names)
            if sums_N[:, n].all()
        },
    }


def task_language(task: str) -> str:
    """The language of a task of gshard-m4; other tasks stand for themselves.

    Those are named `m4_<language>_en` or `m4_<corpus>_<language>_en`. A script (four letters)
    belongs to the code before it: of `m4_sample_sr_Latn_en` it is `sr_Latn`.
    """
    parts = task.split("_")
    if len(parts) < 3 or (parts[0], parts[-1]) != ("m4", "en"):
        return task
    has_script = len(parts) > 3 and len(parts[-2]) == 4
    return "_".join(parts[-3:-1] if has_script else parts[-2:-1])


def write(document: dict[str, Any], directory: Path) -> None:
    """Writes `experts.json` into a directory that is there, whole or not at all."""
    path = directory / FILE_NAME
    new = path.with_name(FILE_NAME + ".new")
    new.write_text(json.dumps(document), "utf-8")
    os.replace(new, path)
