"""An experiment's mesh on a TPU machine that is not here."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax

from gshard_annotate import topology_devices
from gshard_train.errors import UserError

_SEVERAL_SLICES = "gshard_train/configs/layouts/several_slices.gin"


def mesh_on(
    make_mesh: Callable[..., jax.sharding.Mesh], topology: str, num_slices: int
) -> jax.sharding.Mesh:
    """The experiment's mesh on the topology's devices, instead of those that it names.

    Raises:
      UserError: there is no such topology, or no such mesh on it.
    """
    options = {"devices": _devices(topology, num_slices), "cpu_devices": None}
    takes = inspect.signature(make_mesh).parameters
    any_name = any(each.kind is each.VAR_KEYWORD for each in takes.values())
    if not any_name and "devices" not in takes:
        raise UserError(
            "Experiment.make_mesh takes no devices=, so it cannot be made for a machine that is "
            "not here; bind gshard_annotate.mesh.make_mesh, or give yours that argument"
        )
    try:
        return make_mesh(**{n: each for n, each in options.items() if any_name or n in takes})
    except ValueError as error:
        raise UserError(_of_flags(str(error), topology, num_slices)) from error


@functools.lru_cache(maxsize=4)
def _devices(topology: str, num_slices: int) -> list[Any]:
    try:
        return topology_devices(topology, num_slices=num_slices)
    except ValueError as error:
        raise UserError(str(error).removeprefix("topology_devices: ")) from error


def _of_flags(fault: str, topology: str, num_slices: int) -> str:
    """What `make_mesh` refuses, by the flags with which it is mended."""
    what, present, _ = fault.removeprefix("make_mesh: ").partition(" present;")
    if present:
        machine = topology if num_slices == 1 else f"{num_slices} slices of {topology}"
        return (
            f"{what} in {machine}; give sizes that multiply to that (--mesh=data=1,expert=-1: -1 "
            "is what is left), or another topology"
        )
    if "slices" not in what:
        return what
    if num_slices == 1:
        return f"{what}; the machine has --num_slices=1"
    return (
        f"{what.partition('; give slices')[0]}; --num_slices={num_slices} needs "
        f"--gin.make_mesh.slices=\"{{'data': {num_slices}}}\" for an axis that goes from slice to "
        f"slice, or --gin_file={_SEVERAL_SLICES} --gin.SLICES={num_slices} after the model's file"
    )
