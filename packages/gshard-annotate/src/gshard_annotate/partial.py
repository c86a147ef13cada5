"""Partial sums: a value whose parts lie on the devices of a mesh axis and still have to be added.

They are JAX's `unreduced` state: each device holds a summand, the value is their sum. Sums, casts,
reshapes, transposes and slices carry it; `replicate` places the reduction as an all-reduce, `split`
as a reduce-scatter. The paper has no such primitive; its partitioner makes partial sums of every
contraction over a split dimension and reduces them at once (GShard, arXiv 2006.16668, section 3.3).
"""

from collections.abc import Sequence

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    axes_tuple,
    describe,
    describe_mesh,
    did_you_mean,
    mesh_sizes,
    raise_faults,
)
from gshard_annotate.placement import AnyMesh, find_mesh, need_array, need_set_mesh


def partial(x: jax.Array, mesh_axis: MeshAxes, *, mesh: AnyMesh | None = None) -> jax.Array:
    """`x` as a sum over a mesh axis that is still to be added up: its value stays what it is.

    Contractions make partial sums themselves when they are asked to:
    `jnp.einsum("ab,bc->ac", x, y, out_sharding=PartitionSpec(None, None, unreduced={"expert"}))`.

    Args:
      x: The array, or a partial sum over other axes.
      mesh_axis: The mesh axis, or several.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      TypeError: `x` is no array.
      ValueError: No such axis, or one whose kind has no partial sums: only Explicit axes have.
    """
    need_array("partial", x)
    mesh = find_mesh("partial", mesh)
    if mesh is None:  # one device: the sum of one summand
        return x
    axes = axes_tuple(mesh_axis)
    raise_faults("partial", _faults(x, axes, mesh))
    need_set_mesh("partial", x, mesh)
    known = jax.typeof(x).sharding.spec
    whole = [_without(axes, each) for each in known.partitions] + [None] * x.ndim
    with jax.named_scope(f"partial[{'+'.join(axes)}]"):
        if not known.unreduced:
            # An argument of jit that is nowhere placed would itself become a partial sum, of
            # copies that count several times; the barrier keeps it what it is.
            x = jax.lax.optimization_barrier(_reshard(x, PartitionSpec(*whole[: x.ndim]), mesh))
        spec = PartitionSpec(*whole[: x.ndim], unreduced=known.unreduced | set(axes))
        return _reshard(x, spec, mesh)


def _reshard(x: jax.Array, spec: PartitionSpec, mesh: AnyMesh) -> jax.Array:
    return jax.sharding.reshard(x, NamedSharding(mesh, spec) if isinstance(mesh, Mesh) else spec)


def _without(axes: Sequence[str], split_over: MeshAxes) -> MeshAxes:
    kept = tuple(axis for axis in axes_tuple(split_over) if axis not in axes)
    return kept[0] if len(kept) == 1 else kept or None


def _faults(x: jax.Array, axes: Sequence[str], mesh: AnyMesh) -> list[str]:
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    sizes = mesh_sizes(mesh)
    faults = [] if axes else ["no mesh axis is given"]
    for axis in axes:
        if axis not in types:
            faults.append(
                f"x {describe(x)} cannot be a partial sum over mesh axis '{axis}': the mesh has "
                f"{describe_mesh(sizes)}{did_you_mean(axis, sizes)}"
            )
        elif types[axis] != AxisType.Explicit:
            faults.append(
                f"x {describe(x)} cannot be a partial sum over mesh axis '{axis}', which "
                f"is {types[axis].name}: {_WAYS_OUT[types[axis]]}"
            )
    return faults


_WAYS_OUT = {
    AxisType.Auto: (
        "JAX keeps partial sums over Explicit axes only; build the mesh with jax.make_mesh, or "
        "compute the summands per device with gshard_annotate.sum_partials"
    ),
    AxisType.Manual: (
        "inside shard_map each device computes its own summand anyway; add them up with "
        "jax.lax.psum or jax.lax.psum_scatter"
    ),
}
