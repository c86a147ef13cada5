"""The training step, compiled before its first arrays are there."""

import time
from typing import Any

from absl import logging

from gshard_train import compilation_cache, state
from gshard_train.experiment import Experiment, Prepared
from gshard_train.monitoring import sign_of_life
from gshard_train.monitoring.overview import program_memory
from gshard_train.precompiling import saved_program
from gshard_train.step import Step, make_step


def step_of(experiment: Experiment, prepared: Prepared) -> Step:
    """The experiment's step."""
    return make_step(
        prepared.model,
        prepared.optimizer,
        experiment.loss,
        experiment.rules,
        prepared.mesh,
        microbatches=experiment.microbatches,
        offload_optimizer=experiment.offload_optimizer,
    )


def compiled(
    experiment: Experiment,
    prepared: Prepared,
    train_state: state.TrainState,
    batch: Any,
    *,
    program: str | None = None,
    effective_config: str = "",
) -> Step:
    """The step, compiled for arrays of these shapes before the first of them is there.

    Args:
      experiment: what is trained.
      prepared: its parts.
      train_state: the state, or its shapes.
      batch: a batch's shapes.
      program: a file of `saved_program` that has it; it is then not compiled.
      effective_config: to say what is different where it has another one.

    Raises:
      UserError: the file does not have this step.
    """
    run_step = step_of(experiment, prepared)
    if program is not None:
        began = time.monotonic()
        step = saved_program.load(
            program,
            run_step.lower(train_state, batch),
            (train_state, batch),
            mesh=prepared.mesh,
            config=effective_config,
        )
        logging.info("Took the step out of %s in %.1f s.", program, time.monotonic() - began)
        return step
    logging.info("Compiling the step.")
    began = time.monotonic()
    with sign_of_life.told("compiling the step"), compilation_cache.watched() as was_there:
        # Calling it finds the program that is made here.
        made = run_step.lower(train_state, batch).compile()
    how = "Traced, and found in the cache," if was_there() else "Compiled"
    memory = program_memory(made)
    seconds = time.monotonic() - began
    logging.info("%s in %.1f s%s.", how, seconds, f": {memory}" if memory else "")
    return run_step
