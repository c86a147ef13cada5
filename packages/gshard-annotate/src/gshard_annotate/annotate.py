"""Annotations: which dimension of an array is split over which mesh axes.

They add metadata: value and logical shape stay as they are, the compiler does the rest
(GShard, arXiv 2006.16668, section 3.2). All work inside and outside `jit`, under `grad`, `scan`,
`vmap` and rematerialisation, where the cotangent gets the same annotation.

The mesh is the argument, else that of the innermost `rules_scope`, else that of `jax.set_mesh`.
Without any, one device needs no annotation and nothing happens; with several it is an error.
"""

from collections.abc import Sequence

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    describe,
    describe_mesh,
    did_you_mean,
    mesh_sizes,
    raise_faults,
    spec_faults,
)
from gshard_annotate.rules import DEFAULT_RULES, Rules, current_scope, names_faults

AnyMesh = Mesh | AbstractMesh


def replicate(x: jax.Array, *, mesh: AnyMesh | None = None) -> jax.Array:
    """`x` with a full copy on every device."""
    mesh = _find_mesh("replicate", mesh)
    return x if mesh is None else _constrain(x, [None] * x.ndim, mesh)


def split(
    x: jax.Array,
    dim: int,
    mesh_axis: MeshAxes = None,
    *,
    num_partitions: int | None = None,
    mesh: AnyMesh | None = None,
) -> jax.Array:
    """`x` with dimension `dim` split over a mesh axis and the others whole.

    Args:
      x: The array.
      dim: The dimension; negative ones count from the end.
      mesh_axis: The mesh axis, or several (major to minor).
      num_partitions: Instead of an axis, the number of parts, as in the paper: means the one
        mesh axis of that size.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      ValueError: No such dimension or axis, several axes of that size, or the size of the
        dimension is no multiple of the parts.
    """
    if (mesh_axis is None) == (num_partitions is None):
        raise ValueError(
            f"split: mesh_axis is {mesh_axis!r} and num_partitions is {num_partitions}; "
            "give one of them"
        )
    mesh = _find_mesh("split", mesh)
    if mesh is None:
        raise_faults("split", _dim_faults(x, [dim]))
        return x
    if mesh_axis is None:
        mesh_axis = _axis_of_size(x, dim, num_partitions, mesh)
    return _mesh_split("split", x, [dim], [mesh_axis], mesh)


def mesh_split(
    x: jax.Array,
    dims: Sequence[int | str],
    mesh_axes: Sequence[MeshAxes],
    *,
    names: Sequence[str] | None = None,
    mesh: AnyMesh | None = None,
) -> jax.Array:
    """`x` with `dims[i]` split over `mesh_axes[i]` and the other dimensions whole.

    Args:
      x: The array.
      dims: Dimensions by position, or by name when `names` is given.
      mesh_axes: For each of them a mesh axis, several (major to minor), or None.
      names: The names of all dimensions of `x`.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """
    positions = _positions(x, dims, mesh_axes, names)
    mesh = _find_mesh("mesh_split", mesh)
    return x if mesh is None else _mesh_split("mesh_split", x, positions, mesh_axes, mesh)


def annotate(
    x: jax.Array,
    *names: str | None,
    rules: Rules | None = None,
    mesh: AnyMesh | None = None,
) -> jax.Array:
    """`x` split as the rules say for the logical name of each dimension (None: not split).

    Args:
      x: The array.
      *names: One logical name per dimension.
      rules: What the names mean, when not as in the scope; outside of any, `DEFAULT_RULES`.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      ValueError: Everything that is wrong with the names and sizes, at once.
    """
    scope = current_scope()
    rules = rules or (scope.rules if scope else DEFAULT_RULES)
    mesh = _find_mesh("annotate", mesh)
    # Without a mesh (one device) there is nothing to split over, but a wrong name is still wrong.
    what = f"x {describe(x)}"
    if mesh is None:
        unsplit = Rules(tuple((name, None) for name, _ in rules.pairs))
        raise_faults("annotate", names_faults(what, x.shape, names, unsplit, _NO_AXES)[0])
        return x
    faults, axes = names_faults(what, x.shape, names, rules, mesh)
    raise_faults("annotate", faults)
    return _constrain(x, axes, mesh)


