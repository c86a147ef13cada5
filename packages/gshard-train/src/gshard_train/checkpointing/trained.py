"""The parameters in a run's checkpoints, for what evaluates, decodes and exports.

Who asks for a step and then for its parameters gives the same `Checkpointer` to both, which
compares the sums of the step's files once.
"""

from collections.abc import Sequence

from gshard_train import state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, Prepared

_TRAIN = "train first, with the same --gin_file and MODEL_DIR"


def find_step(checkpointer: Checkpointer, step: int | None = None, *, advice: str = _TRAIN) -> int:
    """The step that was asked for, or the newest that has a checkpoint.

    Args:
      checkpointer: of the run.
      step: None for the newest.
      advice: what to do where no step has one.

    Raises:
      UserError: none has, or none can be read.
    """
    if step is not None:
        return step
    if (newest := checkpointer.latest_step()) is not None:
        return newest
    if none := checkpointer.none_readable():
        raise UserError(f"{none}\nput one back as it was")
    raise UserError(f"{checkpointer.model_dir} holds no checkpoint; {advice}")


def find_steps(checkpointer: Checkpointer, asked: str | Sequence[int]) -> list[int]:
    """The steps that were asked for, "newest", "all" or numbers; each has a checkpoint.

    Raises:
      UserError: naming those that have none, or that there is none at all.
    """
    if asked == "newest":
        return [find_step(checkpointer)]
    there = checkpointer.steps()
    if asked == "all" or not there:
        return there or [find_step(checkpointer)]  # which says that there is none
    if lacking := [step for step in asked if step not in there]:
        raise UserError(
            f"there is no checkpoint {', '.join(map(str, lacking))} in {checkpointer.model_dir}; "
            f"there is {', '.join(map(str, there))}"
        )
    return [int(step) for step in asked]


def restore_params(
    checkpointer: Checkpointer, experiment: Experiment, prepared: Prepared, step: int
) -> state.Params:
    """The parameters of a checkpoint; the optimizer's arrays are not restored.

    Raises:
      UserError: on every process: there is no such checkpoint, it is damaged, or it is of another
        model.
    """
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    return checkpointer.restore_part(step, "params", state.abstract_state(*arguments).params)
