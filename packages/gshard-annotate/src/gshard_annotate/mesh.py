"""Device meshes from axis names and sizes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh

from gshard_annotate.checks import describe_mesh


def make_mesh(
    axes: Mapping[str, int],
    *,
    cpu_devices: int | None = None,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """A mesh with these axes, in this order, over all devices.

    Its axes are Auto: the compiler may change every sharding that is not annotated.

    Args:
      axes: Size of each axis by name, slowest varying first. One size may be -1: what is left.
      cpu_devices: Run on this many virtual CPU devices. Must come before anything asks JAX for
        its devices, because JAX fixes their number then.
      devices: Use these devices (`jax.devices()[:1]`) instead of all of them.

    Raises:
      ValueError: The sizes do not fit the devices.
      RuntimeError: JAX already started with another number of CPU devices.
    """
    if cpu_devices is not None:
        _start_cpu_devices(cpu_devices)
        devices = jax.devices("cpu") if devices is None else devices
    devices = jax.devices() if devices is None else list(devices)
    sizes = _fill_in(axes, len(devices))
    auto = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=auto, devices=devices)


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
    if (running := len(jax.devices("cpu"))) != count:
        raise RuntimeError(
            f"make_mesh: cpu_devices={count}, but JAX already runs with {running} CPU device"
            f"{'s' if running > 1 else ''}; make the mesh before the first call that uses devices, "
            f"or start the process with JAX_NUM_CPU_DEVICES={count}"
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
