"""Translating the held-out splits of seqio tasks with a trained model, into JSON lines.

Axes: B batch, T source length, L target length.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging
from jaxtyping import Array, Int
from tqdm import tqdm

from gshard_annotate import rules_scope
from gshard_train import state
from gshard_train.checkpoint import Checkpointer
from gshard_train.data import to_mesh
from gshard_train.decode import EOS_ID, VARYING, BeamSearch, Translations, translate
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import Experiment, Prepared, prepare, register, vocabulary_faults
from gshard_train.held_out import Example, TaskSplit, read_splits
from gshard_train.step import batch_sharding

SEARCH = BeamSearch()


class Hypothesis(NamedTuple):
    """The translation of one sentence, on the host."""

    tokens: list[int]
    score: float
    truncated: bool


Decode = Callable[[Int[np.ndarray, "B T"]], list[Hypothesis]]


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
    decode = _decoder(experiment, prepared, params, search)
    output = Path(output_dir) if output_dir else experiment.path("translations")
    for split, tasks in read.items():
        examples = [example for task in tasks for example in task.examples]
        logging.info("%s: %d tasks, %d sentences", split, len(tasks), len(examples))
        hypotheses = _decode_all(examples, decode, batch_size, experiment)
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


def _decoder(
    experiment: Experiment, prepared: Prepared, params: state.Params, search: BeamSearch
) -> Decode:
    """A function from a batch of source tokens to hypotheses, compiled once."""
    sharding = batch_sharding(experiment.rules, prepared.mesh)
    length = experiment.task_feature_lengths["targets"]

    @jax.jit
    def run(params: state.Params, source_BT: Int[Array, "B T"]) -> Translations:
        with rules_scope(experiment.rules, prepared.mesh, varying=VARYING):
            model = prepared.model.merge(params)
            return translate(model, source_BT, length=length, search=search)

    def decode(source_BT: Int[np.ndarray, "B T"]) -> list[Hypothesis]:
        found = jax.device_get(run(params, to_mesh({"source": source_BT}, sharding)["source"]))
        return [
            Hypothesis([int(token) for token in row if token > EOS_ID], float(score), bool(cut))
            for row, score, cut in zip(*found, strict=True)
        ]

    return decode


def _decode_all(
    examples: Sequence[Example], decode: Decode, batch_size: int, experiment: Experiment
) -> list[Hypothesis]:
    """A hypothesis for each example, in their order.

    Batches hold sentences of like length, so that short ones do not wait for long ones.
    """
    order = sorted(range(len(examples)), key=lambda i: len(examples[i].tokens_T))
    found: dict[int, Hypothesis] = {}
    for start in tqdm(range(0, len(order), batch_size), desc="batches", disable=None):
        chosen = order[start : start + batch_size]
        source_BT = np.zeros((batch_size, experiment.task_feature_lengths["inputs"]), np.int32)
        for row, i in enumerate(chosen):
            source_BT[row, : len(examples[i].tokens_T)] = examples[i].tokens_T
        found.update(zip(chosen, decode(source_BT), strict=False))
    return [found[i] for i in range(len(examples))]


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
