"""What a layout costs at the least, known before anything is compiled; and a guess of the rest.

A floor counts what any program of the layout does on one device, so it is not above the estimate
for the compiled program:

    seconds   matrix products at the chip's peak, and one after the other the exchanges that no
              compiler can leave out: two all-to-alls forward and two backward for each MoE layer,
              the sum of gradients over copies of a parameter, parameters that are gathered and
              gradients that are scattered (FSDP), the sums of what a `model` axis splits
    bytes     the state that lies on the device between steps

The guess adds main memory, and of room the gradients, what is kept for the backward pass and a pair
of layers at work. It decides the order of compiling and nothing else.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from gshard_annotate import Rules
from gshard_annotate.inspector.chips import Chip, compact_sides, exchange_seconds
from gshard_train import state
from gshard_train.experiment import Experiment
from gshard_train.optimizer import resolved
from gshard_train.planning.held import Held, held
from gshard_train.planning.work import Sent, Work


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floor:
    """Of one device and one step.

    Attributes:
      seconds: no program of the layout is estimated to be faster.
      bytes: none needs less memory.
      guessed_seconds: what the estimate may be.
      guessed_bytes: what the peak may be.
    """

    seconds: float
    bytes: int
    guessed_seconds: float
    guessed_bytes: int


class Floors:
    """Floors of the layouts of one model.

    Args:
      experiment: the model with any layout.
    """

    def __init__(self, experiment: Experiment):
        self._model = state.abstract_model(experiment.model)
        self._optimizer = resolved(experiment.optimizer, self._model.names())
        self._held_of = functools.cache(self._held)

    def of(self, experiment: Experiment, mesh: Mapping[str, int], chip: Chip) -> Floor:
        """The floor of a layout.

        Args:
          experiment: with the layout applied.
          mesh: size of each axis.
          chip: what a device is.

        Raises:
          ValueError: parameters that the mesh does not divide.
        """
        on = self._held_of(experiment.rules, tuple(mesh.items()), experiment.offload_optimizer)
        work = Work(experiment, mesh, on)
        compute = work.flops() / chip.flops
        exchanges = _seconds(work.sent(), chip)
        # A compiler may gather once for all parts of a batch, but mostly does for each.
        guessed = _seconds(work.sent(gathers=experiment.microbatches), chip)
        memory = work.traffic_bytes() / chip.memory_bandwidth
        return Floor(
            seconds=compute + exchanges,
            bytes=on.bytes,
            # About half of what memory takes passes while nothing is multiplied.
            guessed_seconds=compute + guessed + memory / 2,
            guessed_bytes=int(on.bytes + work.temporary_bytes()),
        )

    def _held(self, rules: Rules, sizes: tuple[tuple[str, int], ...], offload: bool) -> Held:
        return held(self._model, self._optimizer, rules, dict(sizes), offload_optimizer=offload)


def _seconds(sent: Iterable[Sent], chip: Chip) -> float:
    """Of exchanges one after the other."""
    return sum(
        one.times
        * exchange_seconds(one.kind, int(one.bytes), one.group, chip, _sides(one.group, chip))
        for one in sent
    )


@functools.cache
def _sides(group: int, chip: Chip) -> tuple[int, ...]:
    """The most compact block of chips; two cores of one chip are in one place."""
    cores = 2 if chip.name.endswith(" core") else 1
    return compact_sides(max(1, group // cores), chip)
