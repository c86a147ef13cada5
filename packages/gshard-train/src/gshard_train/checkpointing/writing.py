"""How a checkpoint is written: orbax's manager, and the damaged steps that make way for it."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath
from orbax.checkpoint.checkpoint_managers import preservation_policy as policies

from gshard_train.checkpointing.policy import Kept
from gshard_train.checkpointing.reading import FEED, RUN, STATE

# Of arrays that several devices hold alike each could save a part, as orbax has it. But it cuts the
# parts out with one program for each shape and device, and compiling them kept the first save of a
# process waiting for 10 s. Only where a part is worth a program of its own.
_LEAST_PART_BYTES = 2**24


def manager(
    directory: epath.Path,
    keep: Kept,
    *,
    asynchronous: bool,
    before_removal: Callable[[list[int]], None],
) -> ocp.CheckpointManager:
    """Writes steps below a directory, which is made; what a killed run left there half is removed.

    Every process has to call it.

    Args:
      directory: its steps are directories with numbers for names.
      keep: which steps stay.
      asynchronous: write in the background.
      before_removal: is told on every process which steps go, before they do.
    """
    return ocp.CheckpointManager(
        directory,
        item_handlers={
            STATE: ocp.PyTreeCheckpointHandler(type_handler_registry=_types()),
            FEED: ocp.JsonCheckpointHandler(),
            RUN: ocp.JsonCheckpointHandler(),
        },
        options=ocp.CheckpointManagerOptions(
            preservation_policy=_Announced(keep.policy(), before_removal),
            best_fn=keep.goodness if keep.best else None,
            cleanup_tmp_directories=True,
            enable_async_checkpointing=asynchronous,
        ),
    )


def move_aside(path: epath.Path) -> None:
    """Gives a damaged step's directory a name that no one takes for a step."""
    aside, number = path.parent / f"{path.name}.damaged", 1
    while aside.exists():
        number += 1
        aside = path.parent / f"{path.name}.damaged{number}"
    path.rename(aside)
    logging.warning("Moved the damaged checkpoint %s to %s.", path.name, aside)


@dataclasses.dataclass
class _Announced(policies.PreservationPolicy):
    """A policy that says which steps it lets go before they are removed."""

    policy: policies.PreservationPolicy
    announce: Callable[[list[int]], None]

    def should_preserve(
        self,
        checkpoints: Sequence[policies.PolicyCheckpointInfo],
        *,
        context: policies.PreservationContext,
    ) -> Sequence[bool]:
        """Asks the policy; orbax asks once in each save."""
        stays = self.policy.should_preserve(checkpoints, context=context)
        self.announce([one.step for one, stay in zip(checkpoints, stays, strict=True) if not stay])
        return stays


def _types() -> ocp.type_handlers.TypeHandlerRegistry:
    arrays = ocp.type_handlers.ArrayHandler(min_slice_bytes_for_replica_parallel=_LEAST_PART_BYTES)
    return ocp.type_handlers.create_type_handler_registry(
        (jax.Array, arrays), (np.ndarray, ocp.type_handlers.NumpyHandler())
    )
