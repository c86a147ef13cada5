"""Which rows of a global batch a process gives, and the global arrays that all make of theirs."""

import dataclasses
import functools

import jax
from jax.sharding import NamedSharding

from gshard_train.data import Batch
from gshard_train.errors import UserError


@dataclasses.dataclass(frozen=True)
class Share:
    """A block of the rows of a global batch: block `index` of `count` of one size."""

    index: int
    count: int


@functools.lru_cache
def own_share(sharding: NamedSharding) -> Share:
    """The rows that this process's devices hold, which are those that its feed has to give.

    Processes whose devices hold the same rows, as where a model axis spans them, have one share.

    Raises:
      UserError: the rows are no block, because of the order of the mesh's axes.
    """
    parts = sharding.mesh.size  # as many rows as there can be parts
    held = sharding.addressable_devices_indices_map((parts, 1)).values()
    rows = sorted({row for index in held if index for row in range(*index[0].indices(parts))})
    if rows[-1] - rows[0] + 1 != len(rows) or rows[0] % len(rows) or parts % len(rows):
        axes = " x ".join(f"{name} {size}" for name, size in sharding.mesh.shape.items())
        raise UserError(
            f"on the mesh ({axes}) the devices of process {jax.process_index()} hold rows of the "
            "batch that are no block, and its feed gives a block; name the mesh's axes in the "
            f"order in which the batch is split, {sharding.spec[0]}, before all others"
        )
    return Share(rows[0] // len(rows), parts // len(rows))


def to_mesh(batch: Batch, sharding: NamedSharding) -> dict[str, jax.Array]:
    """The global arrays of a batch, of which each host holds its own rows."""
    count = own_share(sharding).count
    return {
        name: jax.make_array_from_process_local_data(
            sharding, rows, (count * rows.shape[0], *rows.shape[1:])
        )
        for name, rows in batch.items()
    }
