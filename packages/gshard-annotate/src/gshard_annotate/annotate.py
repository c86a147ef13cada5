"""Annotations: which dimension of an array is split over which mesh axes.

They add metadata: value and logical shape stay as they are, the compiler does the rest
(GShard, arXiv 2006.16668, section 3.2). All work inside and outside `jit`, under `grad`, `scan`,
`vmap` and rematerialisation, where the cotangent gets the same annotation.

The mesh is the argument, else that of the innermost `rules_scope`, else that of `jax.set_mesh`.
Without any, one device needs no annotation and nothing happens; with several it is an error.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax

from gshard_annotate.checks import (
    MeshAxes,
    axes_tuple,
    describe,
    describe_mesh,
    did_you_mean,
    dim_faults,
    kind_of,
    mesh_sizes,
    report_faults,
)
from gshard_annotate.placement import (
    AnyMesh,
    Target,
    find_mesh,
    find_target,
    need_array,
    place,
    place_at,
)
from gshard_annotate.rules import DEFAULT_RULES, Names, Rules, need_rules
from gshard_annotate.scope import current_scope


def replicate(x: jax.Array, *, mesh: AnyMesh | None = None) -> jax.Array:
    """`x` with a full copy on every device; a partial sum is summed up (all-reduce).

    Raises:
      TypeError: `x` is no array.
      ValueError: Several devices and no mesh.
    """
    need_array("replicate", x)
    mesh = find_mesh("replicate", mesh)
    return x if mesh is None else place("replicate", "replicate[]", x, (None,) * x.ndim, mesh)


def split(
    x: jax.Array,
    dim: int,
    mesh_axis: MeshAxes = None,
    *,
    num_partitions: int | None = None,
    mesh: AnyMesh | None = None,
) -> jax.Array:
    """`x` with dimension `dim` split over a mesh axis and the others whole.

    A partial sum is summed up on the way, each device getting its part (reduce-scatter).

    Args:
      x: The array.
      dim: The dimension; negative ones count from the end.
      mesh_axis: The mesh axis, or several (major to minor).
      num_partitions: Instead of an axis, the number of parts, as in the paper: means the one
        mesh axis of that size.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      TypeError: `x` is no array.
      ValueError: No such dimension or axis, several axes of that size, or the size of the
        dimension is no multiple of the parts.
    """
    need_array("split", x)
    if (mesh_axis is None) == (num_partitions is None):
        raise ValueError(
            f"split: mesh_axis is {mesh_axis!r} and num_partitions is {num_partitions}; "
            "give one of them"
        )
    mesh = find_mesh("split", mesh)
    if (mesh is None or mesh_axis is None) and (faults := dim_faults(x, [dim])):
        report_faults("split", faults)
        return x
    if mesh is None:
        return x
    if mesh_axis is None:
        fault, mesh_axis = _axis_of_size(x, dim, num_partitions, mesh)
        if fault:
            report_faults("split", [fault])
            return x
    return _split("split", x, [dim], [mesh_axis], mesh)


def mesh_split(
    x: jax.Array,
    dims: Sequence[int | str],
    mesh_axes: Sequence[MeshAxes] | None = None,
    *,
    names: Names | None = None,
    mesh: AnyMesh | None = None,
) -> jax.Array:
    """`x` with `dims[i]` split over `mesh_axes[i]` and the other dimensions whole.

    Args:
      x: The array.
      dims: Dimensions by position, or by name when `names` is given.
      mesh_axes: For each of them a mesh axis, several (major to minor), or None. Left out, the
        rules of the scope say it for dimensions that are given by name.
      names: The names of all dimensions of `x`.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      TypeError: `x` is no array.
      ValueError: Everything that is wrong with the arguments, at once.
    """
    need_array("mesh_split", x)
    _need_lists("mesh_split", dims=dims, mesh_axes=mesh_axes, names=names)
    mesh = find_mesh("mesh_split", mesh)
    faults = _mesh_split_faults(x, dims, mesh_axes, names)
    if mesh is not None and mesh_axes is None and not faults:
        faults, mesh_axes = _axes_of_names(dims, mesh)
    if faults:
        report_faults("mesh_split", faults)
        return x
    if names and (scope := current_scope()) and (faults := scope.size_faults(names, x.shape)):
        report_faults("mesh_split", faults)
    if mesh is None:
        return x
    return _split("mesh_split", x, _positions(dims, names), mesh_axes or (), mesh)


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
      TypeError: `x` is no array.
      ValueError: Everything that is wrong with the names and sizes, at once; in a `rules_scope`
        also a name that had another size before.
    """
    need_array("annotate", x)
    if rules is not None:
        need_rules("annotate", rules)
    scope = current_scope()
    rules = rules or (scope.rules if scope else DEFAULT_RULES)
    mesh = find_mesh("annotate", mesh)
    faults, target = _meaning(x.shape, x.dtype, names, rules, mesh)
    if faults:
        report_faults("annotate", faults)
        return x
    if scope and (faults := scope.size_faults(names, x.shape)):
        report_faults("annotate", faults)
    return x if mesh is None or target is None else place_at("annotate", x, target, mesh)