_NO_AXES = AbstractMesh((), ())


def _find_mesh(who: str, mesh: AnyMesh | None) -> AnyMesh | None:
    """The mesh to use; None when there is none and one device does not need any."""
    if mesh is not None:
        return mesh
    if scope := current_scope():
        return scope.mesh
    if not (ambient := jax.sharding.get_abstract_mesh()).empty:
        return _with_devices(ambient)
    if jax.device_count() == 1:
        return None
    raise ValueError(
        f"{who}: no mesh, and {jax.device_count()} devices; "
        "pass mesh=, or enter `rules_scope(rules, mesh)` or `jax.set_mesh(mesh)`"
    )


def _with_devices(ambient: AbstractMesh) -> AnyMesh:
    """The mesh of `jax.set_mesh`; inside jit JAX gives out its abstract form only."""
    try:
        return jax.sharding.get_mesh()
    except ValueError:
        return ambient


def _constrain(x: jax.Array, axes: Sequence[MeshAxes], mesh: AnyMesh) -> jax.Array:
    spec = PartitionSpec(*axes)
    if AxisType.Explicit in mesh.axis_types:
        return jax.sharding.reshard(x, NamedSharding(mesh, spec))
    if isinstance(mesh, AbstractMesh):  # jax.set_mesh's: JAX finds the devices itself
        return jax.lax.with_sharding_constraint(x, spec)
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def _mesh_split(
    who: str, x: jax.Array, dims: Sequence[int], mesh_axes: Sequence[MeshAxes], mesh: AnyMesh
) -> jax.Array:
    raise_faults(who, _dim_faults(x, dims))
    axes: list[MeshAxes] = [None] * x.ndim
    for dim, axis in zip(dims, mesh_axes, strict=True):
        axes[dim] = axis
    raise_faults(who, spec_faults(f"x {describe(x)}", x.shape, axes, mesh_sizes(mesh)))
    return _constrain(x, axes, mesh)


def _dim_faults(x: jax.Array, dims: Sequence[int]) -> list[str]:
    faults = [
        f"x {describe(x)} has no dimension {dim}; give one of {-x.ndim} to {x.ndim - 1}"
        for dim in dims
        if not -x.ndim <= dim < x.ndim
    ]
    if not faults and len({dim % x.ndim for dim in dims}) < len(dims):
        faults.append(f"dims {list(dims)} name a dimension of x {describe(x)} twice")
    return faults


def _axis_of_size(x: jax.Array, dim: int, num_partitions: int | None, mesh: AnyMesh) -> str:
    sizes = mesh_sizes(mesh)
    found = [axis for axis, size in sizes.items() if size == num_partitions]
    if len(found) != 1:
        count = "no mesh axis" if not found else f"{len(found)} mesh axes {tuple(found)}"
        raise ValueError(
            f"split: num_partitions={num_partitions} for dimension {dim} of x {describe(x)}, but "
            f"{count} of that size in the mesh ({describe_mesh(sizes)}); name the mesh axis"
        )
    return found[0]


def _positions(
    x: jax.Array,
    dims: Sequence[int | str],
    mesh_axes: Sequence[MeshAxes],
    names: Sequence[str] | None,
) -> list[int]:
    faults = []
    if len(dims) != len(mesh_axes):
        faults.append(
            f"{len(dims)} dims {list(dims)} but {len(mesh_axes)} mesh_axes {list(mesh_axes)}; "
            "give one entry of mesh_axes per dim"
        )
    if names is not None and len(names) != x.ndim:
        faults.append(f"{len(names)} names {tuple(names)} for x {describe(x)}; give {x.ndim}")
    known = list(names or ())
    for dim in dims:
        if isinstance(dim, str) and dim not in known:
            where = f"names are {tuple(known)}" if known else "no names are given; pass names="
            faults.append(f"no dimension is called '{dim}': {where}{did_you_mean(dim, known)}")
    raise_faults("mesh_split", faults)
    positions = [known.index(dim) if isinstance(dim, str) else dim for dim in dims]
    raise_faults("mesh_split", _dim_faults(x, positions))
    return positions
