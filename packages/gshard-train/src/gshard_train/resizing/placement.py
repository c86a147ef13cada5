"""Where the arrays of the old model lie on the devices of the new one, while they are read."""

import math
from collections.abc import Mapping

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import axes_tuple

_REST = "_rest"


def fitted(shape: tuple[int, ...], wanted: NamedSharding, like: tuple[int, ...]) -> NamedSharding:
    """A sharding of an array that is split as nearly as can be like the one it becomes.

    So that each device holds what it is to have, and no more than it must: where a mesh axis does
    not divide its dimension (4 experts, 8 devices), the part of it that does splits it still, and
    the rest, as an axis of its own, the longest dimension that it divides. What divides none is
    left out.

    Args:
      shape: of the array.
      wanted: the sharding of the array it becomes.
      like: the shape of that one.
    """
    if shape == like:
        return wanted
    mesh = wanted.mesh
    assert isinstance(mesh, Mesh)  # of devices, as a state's is
    sizes: dict[str, int] = dict(mesh.shape)
    axes: list[list[str]] = [[] for _ in shape]
    left = []
    for dimension, entry in enumerate(wanted.spec):
        for axis in axes_tuple(entry):
            size, part = sizes[axis], 1
            if len(shape) == len(like):
                part = math.gcd(_rest(shape, axes, dimension, sizes), size)
            if part > 1 or size == 1:
                axes[dimension].append(axis)
            if 1 < part < size:
                sizes[axis], sizes[axis + _REST] = part, size // part
            if part < size:
                left.append(axis if part == 1 else axis + _REST)
    for axis in left:
        rest = [_rest(shape, axes, dimension, sizes) for dimension in range(len(shape))]
        if fits := [dimension for dimension, n in enumerate(rest) if n % sizes[axis] == 0]:
            axes[max(fits, key=lambda dimension: rest[dimension])].append(axis)
    spec = PartitionSpec(*(tuple(each) or None for each in axes))
    return NamedSharding(_refined(mesh, sizes), spec, memory_kind=wanted.memory_kind)


def _rest(
    shape: tuple[int, ...], axes: list[list[str]], dimension: int, sizes: Mapping[str, int]
) -> int:
    """The length of a dimension on one device so far."""
    return shape[dimension] // math.prod(sizes[axis] for axis in axes[dimension])


def _refined(mesh: Mesh, sizes: Mapping[str, int]) -> Mesh:
    """The same devices in the same order, with the axes that fell into two."""
    if len(sizes) == len(mesh.shape):
        return mesh
    names = [n for axis in mesh.axis_names for n in (axis, axis + _REST) if n in sizes]
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return Mesh(
        np.reshape(mesh.devices, [sizes[name] for name in names]),
        tuple(names),
        axis_types=tuple(types[name.removesuffix(_REST)] for name in names),
    )
