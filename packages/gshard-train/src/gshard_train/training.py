"""A training run, from the first check to the last checkpoint."""

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
from absl import logging

from gshard_train import (
    compilation_cache,
    config,
    disk_faults,
    last_checkpoint,
    nonfinite,
    resuming,
    starting,
)
from gshard_train.checkpointing import fitting
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.policy import Kept
from gshard_train.compiling import compiled
from gshard_train.data import Feed
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared, open_feed, prepare
from gshard_train.interruption import Interrupted, StopRequest
from gshard_train.loop import Due, Loop
from gshard_train.monitoring import profiling
from gshard_train.monitoring.guard import Guard
from gshard_train.monitoring.overview import overview
from gshard_train.monitoring.profiling import Profiler
from gshard_train.monitoring.reporting import Reporter
from gshard_train.monitoring.stopwatch import Stopwatch
from gshard_train.precompiling import saved_program
from gshard_train.prefetch import Prefetch
from gshard_train.ranges import is_whole
from gshard_train.saving import Saver
from gshard_train.step import batch_sharding
from gshard_train.watchdog import (
    HELD_OUT,
    READING,
    RESTORING,
    Limits,
    Watchdog,
)

if TYPE_CHECKING:
    from gshard_train.evaluation import Evaluation


def train(
    experiment: Experiment,
    *,
    train_steps: int,
    checkpoint_period: int = 1000,
    checkpoints_kept: Kept | int = 3,
    log_period: int = 50,
    eval_period: int | None = None,
    evaluation: "Evaluation | None" = None,
    profile_steps: Sequence[int] = (),
    peak_flops_per_device: float | None = None,
    compilation_cache_dir: str | None = compilation_cache.DEFAULT_DIRECTORY,
    silent_seconds: float = Limits.silent,
    stuck_seconds: float = Limits.stuck,
    effective_config: str = "",
    changed_feed: str = resuming.REFUSE,
    changed_model: str = fitting.REFUSE,
    damaged_checkpoints: str = starting.REFUSE,
    skipped_steps: int = 0,
    program: str | None = None,
    dry_run: bool = False,
) -> int:
    """Trains until step `train_steps` and returns the step reached.

    Starts from the newest checkpoint below the experiment's directory when there is one, with the
    training feed at the place where it was.

    Args:
      experiment: what is trained on what.
      train_steps: updates in all, those before a resume included.
      checkpoint_period: steps between checkpoints; the last step always has one.
      checkpoints_kept: which stay, or how many of the newest.
      log_period: steps between lines in `metrics.jsonl`.
      eval_period: steps between evaluations; the last step has one too. None never evaluates. One
        that the run is killed in is left to `gshard-eval`: its step's checkpoint is there already.
      evaluation: what is evaluated then.
      profile_steps: first and last step of a profile, such as (10, 15); empty for none.
      peak_flops_per_device: what one device could do in a second, such as 197e12 for a TPU v5e in
        bfloat16; the utilisation is reported where it is given.
      compilation_cache_dir: where compiled programs are kept for the next start, below the
        experiment's directory where it is relative; None for nowhere.
      silent_seconds: of several processes, one that is not heard of for so long ends the others.
      stuck_seconds: the same for one that does nothing for so long: makes no step, and neither
        begins nor ends to compile, to save or to evaluate.
      effective_config: text that is kept as `config.gin` beside the checkpoints.
      changed_feed: what happens where the order of examples is another than the checkpoint's:
        "refuse"; "go on" at the same number of batches; "restart" from the beginning of the data.
      changed_model: what happens where the checkpoint's tensors are not the model's: "refuse", or
        "fit": those of the same name, shape and dtype are taken, the others are as in a new run.
      damaged_checkpoints: what happens where there are checkpoints and none can be read: "refuse",
        or "begin anew": the run begins at step 0, and they stay under other names.
      skipped_steps: how many steps whose loss or gradients are not finite may be left out, those
        before a resume included; the next one stops the run.
      program: a file with the compiled step, as gshard-precompile --save_program writes it.
      dry_run: builds everything, the compiled step too, and neither trains nor writes anything.

    Raises:
      UserError: something cannot work; nothing was written and no parameter was made.
      DiskError: what has to be written cannot be; the checkpoints before are whole.
      Interrupted: SIGINT or SIGTERM came; the last whole step has a checkpoint.
      NonfiniteError: loss, gradients or update are not; the newest checkpoint is from before.
    """
    began = time.monotonic()
    periods = {
        "TRAIN_STEPS": train_steps,
        "CHECKPOINT_PERIOD": checkpoint_period,
        "checkpoints_kept": getattr(checkpoints_kept, "newest", checkpoints_kept),
        "log_period": log_period,
        "EVAL_PERIOD": eval_period,
    }
    choices = starting.Choices(changed_feed, changed_model, damaged_checkpoints)
    limits = Limits(silent_seconds, stuck_seconds)
    faults = [
        *_faults(periods, evaluation, peak_flops_per_device, skipped_steps),
        *limits.faults(),
        *profiling.faults(profile_steps),
        *compilation_cache.faults(compilation_cache_dir),
        *choices.faults(),
    ]
    if faults:
        raise UserError(*faults)
    kept = checkpoints_kept if isinstance(checkpoints_kept, Kept) else Kept(newest=checkpoints_kept)
    due = Due(
        total=train_steps, checkpoint_period=checkpoint_period, eval_period=eval_period, kept=kept
    )
    if faults := list(due.faults()):
        raise UserError(*faults)
    prepared = prepare(experiment)
    if program is not None:
        saved_program.check(program, prepared.mesh)
    evaluation = evaluation if eval_period else None
    compile_step = functools.partial(
        compiled, experiment, prepared, program=program, effective_config=effective_config
    )
    if dry_run:
        return starting.dry_run(experiment, prepared, evaluation, choices, compile_step)
    checkpoints = str(experiment.path("checkpoints"))
    with (
        StopRequest(checkpoints) as stop,
        last_checkpoint.told(experiment.model_dir),
        compilation_cache.use(compilation_cache_dir, model_dir=experiment.model_dir),
        contextlib.closing(open_feed(experiment, prepared)) as feed,
        last_checkpoint.checkpointing(
            Checkpointer(experiment.model_dir, keep=kept)
        ) as checkpointer,
        Watchdog(
            jax.process_index(), jax.process_count(), limits=limits, checkpoints=checkpoints
        ) as watchdog,
    ):
        stop.until_begin(
            doing=lambda: watchdog.doing, leave=watchdog.leave, step=lambda: watchdog.step
        )
        if evaluation:
            logging.info("Reading what is evaluated.")
        watchdog.tell(0, HELD_OUT)
        evaluate = evaluation.open(experiment, prepared) if evaluation else None
        watchdog.tell(0, RESTORING)
        train_state, position = starting.start(
            experiment,
            prepared,
            feed,
            checkpointer,
            choices,
            between=lambda: watchdog.tell(0, RESTORING),
        )
        step = int(train_state.step)
        if step >= train_steps:
            logging.info("Step %d of %d is reached: nothing to train.", step, train_steps)
            return step
        if position is not None:
            watchdog.tell(step, READING)
            resuming.go_to(feed, position, step=step, changed_feed=changed_feed)
        _keep_config(effective_config, experiment.model_dir)
        logging.info("What is trained:\n%s", overview(experiment, prepared, train_state))
        watch = Stopwatch()
        saver = Saver(
            checkpointer,
            config=effective_config,
            identity=getattr(feed, "identity", dict)(),
            newest=step or None,
        )
        left_out = checkpointer.skipped_steps(step) if step else 0
        with (
            Prefetch(feed, batch_sharding(experiment.rules, prepared.mesh)) as batches,
            Reporter(
                experiment,
                prepared,
                start=step,
                total=train_steps,
                log_period=log_period,
                watch=watch,
                peak_flops_per_device=peak_flops_per_device,
                repeated_share=lambda: _repeated_share(feed, batches.get_state()),
                began=began,
                guard=_guard(prepared, feed, allowed=skipped_steps, left_out=left_out),
            ) as reporter,
            Profiler(
                experiment.model_dir, profile_steps, start=step, total=train_steps
            ) as profiler,
        ):
            loop = Loop(
                train_state,
                due=due,
                batches=batches,
                saver=saver,
                evaluate=evaluate,
                reporter=reporter,
                profiler=profiler,
                watch=watch,
                watchdog=watchdog,
                stop=stop,
            )
            del train_state  # where it is not donated, the first one would stay in memory
            step = loop.run(compile_step)
    if step < train_steps:
        raise Interrupted(
            f"{stop.name}: stopped at step {step} of {train_steps}, whose checkpoint is in "
            f"{experiment.path('checkpoints')}; run the same command again to go on",
            stop.exit_code,
            of_all=True,
        )
    logging.info("Trained to step %d; everything is in %s.", step, experiment.model_dir)
    return step


