"""What may be changed about a run that does not fit, what costs least speed first.

A rung is one kind of change with its strengths, weakest first; a stronger one replaces a weaker.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from gshard_annotate.inspector.quantities import size
from gshard_train.precompiling.job import Facts, Job
from gshard_train.precompiling.verdict import DeviceMemory

if TYPE_CHECKING:
    from gshard_train.experiment import Experiment

FSDP = "gshard_train/configs/layouts/fsdp.gin"
# Less than this share of a device's memory is not worth a compile of its own.
_WORTH = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """One change to a job, as a user makes it with flags.

    Attributes:
      what: it does, in words.
      bindings: gin statements.
      gin_files: further files.
      topology: another machine.
      mesh: another mesh, instead of that of the job's layout.
      caution: what else it changes than memory and speed; "" for nothing.
    """

    what: str
    bindings: tuple[str, ...] = ()
    gin_files: tuple[str, ...] = ()
    topology: str | None = None
    mesh: Mapping[str, int] | None = None
    caution: str = ""

    def applied(self, job: Job) -> Job:
        """The job with the change."""
        layout = (
            job.layout if self.mesh is None else dataclasses.replace(job.layout, mesh=self.mesh)
        )
        return dataclasses.replace(
            job,
            gin_files=(*job.gin_files, *self.gin_files),
            gin_bindings=(*job.gin_bindings, *self.bindings),
            topology=self.topology or job.topology,
            layout=layout,
            save_program=None,
        )

    def flags(self) -> list[str]:
        """The same for a command line."""
        found = [f"--gin_file={file}" for file in self.gin_files]
        found += map(_gin_flag, self.bindings)
        if self.topology:
            found.append(f"--topology={self.topology}")
        if self.mesh:
            axes = ",".join(f"{axis}={count}" for axis, count in self.mesh.items())
            found.append(f"--mesh={axes}")
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rung:
    """Changes of one kind.

    Attributes:
      changes: weakest first; none where `useless` says why.
      useless: why it is not tried.
      lowers_state: whether it can help where parameters and optimizer alone are too much.
    """

    changes: tuple[Change, ...] = ()
    useless: str = ""
    lowers_state: bool = False


def ladder(
    experiment: "Experiment", job: Job, facts: Facts, needed: Callable[[], DeviceMemory]
) -> Iterator[Rung]:
    """The rungs for an experiment that does not fit.

    Args:
      experiment: as the job has it, its layout applied.
      job: that does not fit.
      facts: of its program.
      needed: what it needs by now, with those changes of earlier rungs that helped.
    """
    yield _dispatch(experiment, facts, needed())
    if job.mode == "train":
        yield _remat(experiment)
        yield _microbatches(experiment, needed())
    else:
        yield _slots(experiment)
        yield _batch(facts)
    yield _fsdp(job)
    if job.mode == "train":
        yield _offload(experiment, needed())
    yield _bfloat16(experiment)
    yield _more_devices(experiment, job, facts)


def _dispatch(experiment: "Experiment", facts: Facts, memory: DeviceMemory) -> Rung:
    model = experiment.model
    if not model.num_experts or model.dispatch != "einsum":
        return Rung()
    masks = one_hot_bytes(experiment, facts)
    if masks < _WORTH * (memory.limit or 0):
        return Rung(useless=f"dispatch: a layer's one-hot masks take {size(masks)} only")
    gather = Change(
        what="tokens to their slots by index instead of one-hot matmuls",
        bindings=('TransformerConfig.dispatch = "gather"',),
    )
    groups = Change(
        what="four times as many, smaller groups: one-hot masks of a quarter",
        bindings=(f"TransformerConfig.num_groups = {4 * model.num_groups}",),
        caution="each group has its own capacity: tokens are dropped otherwise",
    )
    return Rung(changes=(gather, groups))


def one_hot_bytes(experiment: "Experiment", facts: Facts) -> float:
    """Of a device's mask of one MoE layer, [G, S, E, C] with E x C of S times slots_per_token."""
    tokens = experiment.batch_size * max(experiment.task_feature_lengths.values())
    group_size = tokens / experiment.model.num_groups
    return 4 * tokens / facts.num_devices * group_size * experiment.model.slots_per_token


def _remat(experiment: "Experiment") -> Rung:
    model = experiment.model
    save_dispatch = Change(
        what="compute activations again, but keep what crossed the all-to-alls",
        bindings=('TransformerConfig.remat = "save_dispatch"',),
    )
    full = Change(
        what="keep one activation per pair of layers, compute the others again",
        bindings=('TransformerConfig.remat = "full"',),
    )
    if model.remat == "full":
        return Rung(useless='remat: it is "full" already')
    weaker = () if model.remat == "save_dispatch" or not model.num_experts else (save_dispatch,)
    return Rung(changes=(*weaker, full))


