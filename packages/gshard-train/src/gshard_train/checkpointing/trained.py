"""The parameters in a run's checkpoints, for what evaluates, decodes and exports."""

from gshard_train import state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared


def find_step(experiment: Experiment, step: int | None = None) -> int:
    """The step that was asked for, or the newest that has a checkpoint.

    Raises:
      UserError: none has.
    """
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


def restore_params(experiment: Experiment, prepared: Prepared, step: int) -> state.Params:
    """The parameters of a checkpoint; what the optimizer keeps is not read.

    Raises:
      UserError: there is no such checkpoint, it is damaged, or it is of another model.
    """
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    with Checkpointer(experiment.model_dir) as checkpointer:
        return checkpointer.restore_part(step, "params", state.abstract_state(*arguments).params)
