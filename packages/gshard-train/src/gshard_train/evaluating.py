"""Evaluating the checkpoints of a run, those that are there and those to come.

Nothing is written but results, so a run may train on meanwhile.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import logging

from gshard_train.checkpointing.checkpoint import DIRECTORY, Checkpointer
from gshard_train.checkpointing.trained import find_step, restore_params
from gshard_train.errors import UserError
from gshard_train.evaluation import Evaluation, Evaluator
from gshard_train.experiment import Experiment, Prepared, for_reading, prepare
from gshard_train.measuring import files

EVALUATION = Evaluation()
_CHOICES = ("newest", "all", "continuous")


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
    chosen = [] if dry_run or steps == "continuous" else _find_steps(experiment, steps)
    evaluator = evaluation.open(experiment, prepared)
    logging.info("Evaluating %s", evaluator)
    if dry_run:
        evaluator.compile()
        logging.info("The programs are compiled; a dry run evaluates nothing.")
        return {}
    coming = (
        _coming(experiment, wait_seconds, poll_seconds, last_step)
        if steps == "continuous"
        else iter(chosen)
    )
    anew = steps not in ("all", "continuous")
    found = {}
    for step in coming:
        if not anew and _agreed(evaluator.is_done(step)):
            logging.info("Step %d has been evaluated.", step)
        elif (scalars := _evaluate(step, experiment, prepared, evaluator, anew)) is not None:
            found[step] = scalars
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


def _find_steps(experiment: Experiment, steps: Sequence[int] | str) -> list[int]:
    newest = find_step(experiment)
    if steps == "newest":
        return [newest]
    there = _steps(experiment)
    if steps == "all":
        return there
    if lacking := [step for step in steps if step not in there]:
        raise UserError(
            f"there is no checkpoint {', '.join(map(str, lacking))} in "
            f"{experiment.path(DIRECTORY)}; there is {', '.join(map(str, there))}"
        )
    return [int(step) for step in steps]


def _steps(experiment: Experiment) -> list[int]:
    with Checkpointer(experiment.model_dir) as checkpointer:
        return checkpointer.steps()


def _evaluate(
    step: int, experiment: Experiment, prepared: Prepared, evaluator: Evaluator, needed: bool
) -> dict[str, float] | None:
    """The scalars of a step; None where a run that trains has removed it, unless it is needed."""
    try:
        params = restore_params(experiment, prepared, step)
    except UserError:
        if needed or experiment.path(DIRECTORY, str(step)).exists():
            raise
        logging.warning("Checkpoint %d was removed before it could be evaluated.", step)
        return None
    scalars = evaluator(step, params)
    if jax.process_index() == 0:
        _write_events(experiment.path(files.DIRECTORY), step, scalars)
    return scalars


def _coming(
    experiment: Experiment, wait_seconds: float, poll_seconds: float, last_step: int | None
) -> Iterator[int]:
    """Checkpoints in their order, as they come; each once."""
    seen: set[int] = set()
    since, told = time.monotonic(), False
    while True:
        step = _agreed(min((s for s in _steps(experiment) if s not in seen), default=-1))
        if step >= 0:
            seen.add(step)
            yield step
            since, told = time.monotonic(), False
        if last_step is not None and seen and max(seen) >= last_step and step < 0:
            return
        if step < 0 and _agreed(time.monotonic() - since > wait_seconds):
            logging.info("No new checkpoint came within %.0f s.", wait_seconds)
            return
        if step < 0:
            if not told:
                logging.info(
                    "Waiting up to %.0f s for a checkpoint in %s.",
                    wait_seconds,
                    experiment.path(DIRECTORY),
                )
            told = True
            time.sleep(poll_seconds)


def _agreed(value: int) -> int:
    """What the first process says: all must evaluate the same steps."""
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.int64(value)))


def _write_events(directory: Path, step: int, scalars: dict[str, float]) -> None:
    from clu.metric_writers import SummaryWriter

    writer = SummaryWriter(str(directory))
    writer.write_scalars(step, scalars)
    writer.close()
