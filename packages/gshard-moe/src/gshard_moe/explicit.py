"""A function of arrays on a mesh with Explicit axes, computed as if they were Auto.

There JAX wants the output sharding of every operation to be clear from its inputs, and that of a
gather from slots, a reshape of groups or a loop over experts is not.

Axes: G groups, S tokens per group, M model width.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, PartitionSpec

from gshard_annotate import rules_scope
from gshard_annotate.placement import AnyMesh
from gshard_moe.exchange import Devices


def on_auto_axes(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments): first a [G,S,M] array split over groups, then what every device has.

    Without Explicit axes around that is a plain call.
    """
    devices = Devices.around()
    if devices.mesh is None or AxisType.Explicit not in devices.mesh.axis_types:
        return function(*arguments)

    def inside(*arguments):
        with rules_scope(devices.rules, jax.sharding.get_abstract_mesh()):
            return function(*arguments)

    groups = PartitionSpec(devices.rules.mesh_axes("group", devices.mesh))
    on_auto = jax.sharding.auto_axes(inside, out_sharding=(groups, PartitionSpec()))
    with _known(devices.mesh):
        return on_auto(*arguments)


def _known(mesh: AnyMesh) -> contextlib.AbstractContextManager[Any]:
    """Lets JAX know a mesh that only a `rules_scope` has told of so far."""
    if not jax.sharding.get_abstract_mesh().empty:
        return contextlib.nullcontext()
    mesh = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
    return jax.sharding.use_abstract_mesh(mesh)