@functools.lru_cache(maxsize=8192)
def _meaning(
    shape: tuple[int, ...],
    dtype: Any,
    names: tuple[str | None, ...],
    rules: Rules,
    mesh: AnyMesh | None,
) -> tuple[list[str], Target | None]:
    """What is wrong with the names, or the target that they mean; found once, then kept.

    Without a mesh (one device) nothing is split, but a wrong name is still wrong.
    """
    what = f"x {describe(jax.ShapeDtypeStruct(shape, dtype))}"
    if faults := rules.names_faults(what, shape, names):
        return faults, None
    if mesh is None:
        return [], None
    label = f"annotate[{','.join(name or '-' for name in names)}]"
    axes = tuple(rules.mesh_axes(name, mesh) for name in names)
    return [], find_target(label, shape, dtype, axes, mesh)


def _split(
    who: str, x: jax.Array, dims: Sequence[int], mesh_axes: Sequence[MeshAxes], mesh: AnyMesh
) -> jax.Array:
    over = tuple(tuple(each) if isinstance(each, list) else each for each in mesh_axes)
    try:
        faults, target = _split_target(who, x.shape, x.dtype, tuple(dims), over, mesh)
    except TypeError:  # no answer is kept for what cannot be hashed; it is no name or number either
        target, faults = (
            None,
            dim_faults(x, dims)
            + [
                f"mesh axis {kind_of(each)} of dimension {dim} of x {describe(x)} is no name"
                for dim, each in zip(dims, over, strict=True)
                if not isinstance(each, str | tuple | None)
            ],
        )
    if target is None:
        report_faults(who, faults)
        return x
    return place_at(who, x, target, mesh)


@functools.lru_cache(maxsize=8192)
def _split_target(
    who: str,
    shape: tuple[int, ...],
    dtype: Any,
    dims: tuple[int, ...],
    mesh_axes: tuple[MeshAxes, ...],
    mesh: AnyMesh,
) -> tuple[list[str], Target | None]:
    """What is wrong with the dimensions, or the target that they mean; found once, then kept."""
    if faults := dim_faults(jax.ShapeDtypeStruct(shape, dtype), dims):
        return faults, None
    axes: list[MeshAxes] = [None] * len(shape)
    for dim, each in zip(dims, mesh_axes, strict=True):
        axes[dim] = each
    over_each = [(dim, axes_tuple(each)) for dim, each in enumerate(axes) if each]
    marks = [f"{dim}:{'+'.join(map(str, names))}" for dim, names in over_each]
    label = f"{who}[{','.join(marks)}]"
    return [], find_target(label, shape, dtype, tuple(axes), mesh)


def _need_lists(who: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, list | tuple):
            raise TypeError(f"{who}: {name} is {kind_of(value)}; give a list, [{value!r}]")


def _axis_of_size(
    x: jax.Array, dim: int, num_partitions: int | None, mesh: AnyMesh
) -> tuple[str, str]:
    """What is wrong with that number of parts, or the mesh axis that it means."""
    sizes = mesh_sizes(mesh)
    found = [axis for axis, size in sizes.items() if size == num_partitions]
    if len(found) != 1:
        count = "no mesh axis" if not found else f"{len(found)} mesh axes {tuple(found)}"
        return (
            f"num_partitions={num_partitions} for dimension {dim} of x {describe(x)}, but "
            f"{count} of that size in the mesh ({describe_mesh(sizes)}); name the mesh axis"
        ), ""
    return "", found[0]


def _mesh_split_faults(
    x: jax.Array,
    dims: Sequence[int | str],
    mesh_axes: Sequence[MeshAxes] | None,
    names: Names | None,
) -> list[str]:
    faults = []
    if mesh_axes is not None and len(dims) != len(mesh_axes):
        faults.append(
            f"{len(dims)} dims {list(dims)} but {len(mesh_axes)} mesh_axes {list(mesh_axes)}; "
            "give one entry of mesh_axes per dim"
        )
    if names is not None and len(names) != x.ndim:
        faults.append(f"{len(names)} names {tuple(names)} for x {describe(x)}; give {x.ndim}")
    known = [name for name in names or () if name is not None]
    faults += [
        f"names {tuple(names or ())} have '{name}' {known.count(name)} times; name each dimension "
        "once"
        for name in dict.fromkeys(known)
        if known.count(name) > 1
    ]
    for dim in dims:
        if isinstance(dim, str) and dim not in known:
            where = f"names are {tuple(known)}" if known else "no names are given; pass names="
            faults.append(f"no dimension is called '{dim}': {where}{did_you_mean(dim, known)}")
        elif not isinstance(dim, str) and mesh_axes is None:
            faults.append(f"dimension {dim} is given by position; give its mesh_axes, or its name")
    if faults:
        return faults
    return dim_faults(x, _positions(dims, names))


def _positions(dims: Sequence[int | str], names: Names | None) -> list[int]:
    return [list(names or ()).index(dim) if isinstance(dim, str) else dim for dim in dims]


def _axes_of_names(dims: Sequence[int | str], mesh: AnyMesh) -> tuple[list[str], list[MeshAxes]]:
    """The mesh axes that the rules of the scope give to these names."""
    if (scope := current_scope()) is None:
        return ["no mesh_axes; give them, or enter `rules_scope(rules, mesh)`"], []
    if faults := scope.rules.unknown_names("dims", [str(dim) for dim in dims]):
        return faults, []
    return [], [scope.rules.mesh_axes(str(dim), mesh) for dim in dims]