def _faults(
    periods: Mapping[str, int | None],
    evaluation: object,
    peak: float | None,
    skipped_steps: int,
) -> Iterator[str]:
    """What is wrong with the arguments by themselves."""
    for name, number in periods.items():
        optional = name == "EVAL_PERIOD"
        if number is None and optional:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            least = "a whole number of at least 1"
            yield f"{name}={number!r} must be {least}{', or None' if optional else ''}"
    if evaluation is None and periods["EVAL_PERIOD"] is not None:
        yield (
            f"EVAL_PERIOD={periods['EVAL_PERIOD']} is set and nothing is bound to "
            "train.evaluation; bind an evaluation.Evaluation, or set EVAL_PERIOD = None"
        )
    if peak is not None and not (isinstance(peak, int | float) and peak > 0):
        yield f"peak_flops_per_device={peak!r} must be a number above 0, or None"
    if not is_whole(skipped_steps, 0):
        yield f"skipped_steps={skipped_steps!r} must be a whole number of at least 0"


def _keep_config(text: str, model_dir: str) -> None:
    if text:
        logging.info("The configuration, which %s keeps:\n%s", config.SAVED_NAME, text)
        with disk_faults.writing(config.SAVED_NAME, model_dir):
            config.save(text, model_dir)


def _guard(prepared: Prepared, feed: Feed, *, allowed: int, left_out: int) -> Guard:
    """What is done about steps with NaN or Inf, which are named by the feed's examples."""
    return Guard(
        lambda: nonfinite.pieces(prepared.model),
        allowed=allowed,
        left_out=left_out,
        examples=getattr(feed, "examples", lambda _: None),
    )


def _repeated_share(feed: Feed, position: Mapping[str, Any]) -> float | None:
    """Share of the examples so far that were not new, where the feed tells."""
    tell = getattr(feed, "repeated_share", None)
    return None if tell is None else tell(position)
