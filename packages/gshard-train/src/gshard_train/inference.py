"""Translating the held-out splits of seqio tasks with a trained model, into JSON lines."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from gshard_train import state
from gshard_train.checkpoint import Checkpointer
from gshard_train.decode import BeamSearch
from gshard_train.decoder import Decoder, Hypothesis
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import Experiment, Prepared, prepare, register, vocabulary_faults
from gshard_train.held_out import Example, TaskSplit, read_splits

SEARCH = BeamSearch()


def infer(
    experiment: Experiment,
    *,
    splits: Sequence[str] = ("test",),
    batch_size: int = 256,
    search: BeamSearch = SEARCH,
    checkpoint_step: int | None = None,
    output_dir: str | None = None,
) -> Path:
    """Translates every task of the experiment's mixture and returns the directory written to.

    Each split gets a directory with one file a task and, written last, a manifest that counts
    their lines. A split that is already there is replaced as a whole.

    Args:
      experiment: what was trained; its tasks are found by their seqio names.
      splits: names of splits that every task has.
      batch_size: sentences decoded at once; fixed, so that one program serves all batches.
      search: how translations are searched for.
      checkpoint_step: the checkpoint to use; the newest by default.
      output_dir: MODEL_DIR/translations by default.

    Raises:
      UserError: something cannot work; nothing was written.
    """
    # The batch of a decoding has to fit mesh and groups as that of training does.
    prepared = prepare(dataclasses.replace(experiment, batch_size=batch_size))
    step = _find_step(experiment, checkpoint_step)
    with reported_as_user_error():
        register(experiment)
        read = {split: _read(experiment, split) for split in splits}
    params = _restore(experiment, prepared, step)
    decoder = Decoder(experiment, prepared, search, batch_size=batch_size)
    output = Path(output_dir) if output_dir else experiment.path("translations")
    for split, tasks in read.items():
        examples = [example for task in tasks for example in task.examples]
        logging.info("%s: %d tasks, %d sentences", split, len(tasks), len(examples))
        hypotheses = decoder.decode(params, examples, progress=True)
        manifest = {"checkpoint_step": step, "decoder": dataclasses.asdict(search)}
        write_split(output / split, tasks, hypotheses, manifest | {"split": split})
    return output


def _find_step(experiment: Experiment, step: int | None) -> int:
    """The step that was asked for, or the newest that has a checkpoint."""
    if step is not None:
        return step
    with Checkpointer(experiment.model_dir) as checkpointer:
        newest = checkpointer.latest_step()
    if newest is None:
        raise UserError(
            f"{experiment.model_dir} holds no checkpoint; train first, with the same --gin_file "
            "and MODEL_DIR"
        )
    return newest


def _restore(experiment: Experiment, prepared: Prepared, step: int) -> state.Params:
    """The parameters of a checkpoint; what the optimizer keeps is not read."""
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    with Checkpointer(experiment.model_dir) as checkpointer:
        return checkpointer.restore_part(step, "params", state.abstract_state(*arguments).params)


def _read(experiment: Experiment, split: str) -> list[TaskSplit]:
    tasks = read_splits(experiment.mixture_or_task_name, split, experiment.task_feature_lengths)
    if faults := list(vocabulary_faults(experiment, tasks[0].vocabulary_sizes)):
        raise UserError(*faults)
    return tasks


def write_split(
    directory: Path,
    tasks: Sequence[TaskSplit],
    hypotheses: Sequence[Hypothesis],
    manifest: dict[str, Any],
) -> None:
    """Writes one split's translations beside the old ones and puts them in their place."""
    new = directory.with_name(directory.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    remaining = iter(hypotheses)
    for task in tasks:
        lines = (
            json.dumps(_line(number, example, next(remaining), task), ensure_ascii=False)
            for number, example in enumerate(task.examples)
        )
        (new / f"{task.task}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    counts = {task.task: len(task.examples) for task in tasks}
    (new / "manifest.json").write_text(json.dumps({"tasks": counts, **manifest}, indent=1), "utf-8")
    if directory.exists():
        old = directory.with_name(directory.name + ".old")
        shutil.rmtree(old, ignore_errors=True)
        directory.rename(old)
        new.rename(directory)
        shutil.rmtree(old)
    else:
        new.rename(directory)


def _line(number: int, example: Example, hypothesis: Hypothesis, task: TaskSplit) -> dict[str, Any]:
    return {
        "id": number,
        "source": example.source,
        "reference": example.reference,
        "prediction": task.target_vocabulary.decode(hypothesis.tokens),
        "score": hypothesis.score,
        "truncated": hypothesis.truncated,
    }
