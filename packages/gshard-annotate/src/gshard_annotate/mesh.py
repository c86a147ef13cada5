"""Device meshes from axis names and sizes."""

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils, topologies
from jax.sharding import AxisType, Mesh

from gshard_annotate.checks import describe_mesh, did_you_mean, kind_of, raise_faults
from gshard_annotate.tpu_topologies import options_of, topology_fault


def make_mesh(
    axes: Mapping[str, int],
    *,
    cpu_devices: int | None = None,
    devices: Sequence[Any] | None = None,
    device_order: Sequence[int] | None = None,
    slices: Mapping[str, int] | None = None,
) -> Mesh:
    """A mesh with these axes, in this order, over all devices.

    JAX orders the devices so that neighbours on an axis are near each other in the machine.

    Its axes are Auto: the compiler may change every sharding that is not annotated.

    Args:
      axes: Size of each axis by name, slowest varying first. One size may be -1: what is left.
      cpu_devices: Run on this many virtual CPU devices, in each process where there are several.
        Must come before anything asks JAX for its devices, because JAX fixes their number then.
      devices: Use these devices (`jax.devices()[:1]`, `topology_devices("v3:4x4")`) instead of
        all of them.
      device_order: The ids of the devices in the mesh's order, its last axis varying fastest,
        instead of JAX's order.
      slices: For machines of several slices: the part of an axis that goes from slice to slice,
        as `{"data": 2}`. The rest of the axes lies within slices, whose links are faster.

    Raises:
      ValueError: The sizes do not fit the devices or the slices, no axis goes over slices of TPUs,
        or the order is none of all the devices.
      RuntimeError: JAX already started with another number of CPU devices.
    """
    _need_axes("axes", axes)
    if slices is not None:
        _need_axes("slices", slices)
    if cpu_devices is not None:
        _start_cpu_devices(cpu_devices)
        devices = jax.devices("cpu") if devices is None else devices
    devices = jax.devices() if devices is None else list(devices)
    sizes = _fill_in(axes, len(devices))
    auto = (AxisType.Auto,) * len(sizes)
    shape, names = tuple(sizes.values()), tuple(sizes)
    if device_order is not None:
        return Mesh(_in_order(device_order, devices).reshape(shape), names, axis_types=auto)
    if slices is not None:
        return Mesh(_over_slices(sizes, slices, devices), names, axis_types=auto)
    # JAX orders the devices of one TPU slice, and with several fails in ways that do not say so.
    if (count := _num_slices(devices)) > 1 and devices[0].platform == "tpu":
        raise ValueError(
            f"make_mesh: the devices lie on {count} slices, and no axis is said to go over them; "
            f"give slices, as {{'{names[0]}': {count}}}: the part of an axis that goes from slice "
            "to slice"
        )
    return jax.make_mesh(shape, names, axis_types=auto, devices=devices)


def topology_devices(name: str, *, num_slices: int = 1) -> list[Any]:
    """The devices of a TPU machine that need not be there, to compile for.

    `v3:4x4` has 32 (two cores to a chip, as v2 and tpu7x), `v4:8x8x16`, `v5p:8x8x8`,
    `v5e:16x16` and `v6e:16x16` one to a chip; sides are in chips. Needs the TPU compiler:
    `pip install 'jax[tpu]'`.

    Args:
      name: Kind and sides of a machine, or of one slice of it.
      num_slices: How many such slices it has.

    Raises:
      ValueError: No such topology, or no TPU compiler.
    """
    if fault := topology_fault(name):
        raise ValueError(f"topology_devices: no TPU topology '{name}': {fault}")
    if num_slices < 1:
        raise ValueError(f"topology_devices: num_slices={num_slices} must be at least 1")
    if importlib.util.find_spec("libtpu") is None:
        raise ValueError(
            f"topology_devices: the TPU compiler for '{name}' is not installed (there is no "
            "package libtpu); pip install 'jax[tpu]' brings it"
        )
    for variable, value in _NO_TPU_HERE.items():
        os.environ.setdefault(variable, value)
    try:
        topology = topologies.get_topology_desc(
            platform="tpu", topology_name=name, num_slices=num_slices, **options_of(name)
        )
    except Exception as error:  # JAX passes on whatever the TPU compiler raises
        raise ValueError(
            f"topology_devices: no TPU topology '{name}' for the installed TPU compiler "
            f"({_first_line(error)})"
        ) from error
    return list(topology.devices)


