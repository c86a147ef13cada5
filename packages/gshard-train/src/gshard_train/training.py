"""A training run, from the first check to the last checkpoint."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import logging

from gshard_train import config, state
from gshard_train.checkpoint import Checkpointer
from gshard_train.data import Feed, to_mesh
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared, open_feed, prepare
from gshard_train.interruption import Interrupted, StopRequest
from gshard_train.reporting import Reporter
from gshard_train.step import batch_sharding, make_step

if TYPE_CHECKING:
    from gshard_train.evaluation import Evaluation


def train(
    experiment: Experiment,
    *,
    train_steps: int,
    checkpoint_period: int = 1000,
    checkpoints_kept: int = 3,
    log_period: int = 50,
    eval_period: int | None = None,
    evaluation: "Evaluation | None" = None,
    profile_steps: Sequence[int] = (),
    effective_config: str = "",
    dry_run: bool = False,
) -> int:
    """Trains until step `train_steps` and returns the step reached.

    Starts from the newest checkpoint below the experiment's directory when there is one, with the
    training feed at the place where it was.

    Args:
      experiment: what is trained on what.
      train_steps: updates in all, those before a resume included.
      checkpoint_period: steps between checkpoints; the last step always has one.
      checkpoints_kept: how many of the newest stay.
      log_period: steps between lines in `metrics.jsonl`.
      eval_period: steps between evaluations; the last step has one too. None never evaluates.
      evaluation: what is evaluated then.
      profile_steps: first and last step of a profile, such as (10, 15); empty for none.
      effective_config: text that is kept as `config.gin` beside the checkpoints.
      dry_run: builds everything, the compiled step too, and neither trains nor writes anything.

    Raises:
      UserError: something cannot work; nothing was written and no parameter was made.
      Interrupted: SIGINT or SIGTERM came; the last whole step has a checkpoint.
      FloatingPointError: loss or gradient is not a number; the newest checkpoint is from before.
    """
    periods = {
        "TRAIN_STEPS": train_steps,
        "CHECKPOINT_PERIOD": checkpoint_period,
        "checkpoints_kept": checkpoints_kept,
        "log_period": log_period,
        **({} if eval_period is None else {"EVAL_PERIOD": eval_period}),
    }
    faults = [f"{name}={n} must be at least 1" for name, n in periods.items() if n < 1]
    faults += _evaluation_faults(eval_period, evaluation)
    if faults:
        raise UserError(*faults)
    prepared = prepare(experiment)
    with (
        contextlib.closing(open_feed(experiment)) as feed,
        Checkpointer(experiment.model_dir, keep=checkpoints_kept) as checkpointer,
        StopRequest() as stop,
    ):
        train_state = _start(experiment, prepared, feed, checkpointer)
        step = int(train_state.step)
        if step >= train_steps:
            logging.info("Step %d of %d is reached: nothing to train.", step, train_steps)
            return step
        if effective_config:
            logging.info(
                "The configuration, which %s keeps:\n%s", config.SAVED_NAME, effective_config
            )
            config.save(effective_config, experiment.model_dir)
        run_step = make_step(
            prepared.model, prepared.optimizer, experiment.loss, experiment.rules, prepared.mesh
        )
        batches = batch_sharding(experiment.rules, prepared.mesh)
        with Reporter(experiment.model_dir, start=step, total=train_steps) as reporter:
            while step < train_steps and not stop.name:
                train_state, metrics = run_step(train_state, to_mesh(next(feed), batches))
                step += 1
                save = step % checkpoint_period == 0
                # Reporting comes first: a step that gives no numbers leaves no checkpoint behind.
                reporter.add(step, metrics, now=save or step % log_period == 0)
                if save:
                    checkpointer.save(step, train_state, feed.get_state())
            reporter.report()
            # Before the reporter closes, which may wait for TensorBoard's slow start.
            checkpointer.save(step, train_state, feed.get_state())
            checkpointer.wait()
    if step < train_steps:
        raise Interrupted(
            f"{stop.name}: stopped at step {step} of {train_steps}, whose checkpoint is in "
            f"{experiment.path('checkpoints')}; run the same command again to go on"
        )
    return step


def _evaluation_faults(period: int | None, evaluation: object) -> Iterator[str]:
    if (period is None) != (evaluation is None):
        given, lacking = (
            ("evaluation", "EVAL_PERIOD")
            if period is None
            else (f"EVAL_PERIOD={period}", "train.evaluation")
        )
        yield f"{given} is set and {lacking} is not; set both to evaluate while training, or none"


def _start(
    experiment: Experiment, prepared: Prepared, feed: Feed, checkpointer: Checkpointer
) -> state.TrainState:
    """The newest checkpoint's state, with the feed at its place, or a new state."""
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    if (newest := checkpointer.latest_step()) is None:
        return state.create(*arguments, seed=experiment.seed)
    restored, feed_state = checkpointer.restore(newest, state.abstract_state(*arguments))
    feed.set_state(feed_state)
    logging.info("Going on from step %d.", newest)
    return restored
