"""Sums of what each device computes, reduced where one wants it.

The way to partial sums on meshes whose axes are Auto, where JAX has no state for them (`partial`
needs Explicit axes): a product over a split contracting dimension is one all-reduce, or one
reduce-scatter (GShard, arXiv 2006.16668, section 3.3).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from gshard_annotate.checks import MeshAxes, axes_tuple, describe, raise_faults, spec_faults
from gshard_annotate.manual_entry import ManualEntry, path_name, varying_axes
from gshard_annotate.placement import AnyMesh


def sum_partials(
    fn: Callable[..., Any],
    mesh_axis: MeshAxes,
    in_axes: Any,
    *,
    scatter: int | None = None,
    mesh: AnyMesh | None = None,
) -> Callable[..., Any]:
    """`fn` as per-device code whose results are summands: called, it returns their sum.

    One all-reduce for each result, or one reduce-scatter; mesh axes of any kind. Half precision is
    added in float32 on CPU devices, whose compiler does nothing else.

    Args:
      fn: From parts of arrays to arrays, each device's summand.
      mesh_axis: The mesh axis to sum over, or several; the compiler keeps all others.
      in_axes: How each argument is split over `mesh_axis`, as in `manual`.
      scatter: The dimension (from 0) of the result that is split over `mesh_axis` in the end; when
        left out, the result is whole on every device.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      ValueError: When called, as `manual`; a result that is the same on all devices, or whose
        dimension `scatter` cannot be split.
    """
    axes = axes_tuple(mesh_axis)
    if scatter is not None and not (isinstance(scatter, int | np.integer) and scatter >= 0):
        raise ValueError(f"sum_partials: scatter is {scatter!r}; give a dimension, counted from 0")
    out = PartitionSpec() if scatter is None else PartitionSpec(*[None] * scatter, axes)

    @functools.wraps(fn)
    def summed(*args: Any) -> Any:
        result = fn(*args)
        raise_faults("sum_partials", _summand_faults(result, axes, scatter))
        return jax.tree.map(lambda y: _sum(y, axes, scatter), result)

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        with jax.named_scope(f"sum_partials[{'+'.join(axes)}]"):
            return ManualEntry("sum_partials", None, axes, mesh, in_axes, out).run(summed, args)

    return call


def _summand_faults(result: Any, axes: Sequence[str], scatter: int | None) -> list[str]:
    faults = []
    sizes = {axis: lax.axis_size(axis) for axis in axes}
    for path, y in jax.tree_util.tree_flatten_with_path(result)[0]:
        what = f"{path_name('the result', path)} {describe(y)}"
        faults += [
            f"{what} is the same on all devices of mesh axis '{axis}', its sum would count it "
            f"{size} times; split an argument over '{axis}'"
            for axis, size in sizes.items()
            if axis not in varying_axes(y)
        ]
        if scatter is not None and scatter >= y.ndim:
            faults.append(f"{what} has no dimension {scatter} to scatter; give 0 to {y.ndim - 1}")
        elif scatter is not None:
            spec = [tuple(axes) if dim == scatter else None for dim in range(y.ndim)]
            faults += spec_faults(what, y.shape, spec, sizes)
    return faults


def _sum(y: jax.Array, axes: tuple[str, ...], scatter: int | None) -> jax.Array:
    def total(y: jax.Array) -> jax.Array:
        if scatter is None:
            return lax.psum(y, axes)
        return lax.psum_scatter(y, axes, scatter_dimension=scatter, tiled=True)

    def wide(y: jax.Array) -> jax.Array:
        return total(y.astype(jnp.float32)).astype(y.dtype)

    if not jnp.issubdtype(y.dtype, jnp.floating) or y.dtype.itemsize > 2:
        return total(y)
    # XLA:CPU adds in float32 in any case, but aborts when asked to add bfloat16 in code that is
    # manual in part ("Invalid binary instruction opcode copy", jaxlib 0.10.2).
    return lax.platform_dependent(y, cpu=wide, default=total)