# Otherwise the TPU compiler asks the network what machine it is on, and lets one process in.
_NO_TPU_HERE = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _in_order(device_order: Sequence[int], devices: Sequence[Any]) -> np.ndarray:
    order = np.asarray(device_order).ravel().tolist()
    by_id = {device.id: device for device in devices}
    if sorted(order) != sorted(by_id):
        repeated = sorted({each for each in order if order.count(each) > 1})
        raise ValueError(
            f"make_mesh: device_order is {order}; give the id of each device once (repeated: "
            f"{repeated or 'none'}, missing: {sorted(set(by_id) - set(order)) or 'none'}, unknown: "
            f"{sorted(set(order) - set(by_id)) or 'none'})"
        )
    return np.array([by_id[each] for each in order], dtype=object)


def _num_slices(devices: Sequence[Any]) -> int:
    return len({getattr(device, "slice_index", 0) for device in devices})


def _over_slices(
    sizes: Mapping[str, int], slices: Mapping[str, int], devices: Sequence[Any]
) -> np.ndarray:
    present = _num_slices(devices)
    faults = [
        f"slices has '{axis}', which is no axis{did_you_mean(axis, sizes)}"
        for axis in slices
        if axis not in sizes
    ]
    faults += [
        f"axis '{axis}' of size {sizes[axis]} cannot go over {count} slices "
        f"({sizes[axis]} % {count} = {sizes[axis] % count})"
        for axis, count in slices.items()
        if axis in sizes and (count < 1 or sizes[axis] % count)
    ]
    if (asked := math.prod(slices.values())) != present:
        faults.append(
            f"slices {describe_mesh(slices)} make {asked}, but the devices lie on {present}; "
            "their product must be that"
        )
    raise_faults("make_mesh", faults)
    within = [size // slices.get(axis, 1) for axis, size in sizes.items()]
    across = [slices.get(axis, 1) for axis in sizes]
    return mesh_utils.create_hybrid_device_mesh(
        within, across, devices, allow_split_physical_axes=True
    )


def _start_cpu_devices(count: int) -> None:
    if count < 1:
        raise ValueError(f"make_mesh: cpu_devices is {count}; it must be at least 1")
    try:
        # Both refuse to change once a backend runs. Platforms first: an accelerator that is
        # present would otherwise start too, and hold the arrays that no mesh was named for.
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        pass  # only the count that runs matters, and it is compared below
    if (running := len(jax.local_devices(backend="cpu"))) != count:
        raise RuntimeError(
            f"make_mesh: cpu_devices={count}, but JAX already runs with {running} CPU device"
            f"{'s' if running > 1 else ''}; make the mesh before the first call that uses devices, "
            f"or start the process with JAX_NUM_CPU_DEVICES={count}"
        )


def _need_axes(what: str, axes: Any) -> None:
    sizes = axes.values() if isinstance(axes, Mapping) else [None]
    if not all(isinstance(size, int | np.integer) for size in sizes):
        raise TypeError(
            f"make_mesh: {what} is {kind_of(axes)}; give sizes by name, as "
            "{'data': 2, 'expert': -1}"
        )


def _fill_in(axes: Mapping[str, int], num_devices: int) -> dict[str, int]:
    sizes = dict(axes)
    asked = describe_mesh(sizes)
    wrong = [axis for axis, size in sizes.items() if size < 1 and size != -1]
    open_axes = [axis for axis, size in sizes.items() if size == -1]
    if not sizes or wrong or len(open_axes) > 1:
        raise ValueError(
            f"make_mesh: axes are {asked}; give at least one axis, each of size 1 or more, "
            "at most one of size -1 (what is left)"
        )
    product = math.prod(size for size in sizes.values() if size != -1)
    if open_axes and num_devices % product == 0:
        sizes[open_axes[0]] = num_devices // product
    elif open_axes or product != num_devices:
        needs = f"a multiple of {product}" if open_axes else str(product)
        raise ValueError(
            f"make_mesh: axes {asked} need {needs} device{'s' if needs != '1' else ''}, "
            f"{num_devices} {'is' if num_devices == 1 else 'are'} present; change the sizes "
            "(-1 takes what is left), pass devices=, or cpu_devices= for virtual CPU devices"
        )
    return sizes