def _microbatches(experiment: "Experiment", memory: DeviceMemory) -> Rung:
    """Those for which the state and the gradients of the parts leave room for activations."""
    now, changes = experiment.microbatches, []
    for parts in (2 * now, 4 * now, 8 * now):
        if experiment.batch_size % parts == 0 and _may_fit(memory, parts / now):
            changes.append(
                Change(
                    what=f"{parts} parts of a batch one after the other",
                    bindings=(f"Experiment.microbatches = {parts}",),
                )
            )
    if not changes:
        return Rung(useless="microbatches: the sum of the gradients and the rest would not fit")
    return Rung(changes=tuple(changes))


def _may_fit(memory: DeviceMemory, parts: float) -> bool:
    """Whether a floor of the need with so many times the parts is within the limit."""
    if memory.activations is None or memory.limit is None:
        return True
    gradients = memory.parameters
    other = max(0, memory.activations - 2 * gradients)
    return memory.state + memory.inputs + gradients + other / parts <= memory.limit


def _slots(experiment: "Experiment") -> Rung:
    model = experiment.model
    if model.num_experts <= 4 or model.eval_slots_per_token is not None:
        return Rung()
    change = Change(
        what="four slots for each token instead of as many as there are experts",
        bindings=("TransformerConfig.eval_slots_per_token = 4.0",),
        caution="tokens beyond an expert's slots are dropped",
    )
    return Rung(changes=(change,))


def _batch(facts: Facts) -> Rung:
    halves = [facts.batch_size // parts for parts in (2, 4, 8) if facts.batch_size % parts == 0]
    changes = (
        Change(what=f"{rows:,} rows at a time", bindings=(f"BATCH_SIZE = {rows}",))
        for rows in halves
    )
    return Rung(changes=tuple(changes))


def _fsdp(job: Job) -> Rung:
    if job.layout.rules == "fsdp" or FSDP in job.gin_files:
        return Rung(useless="fsdp: parameters are fully sharded already", lowers_state=True)
    if job.layout.rules is not None:
        why = f"fsdp: the layout has rules of its own, {job.layout.rules}"
        return Rung(useless=why, lowers_state=True)
    change = Change(what="parameters and optimizer fully sharded", gin_files=(FSDP,))
    return Rung(changes=(change,), lowers_state=True)


def _offload(experiment: "Experiment", memory: DeviceMemory) -> Rung:
    if experiment.offload_optimizer:
        why = "offload_optimizer: the optimizer is in the host's memory already"
        return Rung(useless=why, lowers_state=True)
    if memory.optimizer < _WORTH * (memory.limit or 0):
        why = f"offload_optimizer: its state takes {size(memory.optimizer)} only"
        return Rung(useless=why, lowers_state=True)
    change = Change(
        what="the optimizer's state in the host's memory",
        bindings=("Experiment.offload_optimizer = True",),
    )
    return Rung(changes=(change,), lowers_state=True)


def _bfloat16(experiment: "Experiment") -> Rung:
    if str(getattr(experiment.model.dtype, "__name__", experiment.model.dtype)) != "float32":
        return Rung()
    change = Change(
        what="activations in bfloat16; parameters and router stay float32",
        bindings=('TransformerConfig.dtype = "bfloat16"',),
        caution="it changes numbers: the paper's 1T model was hard to keep stable so",
    )
    return Rung(changes=(change,))


def _more_devices(experiment: "Experiment", job: Job, facts: Facts) -> Rung:
    """Twice the machine: experts over it where there are enough of them, else the batch."""
    name, _, shape = job.topology.partition(":")
    sides = sorted(int(side) for side in shape.split("x") if side.isdigit())
    if not sides:
        return Rung()
    larger = "x".join(map(str, sorted([2 * sides[0], *sides[1:]])))
    mesh, experts = dict(facts.mesh), experiment.model.num_experts
    split = experts and mesh.get("expert") and experts % (2 * mesh["expert"]) == 0
    axis = "expert" if split else "data" if "data" in mesh else next(iter(mesh))
    mesh[axis] *= 2
    groups = _groups(experiment, mesh)
    change = Change(
        what=f"twice the devices, on axis '{axis}'",
        topology=f"{name}:{larger}",
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


def _gin_flag(binding: str) -> str:
    name, _, value = (part.strip() for part in binding.partition("="))
    text = value.replace('"', "'")
    return f'--gin.{name}="{text}"' if "'" in text else f"--gin.{name}={text}"
