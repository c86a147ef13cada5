"""What may be changed about a run that does not fit, what costs least speed first.

A rung is one kind of change with its strengths, weakest first; a stronger one replaces a weaker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gshard_train.precompiling.activation_rungs import batch, dispatch, microbatches, remat, slots
from gshard_train.precompiling.changes import Rung
from gshard_train.precompiling.job import Facts, Job
from gshard_train.precompiling.state_rungs import bfloat16, fsdp, more_devices, offload
from gshard_train.precompiling.verdict import DeviceMemory

if TYPE_CHECKING:
    from gshard_train.experiment import Experiment


def ladder(
    experiment: "Experiment",
    job: Job,
    facts: Facts,
    needed: Callable[[], DeviceMemory],
    batch_parameter: str,
) -> list[Callable[[], Rung]]:
    """What makes the rungs for an experiment that does not fit.

    Args:
      experiment: as the job has it, its layout applied.
      job: that does not fit.
      facts: of its program.
      needed: what it needs by now, with those changes of earlier rungs that helped.
      batch_parameter: that says how many rows a program that only reads takes at once.
    """
    trains = job.mode == "train"
    if trains:
        of_rows = [lambda: remat(experiment), lambda: microbatches(experiment, needed())]
        of_optimizer = [lambda: offload(experiment, needed())]
    else:
        of_rows = [lambda: slots(experiment), lambda: batch(facts, batch_parameter)]
        of_optimizer = []
    return [
        lambda: dispatch(experiment, facts, needed()),
        *of_rows,
        lambda: fsdp(job),
        *of_optimizer,
        lambda: bfloat16(experiment),
        lambda: more_devices(experiment, job, facts),
    ]
