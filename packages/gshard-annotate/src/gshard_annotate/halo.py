"""Neighbours' elements at the edges of each device's part of a dimension.

What an operation with a window needs when it is partitioned along the window's dimension
(GShard, arXiv 2006.16668, section 3.3 and appendix A.4): each device sends the edge of its part to
its neighbour by collective-permute, and what lies beyond the ends is filled in.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType

from gshard_annotate.checks import (
    MeshAxes,
    axes_tuple,
    describe,
    describe_mesh,
    did_you_mean,
    dim_faults,
    mesh_sizes,
    raise_faults,
)
from gshard_annotate.padded import element
from gshard_annotate.placement import need_array

Boundary = Literal["zero", "edge", "wrap"] | float

_BOUNDARIES = ("zero", "edge", "wrap")


def halo_exchange(
    x: jax.Array,
    dim: int,
    mesh_axis: MeshAxes,
    before: int = 1,
    after: int = 1,
    *,
    boundary: Boundary = "zero",
) -> jax.Array:
    """`x` grown along `dim` by its neighbours' elements, inside manual code.

    Each device holds one part of a dimension that is split over `mesh_axis`; the result is that
    part with the `before` elements that precede it and the `after` elements that follow. One
    collective-permute a side moves them, more where a halo is longer than a part.

    Args:
      x: This device's part.
      dim: The dimension that is split; negative ones count from the end.
      mesh_axis: The manual mesh axis that splits it, or several (major to minor).
      before: How many elements of the parts before to put in front.
      after: How many elements of the parts after to append.
      boundary: What lies beyond the two ends of the whole: "zero", "edge" (the outermost element),
        "wrap" (the other end), or a number.

    Raises:
      TypeError: `x` is no array.
      ValueError: Not inside manual code, or anything wrong with the arguments, all at once.
    """
    need_array("halo_exchange", x)
    around = jax.sharding.get_abstract_mesh()
    axes = axes_tuple(mesh_axis)
    faults = _axis_faults(axes, around) + _argument_faults(x, dim, before, after, boundary)
    raise_faults("halo_exchange", faults)
    dim, wrap = dim % x.ndim, boundary == "wrap"
    with jax.named_scope(f"halo_exchange[{dim}:{'+'.join(axes)}]"):
        front = _halo(x, dim, axes, before, 1, wrap)
        back = _halo(x, dim, axes, after, -1, wrap)
        parts = [part for part in (front, x, back) if part is not None]
        grown = lax.concatenate(parts, dim) if len(parts) > 1 else x
        if wrap or len(parts) == 1 or boundary == "zero":
            return grown
        return _fill_ends(grown, dim, axes, before, x.shape[dim], boundary)


def _halo(
    x: jax.Array, dim: int, axes: tuple[str, ...], length: int, step: int, wrap: bool
) -> jax.Array | None:
    """The `length` elements before (step 1) or after (-1) this part; 0 where there are none."""
    size, count = x.shape[dim], lax.axis_size(axes)
    slices = []
    for hop in range(1, -(-length // size) + 1):
        wanted = min(size, length - (hop - 1) * size)
        start = size - wanted if step > 0 else 0
        part = lax.slice_in_dim(x, start, start + wanted, axis=dim)
        slices.append(_shift(part, axes, count, hop * step, wrap))
    if not slices:
        return None
    return lax.concatenate(slices[::-1] if step > 0 else slices, dim)


def _shift(x: jax.Array, axes: tuple[str, ...], count: int, by: int, wrap: bool) -> jax.Array:
    """Device i gets what device i - `by` holds; zeros where there is no such device."""
    if wrap:
        if by % count == 0:
            return x
        pairs = [(i, (i + by) % count) for i in range(count)]
    else:
        pairs = [(i, i + by) for i in range(count) if 0 <= i + by < count]
    if not pairs:
        return jnp.zeros_like(x)
    # JAX numbers the devices of several axes in the mesh's order, whatever order they are given in.
    ordered = tuple(a for a in jax.sharding.get_abstract_mesh().axis_names if a in axes)
    numbers = _numbers_in(ordered, axes)
    return lax.ppermute(x, ordered, [(numbers[i], numbers[j]) for i, j in pairs])


def _numbers_in(ordered: tuple[str, ...], axes: tuple[str, ...]) -> list[int]:
    """For each device by its number over `axes`, major to minor, its number over `ordered`."""
    numbers = np.arange(lax.axis_size(ordered)).reshape([lax.axis_size(a) for a in ordered])
    return numbers.transpose([ordered.index(axis) for axis in axes]).ravel().tolist()


def _fill_ends(
    grown: jax.Array, dim: int, axes: tuple[str, ...], before: int, size: int, boundary: Any
) -> jax.Array:
    """`grown` with what lies beyond the ends of the whole replaced."""
    total = grown.shape[dim]
    first = before - lax.axis_index(axes) * size  # where the whole begins and ends here
    end = first + lax.axis_size(axes) * size
    place = lax.broadcasted_iota(
        jnp.int32, [total if i == dim else 1 for i in range(grown.ndim)], dim
    )
    if boundary != "edge":
        value = element("halo_exchange", boundary, grown.dtype)
        return jnp.where((place < first) | (place >= end), value, grown)
    low = lax.dynamic_slice_in_dim(grown, jnp.clip(first, 0, total - 1), 1, dim)
    high = lax.dynamic_slice_in_dim(grown, jnp.clip(end - 1, 0, total - 1), 1, dim)
    return jnp.where(place < first, low, jnp.where(place >= end, high, grown))


def _axis_faults(axes: tuple[str, ...], around: AbstractMesh) -> list[str]:
    kinds = dict(zip(around.axis_names, around.axis_types, strict=True))
    manual = tuple(axis for axis, kind in kinds.items() if kind == AxisType.Manual)
    if not manual:
        return ["not inside manual code; call it in a function wrapped by gshard_annotate.manual"]
    if not axes:
        return [f"mesh_axis is empty; give one of {manual}"]
    faults = []
    for axis in dict.fromkeys(axes):
        if axis not in kinds:
            sizes = mesh_sizes(around)
            faults.append(
                f"there is no mesh axis '{axis}': the mesh has {describe_mesh(sizes)}"
                f"{did_you_mean(axis, sizes)}"
            )
        elif axis not in manual:
            faults.append(
                f"mesh axis '{axis}' is not manual here, but {manual}; name it in the `axes` of "
                "gshard_annotate.manual"
            )
        elif axes.count(axis) > 1:
            faults.append(f"mesh axis '{axis}' stands twice in {axes}; name it once")
    return faults


def _argument_faults(x: jax.Array, dim: int, before: int, after: int, boundary: Any) -> list[str]:
    if (faults := dim_faults(x, [dim])) == [] and not x.shape[dim]:
        faults.append(f"dimension {dim} of x {describe(x)} is empty; there is nothing to exchange")
    faults += [
        f"{name} is {length!r}; it must be an integer of 0 or more"
        for name, length in (("before", before), ("after", after))
        if not isinstance(length, int | np.integer) or length < 0
    ]
    if boundary not in _BOUNDARIES and not isinstance(boundary, int | float | complex | np.generic):
        faults.append(
            f"boundary is {boundary!r}; give one of {', '.join(map(repr, _BOUNDARIES))}, or a "
            f"number{did_you_mean(str(boundary), _BOUNDARIES)}"
        )
    return faults
