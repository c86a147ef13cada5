"""Dimensions that a mesh axis does not divide, without wrong numbers.

JAX has no uneven shards: inside `jit` such an annotation replicates without a word. Here the
dimension is padded at its high end to a multiple of the parts, 15 over 2 to two shards of 8
(GShard, arXiv 2006.16668, section 3.3), and the result is a `Padded`, which carries the true size.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    axes_size,
    axes_tuple,
    describe,
    dim_faults,
    mesh_sizes,
    raise_faults,
    spec_faults,
)
from gshard_annotate.padded import Padded, split_over, whole
from gshard_annotate.placement import AnyMesh, find_mesh, need_array, need_set_mesh


def pad_to_split(
    x: jax.Array,
    dim: int | Sequence[int],
    mesh_axis: MeshAxes | Sequence[MeshAxes],
    *,
    mesh: AnyMesh | None = None,
) -> Padded:
    """`x` with dimension `dim` padded to a multiple of the mesh axis and split over it.

    Other dimensions stay as they are. A dimension that the axis divides is split without padding,
    and the result is a `Padded` all the same. The padding holds copies of the last element and
    passes no gradient.

    Args:
      x: The array.
      dim: The dimension, or several.
      mesh_axis: The mesh axis, or several (major to minor); a list of such, one for each
        dimension, when `dim` is several.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      TypeError: `x` is no array.
      ValueError: No such dimension or axis, or an axis used twice.
    """
    need_array("pad_to_split", x)
    axes = _by_dimension(x, dim, mesh_axis)
    mesh = find_mesh("pad_to_split", mesh)
    sizes = {} if mesh is None else mesh_sizes(mesh)
    if mesh is not None:
        raise_faults("pad_to_split", _axes_faults(x, axes, mesh))
    parts = [1 if mesh is None else axes_size(each, sizes) for each in axes.values()]
    true = tuple(x.shape[one] for one in axes)
    to = tuple(-(-size // n) * n for size, n in zip(true, parts, strict=True))
    with jax.named_scope(_label(axes)):
        if to != true:
            x = _extend(x, dict(zip(axes, to, strict=True)), mesh)
        if mesh is not None:
            x = _place(x, axes, mesh)
    return Padded(x, tuple(one - x.ndim for one in axes), true, to)


def _by_dimension(
    x: jax.Array, dim: int | Sequence[int], mesh_axis: MeshAxes | Sequence[MeshAxes]
) -> dict[int, MeshAxes]:
    """The mesh axes of each dimension to split, which counts from 0."""
    several = isinstance(dim, list | tuple)
    dims: list[Any] = [*dim] if isinstance(dim, list | tuple) else [dim]
    axes: list[Any] = list(mesh_axis or ()) if several else [mesh_axis]
    faults = dim_faults(x, dims)
    if len(dims) != len(axes):
        faults.append(f"{len(dims)} dims {dims} but {len(axes)} mesh axes {axes}; give one per dim")
    if None in axes:
        faults.append(f"mesh_axis is {mesh_axis!r}; name the mesh axis to split over")
    raise_faults("pad_to_split", faults)
    return {one % x.ndim: its_axes for one, its_axes in zip(dims, axes, strict=True)}


def _axes_faults(x: jax.Array, axes: dict[int, MeshAxes], mesh: AnyMesh) -> list[str]:
    what = f"x {describe(x)}"
    spec = [axes.get(dim) for dim in range(x.ndim)]
    # Of size 0, which everything divides: it is padded if need be.
    faults = spec_faults(what, [0] * x.ndim, spec, mesh_sizes(mesh))
    manual = {axis for each in spec for axis in _of_kind(AxisType.Manual, each, mesh)}
    return faults + [
        f"{what} cannot be padded to split over mesh axis '{axis}', which is manual here: inside "
        "manual code x is already one device's part; pad it outside"
        for axis in sorted(manual)
    ]


def _label(axes: dict[int, MeshAxes]) -> str:
    marks = [f"{dim}:{'+'.join(axes_tuple(each))}" for dim, each in sorted(axes.items())]
    return f"pad_to_split[{','.join(marks)}]"


def _extend(x: jax.Array, to: dict[int, int], mesh: AnyMesh | None) -> jax.Array:
    """`x` with these dimensions grown to these sizes by copies of the last element."""
    x = whole(x, tuple(to))
    for dim, size in to.items():
        if missing := size - x.shape[dim]:
            last = lax.stop_gradient(lax.slice_in_dim(x, x.shape[dim] - 1, None, axis=dim))
            copies = [missing if i == dim else n for i, n in enumerate(x.shape)]
            x = jnp.concatenate([x, jnp.broadcast_to(last, copies)], dim)
    if mesh is not None and isinstance(x, jax.core.Tracer):
        # Without this the compiler splits the concatenation too, and moves elements about.
        x = _place(x, dict.fromkeys(to), mesh)
    return x


def _place(x: jax.Array, axes: dict[int, MeshAxes], mesh: AnyMesh) -> jax.Array:
    """`x` with some dimensions split as given and the others as they are."""
    at = mesh if isinstance(mesh, Mesh) else None
    if AxisType.Explicit in mesh.axis_types:
        need_set_mesh("pad_to_split", x, mesh)
        used = {axis for each in axes.values() for axis in axes_tuple(each)}
        kept = [() if used & set(each) else each for each in split_over(x)]
        wanted = {dim: _of_kind(AxisType.Explicit, each, mesh) for dim, each in axes.items()}
        spec = PartitionSpec(*(wanted.get(dim, each) for dim, each in enumerate(kept)))
        x = jax.sharding.reshard(x, spec if at is None else NamedSharding(at, spec))
    if AxisType.Auto in mesh.axis_types:
        wanted = {dim: _of_kind(AxisType.Auto, each, mesh) for dim, each in axes.items()}
        free = PartitionSpec.UNCONSTRAINED
        spec = PartitionSpec(*(wanted.get(dim, free) for dim in range(x.ndim)))
        x = lax.with_sharding_constraint(x, spec if at is None else NamedSharding(at, spec))
    return x


def _of_kind(kind: AxisType, axes: MeshAxes, mesh: AnyMesh) -> tuple[str, ...]:
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return tuple(axis for axis in axes_tuple(axes) if kinds.get(axis) == kind)
