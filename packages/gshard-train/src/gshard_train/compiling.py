"""The training step, compiled before its first arrays are there."""

import time
from typing import Any

from absl import logging

from gshard_train import compilation_cache, state
from gshard_train.experiment import Experiment, Prepared
from gshard_train.monitoring import sign_of_life
from gshard_train.monitoring.overview import program_memory
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
    experiment: Experiment, prepared: Prepared, train_state: state.TrainState, batch: Any
) -> Step:
    """The step, compiled for arrays of these shapes before the first of them is there."""
    run_step = step_of(experiment, prepared)
    logging.info("Compiling the step.")
    began = time.monotonic()
    with sign_of_life.told("compiling the step"), compilation_cache.watched() as was_there:
        # Calling it finds the program that is made here.
        program = run_step.lower(train_state, batch).compile()
    how = "Traced, and found in the cache," if was_there() else "Compiled"
    memory = program_memory(program)
    seconds = time.monotonic() - began
    logging.info("%s in %.1f s%s.", how, seconds, f": {memory}" if memory else "")
    return run_step
