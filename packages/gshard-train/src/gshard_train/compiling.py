"""The training step, compiled before its first arrays are there."""

from typing import Any

from absl import logging

from gshard_train import state
from gshard_train.experiment import Experiment, Prepared
from gshard_train.monitoring.overview import program_memory
from gshard_train.step import Step, make_step


def compiled(
    experiment: Experiment, prepared: Prepared, train_state: state.TrainState, batch: Any
) -> Step:
    """The step, compiled for arrays of these shapes before the first of them is there."""
    run_step = make_step(
        prepared.model,
        prepared.optimizer,
        experiment.loss,
        experiment.rules,
        prepared.mesh,
        microbatches=experiment.microbatches,
        offload_optimizer=experiment.offload_optimizer,
    )
    # Calling it finds the program that is made here.
    program = run_step.lower(train_state, batch).compile()
    if memory := program_memory(program):
        logging.info("Compiled: %s.", memory)
    return run_step
