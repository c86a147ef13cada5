"""Changes that lower what lies on a device between programs, and those of last resort."""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gshard_annotate.inspector.quantities import size
from gshard_annotate.tpu_topologies import topology_fault
from gshard_train.precompiling.changes import WORTH, Change, Rung
from gshard_train.precompiling.job import Facts, Job
from gshard_train.precompiling.verdict import DeviceMemory

if TYPE_CHECKING:
    from gshard_train.experiment import Experiment

FSDP = "gshard_train/configs/layouts/fsdp.gin"
# A kind and its sides; how their ends are joined ("_twisted") is not kept.
_TOPOLOGY = re.compile(r"(\w+?[:=_])([0-9]+(?:x[0-9]+)*)")


def fsdp(job: Job) -> Rung:
    """Parameters and optimizer split over all devices."""
    if job.layout.rules == "fsdp" or FSDP in job.gin_files:
        return Rung(useless="fsdp: parameters are fully sharded already", lowers_state=True)
    if job.layout.rules is not None:
        why = f"fsdp: the layout has rules of its own, {job.layout.rules}"
        return Rung(useless=why, lowers_state=True)
    change = Change(what="parameters and optimizer fully sharded", gin_files=(FSDP,))
    return Rung(changes=(change,), lowers_state=True)


def offload(experiment: "Experiment", memory: DeviceMemory) -> Rung:
    """The optimizer's state in the host's memory."""
    if experiment.offload_optimizer:
        why = "offload_optimizer: the optimizer is in the host's memory already"
        return Rung(useless=why, lowers_state=True)
    if memory.optimizer < WORTH * (memory.limit or 0):
        why = f"offload_optimizer: its state takes {size(memory.optimizer)} only"
        return Rung(useless=why, lowers_state=True)
    change = Change(
        what="the optimizer's state in the host's memory",
        bindings=("Experiment.offload_optimizer = True",),
    )
    return Rung(changes=(change,), lowers_state=True)


def bfloat16(experiment: "Experiment") -> Rung:
    """Activations of half the width."""
    if str(getattr(experiment.model.dtype, "__name__", experiment.model.dtype)) != "float32":
        return Rung()
    change = Change(
        what="activations in bfloat16; parameters and router stay float32",
        bindings=('TransformerConfig.dtype = "bfloat16"',),
        caution="it changes numbers: the paper's 1T model was hard to keep stable so",
    )
    return Rung(changes=(change,))


def more_devices(experiment: "Experiment", job: Job, facts: Facts) -> Rung:
    """Twice the machine: experts over it where there are enough of them, else the batch."""
    found = _TOPOLOGY.match(job.topology)
    assert found  # it was compiled for
    sides = sorted(map(int, found[2].split("x")))
    topology = f"{found[1]}{'x'.join(map(str, sorted([2 * sides[0], *sides[1:]])))}"
    if topology_fault(topology):
        return Rung(useless=f"more devices: there is no machine {topology}", lowers_state=True)
    mesh, experts = dict(facts.mesh), experiment.model.num_experts
    split = experts and mesh.get("expert") and experts % (2 * mesh["expert"]) == 0
    axis = "expert" if split else "data" if "data" in mesh else next(iter(mesh))
    mesh[axis] *= 2
    groups = _groups(experiment, mesh)
    change = Change(
        what=f"twice the devices, on axis '{axis}'",
        topology=topology,
        mesh=mesh if job.layout.mesh else None,
        bindings=(*(() if job.layout.mesh else (_mesh_binding(job, mesh),)), *groups),
        caution="smaller groups for routing: other tokens are dropped" if groups else "",
    )
    return Rung(changes=(change,), lowers_state=bool(split))


def _groups(experiment: "Experiment", mesh: Mapping[str, int]) -> tuple[str, ...]:
    """As many groups as devices of the batch, where a mesh needs that."""
    parts = math.prod(mesh.get(axis, 1) for axis in ("replica", "data", "expert"))
    if not experiment.model.num_experts or experiment.model.num_groups % parts == 0:
        return ()
    return (f"TransformerConfig.num_groups = {parts}",)


def _mesh_binding(job: Job, mesh: Mapping[str, int]) -> str:
    """The mesh as training takes it, too; a macro that a flag sets must have an effect."""
    by_macro = any(binding.startswith("MESH_AXES") for binding in job.gin_bindings)
    axes = ", ".join(f'"{axis}": {count}' for axis, count in mesh.items())
    return f"{'MESH_AXES' if by_macro else 'make_mesh.axes'} = {{{axes}}}"
