"""Translating the held-out splits of seqio tasks with a trained model, into JSON lines."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from absl import logging

from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.trained import find_steps, restore_params
from gshard_train.decode import BeamSearch, Search
from gshard_train.decoding.decoder import Decoder
from gshard_train.decoding.fingerprint import digest, fingerprint
from gshard_train.decoding.splits import SplitDecoding
from gshard_train.errors import UserError, reported_as_user_error
from gshard_train.experiment import Experiment, for_reading, prepare, register, vocabulary_faults
from gshard_train.measuring import expert_languages
from gshard_train.measuring.held_out import TaskSplit, read_splits

SEARCH = BeamSearch()


def infer(
    experiment: Experiment,
    *,
    splits: Sequence[str] = ("test",),
    batch_size: int = 256,
    search: Search = SEARCH,
    checkpoint_step: int | Sequence[int] | Literal["all"] | None = None,
    output_dir: str | None = None,
    leave_out_lacking: bool = False,
    num_examples: int | None = None,
    use_cached: bool = False,
    language_of: Callable[[str], str] | None = None,
    dry_run: bool = False,
) -> Path:
    """Translates every task of the experiment's mixture and returns the directory written to.

    Each split gets a directory with one file a task and, written last, a manifest that counts
    their lines. Until then `<split>.new` holds what is decoded, and a run that was stopped goes
    on from there; what depends on another checkpoint, search, model or text is done anew.

    Args:
      experiment: what was trained; its tasks are found by their seqio names.
      splits: names of splits.
      batch_size: sentences decoded at once; fixed, so that one program serves all batches.
      search: how translations are searched for.
      checkpoint_step: the checkpoint to use, the newest by default. Several steps, or "all",
        write to `step_<N>/<split>`.
      output_dir: MODEL_DIR/translations by default.
      leave_out_lacking: decode the tasks that have a split and name the others; otherwise a
        split that some task lacks is an error.
      num_examples: at most so many of each task, from the front.
      use_cached: read what seqio_cache_tasks wrote.
      language_of: the language of a task, by its name; with it each split's directory also gets
        `experts.json`, for which the model runs over the examples once more.
      dry_run: build, read and compile everything, and write nothing.

    Raises:
      UserError: something cannot work; nothing was written.
    """
    if faults := list(_value_faults(splits, num_examples)):
        raise UserError(*faults)
    # The batch of a decoding has to fit mesh and groups as that of training does.
    experiment = for_reading(experiment, batch_size)
    prepared = prepare(experiment)
    # A dense model has none to tell of.
    with_experts = language_of is not None and experiment.model.num_experts > 0
    decoder = Decoder(experiment, prepared, search, batch_size=batch_size)
    several = checkpoint_step is not None and not isinstance(checkpoint_step, int)
    checkpointer = Checkpointer(experiment.model_dir)
    steps = find_steps(checkpointer, _asked(checkpoint_step))
    with reported_as_user_error():
        register(experiment)
        logging.info("Reading %s of %s", ", ".join(splits), experiment.mixture_or_task_name)
        read = {
            split: _read(
                experiment,
                split,
                leave_out_lacking=leave_out_lacking,
                num_examples=num_examples,
                use_cached=use_cached,
            )
            for split in splits
        }
    for split, tasks in read.items():
        count = sum(len(task.examples) for task in tasks)
        logging.info("%s: %d tasks, %d sentences", split, len(tasks), count)
    output = Path(output_dir) if output_dir else experiment.path("translations")
    if dry_run:
        decoder.compile()
        logging.info(
            "Dry run: would decode with checkpoint %s and %s into %s", steps, search, output
        )
        return output
    for step in steps:
        params = restore_params(checkpointer, experiment, prepared, step)
        parameters = digest(params)
        for split, tasks in read.items():
            directory = output / f"step_{step}" / split if several else output / split
            mark = fingerprint(experiment, step, search, parameters, tasks)
            run = SplitDecoding(decoder, params, mark)
            if run.is_done(directory, with_experts=with_experts):
                continue
            hypotheses = run.decode(directory, tasks)
            experts = (
                expert_languages.collect(
                    experiment,
                    prepared,
                    params,
                    tasks,
                    batch_size=batch_size,
                    language_of=language_of,
                )
                if language_of and with_experts
                else {}
            )
            run.write(directory, split, tasks, hypotheses, experts)
    return output


def _value_faults(splits: Sequence[str], num_examples: int | None) -> Iterator[str]:
    if isinstance(splits, str) or not splits:
        given = (splits,) if splits else ("test",)
        yield f"splits={splits!r} must be names, such as {given}"
    if num_examples is not None and num_examples < 1:
        yield f"num_examples={num_examples} must be at least 1, or None for all"


def _asked(
    step: int | Sequence[int] | Literal["all"] | None,
) -> Sequence[int] | Literal["newest", "all"]:
    if step is None:
        return "newest"
    if step != "all" and (isinstance(step, str) or not (isinstance(step, int) or step)):
        raise UserError(f"checkpoint_step={step!r} must be a step, a list of steps, or 'all'")
    return [step] if isinstance(step, int) else step


def _read(
    experiment: Experiment,
    split: str,
    *,
    leave_out_lacking: bool,
    num_examples: int | None,
    use_cached: bool,
) -> list[TaskSplit]:
    tasks = read_splits(
        experiment.mixture_or_task_name,
        split,
        experiment.task_feature_lengths,
        leave_out_lacking=leave_out_lacking,
        num_examples=num_examples,
        use_cached=use_cached,
    )
    if faults := list(vocabulary_faults(experiment, tasks[0].vocabulary_sizes)):
        raise UserError(*faults)
    return tasks
