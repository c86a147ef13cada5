"""The paper's `shard`: an array of device ids says how an array is cut and where each part goes."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    describe,
    describe_mesh,
    kind_of,
    mesh_sizes,
    report_faults,
)
from gshard_annotate.placement import AnyMesh, find_mesh, need_array, place


def shard(x: jax.Array, device_assignment: Any, *, mesh: AnyMesh | None = None) -> jax.Array:
    """`x` cut as the assignment is shaped, each part on the device whose id stands there.

    x [3,16,64] with an assignment of shape [1,2,4] falls into parts [3,8,16], and the order of the
    ids is the topology (GShard, arXiv 2006.16668, section 3.2). One program has one device order,
    that of its mesh: inside `jit` the assignment must be the mesh's devices with axes permuted,
    and the annotation is then the same as a `mesh_split`. Outside, any order works, also that of
    some of the devices, and the result lives on a mesh of its own with axes `dim0`, `dim1`, ...

    Args:
      x: The array.
      device_assignment: Integers, of as many dimensions as `x`: device ids, none twice.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      TypeError: `x` is no array, or the assignment does not hold integers.
      ValueError: Everything that is wrong with the assignment, at once; inside `jit` an order
        that is not the mesh's, with the mesh to build instead.
    """
    need_array("shard", x)
    ids = _as_ids(device_assignment)
    inside = isinstance(x, Tracer)
    mesh = find_mesh("shard", mesh, needed=inside)
    if faults := _faults(x, ids, mesh):
        report_faults("shard", faults)
        return x
    if mesh is None and inside:  # one device, and the ids were found to name it
        return x
    axes = _as_axes(ids, mesh) if isinstance(mesh, Mesh) else None
    if mesh is not None and axes is not None:
        label = f"shard[{','.join(map(str, ids.shape))}]"
        return place("shard", label, x, axes, mesh)
    if inside:
        report_faults("shard", [_refusal(ids, mesh)])
        return x
    return jax.device_put(x, _own_sharding(ids))


def _as_ids(device_assignment: Any) -> np.ndarray:
    try:
        ids = np.asarray(device_assignment)
    except ValueError as error:  # rows of different lengths
        raise TypeError(
            f"shard: device_assignment is {kind_of(device_assignment)}, no array ({error})"
        ) from error
    if ids.dtype.kind not in "iu":
        raise TypeError(
            f"shard: device_assignment holds {ids.dtype}, shape {ids.shape}; give integers, the "
            "ids of devices"
        )
    return ids


def _faults(x: jax.Array, ids: np.ndarray, mesh: AnyMesh | None) -> list[str]:
    """Everything that is wrong with this assignment of the devices of the mesh, or of all."""
    faults = []
    if ids.ndim != x.ndim:
        faults.append(
            f"device_assignment has shape {ids.shape}, {ids.ndim} dimensions, but x {describe(x)} "
            f"has {x.ndim}; give one dimension per dimension of x, of size 1 where it stays whole"
        )
    else:
        faults += [
            f"dimension {dim} of x {describe(x)} cannot be cut into {parts} parts, as "
            f"device_assignment of shape {ids.shape} says ({size} % {parts} = {size % parts})"
            for dim, (size, parts) in enumerate(zip(x.shape, ids.shape, strict=True))
            if size % parts
        ]
    values, counts = np.unique(ids, return_counts=True)
    if repeated := values[counts > 1].tolist():
        faults.append(f"device ids {repeated} stand more than once in device_assignment")
    if isinstance(mesh, AbstractMesh):
        return faults
    known = _device_ids(mesh).ravel()
    if unknown := np.setdiff1d(values, known).tolist():
        have = "the mesh has" if mesh is not None else "there are"
        faults.append(f"device ids {unknown} do not exist; {have} {np.sort(known).tolist()}")
    if mesh is not None and (missing := np.setdiff1d(known, values).tolist()):
        faults.append(
            f"device ids {missing} of the mesh ({describe_mesh(mesh_sizes(mesh))}) are missing in "
            "device_assignment; give each once"
        )
    return faults


def _device_ids(mesh: Mesh | None) -> np.ndarray:
    devices = np.asarray(jax.devices()) if mesh is None else mesh.devices
    return np.vectorize(lambda device: device.id, otypes=[int])(devices)


def _as_axes(ids: np.ndarray, mesh: Mesh) -> list[MeshAxes] | None:
    """The mesh axes of each dimension that cut as the assignment does; None when none do.

    Walking along one mesh axis, the place of a device in the assignment must move along one
    dimension, by the same step everywhere.
    """
    on = _device_ids(mesh)
    places = {device: place for place, device in np.ndenumerate(ids)}
    steps: list[list[tuple[int, str]]] = [[] for _ in ids.shape]
    for axis, name in enumerate(mesh.axis_names):
        if on.shape[axis] > 1:
            second = np.take(on, 1, axis).ravel()[0]
            move = np.subtract(places[int(second)], places[int(on.ravel()[0])])
            for dim in np.flatnonzero(move):
                steps[dim].append((int(move[dim]), name))
    axes = [tuple(name for _, name in sorted(each, reverse=True)) for each in steps]
    cut = _cut_by(axes, mesh, on)
    return list(axes) if cut is not None and np.array_equal(cut, ids) else None


def _cut_by(axes: Sequence[tuple[str, ...]], mesh: Mesh, on: np.ndarray) -> np.ndarray | None:
    """The assignment that these mesh axes make of the devices of the mesh."""
    order = [mesh.axis_names.index(name) for each in axes for name in each]
    if len(set(order)) < len(order):
        return None
    rest = [axis for axis in range(on.ndim) if axis not in order]  # these have size 1
    shape = [np.prod([mesh.shape[name] for name in each], dtype=int) for each in axes]
    return on.transpose(order + rest).reshape(shape)


def _refusal(ids: np.ndarray, mesh: AnyMesh | None) -> str:
    if not isinstance(mesh, Mesh):
        return (
            "inside jit JAX does not tell which devices the mesh of jax.set_mesh has; pass mesh=, "
            "or enter rules_scope(rules, mesh)"
        )
    sizes = {f"dim{dim}": size for dim, size in enumerate(ids.shape) if size > 1}
    return (
        f"device_assignment {ids.tolist()} is not the mesh ({describe_mesh(mesh_sizes(mesh))}; "
        f"device ids {_device_ids(mesh).tolist()}) with its axes permuted, and one program has one "
        f"device order; build the mesh as make_mesh({sizes}, device_order={ids.ravel().tolist()}) "
        "and use it in the whole program, or call shard outside of jit"
    )


def _own_sharding(ids: np.ndarray) -> NamedSharding:
    """The sharding of a mesh that is the assignment itself."""
    by_id = {device.id: device for device in jax.devices()}
    names = tuple(f"dim{dim}" for dim in range(ids.ndim))
    devices = np.vectorize(by_id.__getitem__, otypes=[object])(ids)
    return NamedSharding(Mesh(devices, names), PartitionSpec(*names))
