"""How orbax reads a step: by each process for itself, and with no more memory than has to be."""

import math
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from gshard_train.checkpointing import tensors

# Parts of a step's directory: the tensors, the feed's position, and what run it is.
STATE, FEED, RUN = "state", "feed", "run"
# Of a process's arrays so much is on its way from disk at once, which is held twice: compressed and
# not. orbax would begin with all of them, and hold the whole state twice beside its arrays.
_SHARE_ON_ITS_WAY = 8
_MOST_BYTES_ON_THEIR_WAY = 2**31


def arrays(wanted: Any, *, partial: bool = False) -> ocp.args.PyTreeRestore:
    """How orbax is to restore named tensors of these shapes, dtypes and shardings."""
    restore_args = ocp.checkpoint_utils.construct_restore_args(wanted)
    return ocp.args.PyTreeRestore(wanted, restore_args=restore_args, partial_restore=partial)


def reader(*, bytes_on_their_way: int | None = None) -> ocp.Checkpointer:
    """Reads for this process alone: one that fails leaves none waiting in orbax's barriers.

    Args:
      bytes_on_their_way: most that is read at once; None for as much as there is.
    """
    own = jax.process_index()
    # orbax takes whole gigabytes by its types, and counts in bytes.
    gigabytes: Any = None if bytes_on_their_way is None else bytes_on_their_way / 1e9
    return ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(
            **{
                STATE: ocp.PyTreeCheckpointHandler(restore_concurrent_gb=gigabytes),
                FEED: ocp.JsonCheckpointHandler(),
                RUN: ocp.JsonCheckpointHandler(),
            }
        ),
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}
        ),
    )


def bytes_on_their_way(saved: Any, wanted: Any) -> int:
    """How much of the wanted tensors to read at once.

    Args:
      saved: what orbax tells of the tensors: how they are cut into chunks on disk.
      wanted: `jax.ShapeDtypeStruct`s with shardings, nested like a part of `saved`.
    """
    stored = dict(tensors.listed(saved))
    largest, own = 0, 0
    for name, leaf in tensors.listed(wanted):
        shard = leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape
        item_bytes = np.dtype(stored[name].dtype).itemsize
        own += math.prod(shard) * item_bytes
        largest = max(largest, math.prod(_chunks(shard, stored[name])) * item_bytes)
    # One read has to fit, with a byte to spare.
    return max(largest + 1, min(own // _SHARE_ON_ITS_WAY, _MOST_BYTES_ON_THEIR_WAY))


def _chunks(shard: tuple[int, ...], stored: Any) -> list[int]:
    """The shape of what is read for one shard: whole chunks."""
    chunk = stored.storage.chunk_shape if stored.storage else None
    return [
        -(-size // each) * each + (each if size % each and each % size else 0)
        for size, each in zip(shard, chunk or stored.shape, strict=True)
        if size
    ]
