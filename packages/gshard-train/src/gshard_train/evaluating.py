"""Evaluating the checkpoints of a run, those that are there and those to come.

Nothing is written but results, so a run may train on meanwhile.
"""

import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import logging

from gshard_train import agreement
from gshard_train.checkpointing.checkpoint import DIRECTORY, Checkpointer
from gshard_train.checkpointing.trained import find_steps, restore_params
from gshard_train.errors import UserError
from gshard_train.evaluation import Evaluation
from gshard_train.experiment import Experiment, for_reading, prepare
from gshard_train.measuring import files

EVALUATION = Evaluation()
_CHOICES = ("newest", "all", "continuous")
_REMOVAL_SECONDS = 10.0  # how long the removal of a checkpoint may take that has begun


def evaluate(
    experiment: Experiment,
    *,
    evaluation: Evaluation = EVALUATION,
    steps: int | Sequence[int] | str = "newest",
    wait_seconds: float = 3600.0,
    poll_seconds: float = 10.0,
    last_step: int | None = None,
    dry_run: bool = False,
) -> dict[int, dict[str, float]]:
    """Evaluates checkpoints and returns the scalars of each step.

    Args:
      experiment: what was trained.
      evaluation: what is measured on what.
      steps: which checkpoints: "newest", "all" that are there, "continuous" for those that are
        there and those that a run still writes, or one number or several. "all" and
        "continuous" pass over what has been evaluated in the same way.
      wait_seconds: "continuous" ends when no new checkpoint came for so long.
      poll_seconds: between two looks for a new one.
      last_step: "continuous" ends when this step, or a later one, was evaluated.
      dry_run: read the examples and compile, write nothing.

    Raises:
      UserError: something cannot work; nothing was written.
    """
    steps = (steps,) if isinstance(steps, int) else steps
    if faults := list(_value_faults(steps, wait_seconds, poll_seconds, last_step)):
        raise UserError(*faults)
    batch_size = evaluation.batch_size or experiment.batch_size
    experiment = for_reading(experiment, batch_size)
    prepared = prepare(experiment)
    # Before the examples, which take longer.
    checkpointer = Checkpointer(experiment.model_dir)
    chosen = [] if dry_run or steps == "continuous" else find_steps(checkpointer, steps)
    logging.info("Reading %s.", evaluation.mixture_or_task_name or experiment.mixture_or_task_name)
    evaluator = evaluation.open(experiment, prepared)
    logging.info("Evaluating %s", evaluator)
    if dry_run:
        evaluator.compile()
        logging.info("The programs are compiled; a dry run evaluates nothing.")
        return {}
    coming = (
        _coming(checkpointer, wait_seconds, poll_seconds, last_step)
        if steps == "continuous"
        else iter(chosen)
    )
    anew = steps not in ("all", "continuous")
    found = {}
    for step in coming:
        if not anew and agreement.decided(lambda step=step: evaluator.is_done(step)):
            logging.info("Step %d has been evaluated.", step)
            continue
        try:
            params = restore_params(checkpointer, experiment, prepared, step)
        except UserError:
            if anew or not checkpointer.is_removed(step, seconds=_REMOVAL_SECONDS):
                raise
            logging.warning("Checkpoint %d was removed before it could be evaluated.", step)
            continue
        found[step] = evaluator(step, params)
        if jax.process_index() == 0:
            _write_events(experiment.path(files.DIRECTORY), step, found[step])
    if found:
        logging.info("Results: %s", experiment.path(files.LINES))
    return found


def _value_faults(
    steps: Any, wait_seconds: float, poll_seconds: float, last_step: int | None
) -> Iterator[str]:
    numbers = not isinstance(steps, str) and all(isinstance(step, int) for step in steps)
    if not (numbers and len(steps)) and steps not in _CHOICES:
        choices = ", ".join(map(repr, _CHOICES))
        yield f"evaluate: steps={steps!r} must be one of {choices}, or numbers such as (100, 200)"
    if wait_seconds < 0 or poll_seconds <= 0:
        yield (
            f"evaluate: wait_seconds={wait_seconds} and poll_seconds={poll_seconds} must not be "
            "negative, and poll_seconds not 0"
        )
    if last_step is not None and steps != "continuous":
        yield f"evaluate: last_step={last_step} is only for steps='continuous'"


def _coming(
    checkpointer: Checkpointer, wait_seconds: float, poll_seconds: float, last_step: int | None
) -> Iterator[int]:
    """Checkpoints in their order, as they come; each once."""
    seen: set[int] = set()
    since, told = time.monotonic(), False
    while True:
        step = min((step for step in checkpointer.steps() if step not in seen), default=-1)
        if step >= 0:
            seen.add(step)
            yield step
            since, told = time.monotonic(), False
        if last_step is not None and seen and max(seen) >= last_step and step < 0:
            return
        if step < 0 and agreement.decided(functools.partial(_is_over, since + wait_seconds)):
            logging.info("No new checkpoint came within %.0f s.", wait_seconds)
            return
        if step < 0:
            if not told:
                logging.info(
                    "Waiting up to %.0f s for a checkpoint in %s.",
                    wait_seconds,
                    Path(checkpointer.model_dir, DIRECTORY),
                )
            told = True
            time.sleep(poll_seconds)


def _is_over(end: float) -> bool:
    return time.monotonic() > end


def _write_events(directory: Path, step: int, scalars: dict[str, float]) -> None:
    from clu.metric_writers import SummaryWriter

    writer = SummaryWriter(str(directory))
    writer.write_scalars(step, scalars)
    writer.close()
