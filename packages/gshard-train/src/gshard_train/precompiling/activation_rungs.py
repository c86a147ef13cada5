"""Changes that lower what a program makes and drops while it runs."""

from typing import TYPE_CHECKING

from gshard_annotate.inspector.quantities import size
from gshard_train.precompiling.changes import WORTH, Change, Rung
from gshard_train.precompiling.job import Facts
from gshard_train.precompiling.verdict import DeviceMemory

if TYPE_CHECKING:
    from gshard_train.experiment import Experiment


def dispatch(experiment: "Experiment", facts: Facts, memory: DeviceMemory) -> Rung:
    """One-hot masks, where they take much: others instead, or smaller ones."""
    model = experiment.model
    if not model.num_experts or model.dispatch != "einsum":
        return Rung()
    masks = one_hot_bytes(experiment, facts)
    if masks < WORTH * (memory.limit or 0):
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


def remat(experiment: "Experiment") -> Rung:
    """Activations computed again instead of kept."""
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


def microbatches(experiment: "Experiment", memory: DeviceMemory) -> Rung:
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


def slots(experiment: "Experiment") -> Rung:
    """Fewer slots for experts in programs that only read."""
    model = experiment.model
    if model.num_experts <= 4 or model.eval_slots_per_token is not None:
        return Rung()
    change = Change(
        what="four slots for each token instead of as many as there are experts",
        bindings=("TransformerConfig.eval_slots_per_token = 4.0",),
        caution="tokens beyond an expert's slots are dropped",
    )
    return Rung(changes=(change,))


def batch(facts: Facts, parameter: str) -> Rung:
    """Fewer rows at once in programs that only read."""
    halves = [facts.batch_size // parts for parts in (2, 4, 8) if facts.batch_size % parts == 0]
    changes = (
        Change(what=f"{rows:,} rows at a time", bindings=(f"{parameter} = {rows}",))
        for rows in halves
    )
    return Rung(changes=tuple(changes))
