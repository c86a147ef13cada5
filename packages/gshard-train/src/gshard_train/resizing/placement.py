"""Where the arrays of the old model lie on the mesh of the new one, while they are read."""

import math

from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate.checks import axes_tuple


def fitted(shape: tuple[int, ...], wanted: NamedSharding, like: tuple[int, ...]) -> NamedSharding:
    """A sharding of an array that is split as nearly as can be like the one it becomes.

    Mesh axes that do not divide their dimension split the longest one that they divide, so that no
    device holds more than it must; those that divide none are left out.

    Args:
      shape: of the array.
      wanted: the sharding of the array it becomes.
      like: the shape of that one.
    """
    if shape == like:
        return wanted
    mesh, spec = wanted.mesh, list(wanted.spec)
    axes: list[list[str]] = [[] for _ in shape]
    left = []
    for dimension, entry in enumerate(spec):
        for axis in axes_tuple(entry):
            at = dimension if len(shape) == len(like) else None
            if at is not None and _rest(shape, axes, at, mesh.shape) % mesh.shape[axis] == 0:
                axes[at].append(axis)
            else:
                left.append(axis)
    for axis in left:
        fits = [
            d for d in range(len(shape)) if not _rest(shape, axes, d, mesh.shape) % mesh.shape[axis]
        ]
        if fits:
            axes[max(fits, key=lambda d: _rest(shape, axes, d, mesh.shape))].append(axis)
    return NamedSharding(
        mesh, PartitionSpec(*(tuple(each) or None for each in axes)), memory_kind=wanted.memory_kind
    )


def _rest(shape: tuple[int, ...], axes: list[list[str]], dimension: int, sizes) -> int:
    """The length of a dimension on one device so far."""
    return shape[dimension] // math.prod(sizes[axis] for axis in axes[dimension])
