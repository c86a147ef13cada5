"""Which layouts there are of a model on so many devices, and which of them cannot work.

A layout changes no number that is learned from except for `num_groups`, which decides which tokens
share an expert's slots.
"""

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from gshard_moe.capacity import capacity
from gshard_moe.layer import Dispatch
from gshard_train.experiment import Experiment
from gshard_train.mesh_faults import mesh_faults
from gshard_train.models.remat import Remat
from gshard_train.planning.meshes import (
    abstract_mesh,
    batch_parts,
    meshes,
    rules_for,
    rules_name,
)
from gshard_train.planning.options import VARIED
from gshard_train.precompiling.layout import Layout, RulesName

_REMATS: tuple[Remat, ...] = ("none", "save_dispatch", "full")
_DISPATCHES: tuple[Dispatch, ...] = ("einsum", "gather")
_MICROBATCHES = (1, 2, 4, 8)
# As many times the smallest number of groups that the mesh allows.
_GROUPS = (1, 2, 4, 8)
# Microbatches of the pipeline for each stage: with fewer it mostly stands still.
_PIPELINE = (2, 4)
# With fewer slots of an expert for a group many choices find none.
_FEWEST_SLOTS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Space:
    """Where is searched.

    Attributes:
      num_devices: of the machine.
      num_slices: of the machine; a mesh axis `replica` goes over them.
      vary: fields of a layout that are varied; the others stay as in the gin files.
      own_mesh: of the gin files; None where it does not fit the machine.
    """

    num_devices: int
    num_slices: int = 1
    vary: Collection[str] = VARIED
    own_mesh: Mapping[str, int] | None = None


class Candidates(dict[Layout, Experiment]):
    """Layouts that the checks let through, with their experiments; `refused` counts the others."""

    def __init__(self):
        super().__init__()
        self.refused: collections.Counter[str] = collections.Counter()


def candidates(experiment: Experiment, space: Space) -> Candidates:
    """Every layout but the experiment's own that can work."""
    found, seen = Candidates(), {identity(Layout(), experiment, space)}
    for cut in _cuts(experiment, space):
        variants = list(_variants(cut, experiment, space))
        if fault := _fault(cut, experiment, cut.mesh or space.own_mesh):
            found.refused[fault] += len(variants)
            continue
        for layout in variants:
            if (one := identity(layout, experiment, space)) not in seen:
                seen.add(one)
                found[layout] = layout.applied(experiment)
    return found


def identity(layout: Layout, experiment: Experiment, space: Space) -> tuple:
    """Equal for layouts that make the same program."""
    mesh = layout.mesh or space.own_mesh or {}
    applied = dataclasses.replace(layout, mesh=None).applied(experiment)
    sizes = tuple((axis, size) for axis, size in mesh.items() if size > 1)
    return sizes, applied.rules.pairs, applied.model, applied.microbatches


def _cuts(experiment: Experiment, space: Space) -> Iterator[Layout]:
    """Layouts that differ in what the checks look at."""
    for mesh, rules in _meshes_and_rules(experiment, space):
        sizes = mesh or space.own_mesh or {}
        for count in _varied(space, "microbatches", experiment, _MICROBATCHES):
            for parts in _pipelines(sizes):
                cut = Layout(
                    mesh=mesh,
                    rules=rules,
                    microbatches=count,
                    pipeline_microbatches=parts,
                    slices={"replica": space.num_slices} if space.num_slices > 1 and mesh else None,
                )
                for groups in _groups(experiment, space, _fewest_groups(cut, sizes)):
                    yield dataclasses.replace(cut, num_groups=groups)


def _variants(cut: Layout, experiment: Experiment, space: Space) -> Iterator[Layout]:
    """A cut with everything that fits every mesh."""
    own = experiment.model
    moe, least = own.num_experts > 0, _fewest_groups(cut, cut.mesh or space.own_mesh or {})
    largest = least if own.num_groups % least else own.num_groups
    remats = _varied(space, "remat", own, [one for one in _REMATS if moe or one != _REMATS[1]])
    kinds = _varied(space, "dispatch", own, _DISPATCHES if moe else ())
    for remat, dispatch in itertools.product(remats, kinds):
        # Without one-hot products smaller groups save nothing, and drop more tokens.
        if dispatch != "gather" or cut.num_groups in (None, largest):
            yield dataclasses.replace(cut, remat=remat, dispatch=dispatch)


def _varied(space: Space, name: str, of: object, values: Sequence) -> list:
    """The values of a field, the gin files' among them; [None] where it stays as it is."""
    if name not in space.vary or not values:
        return [None]
    own = getattr(of, name)
    return [*values] if own in values else [own, *values]


def _meshes_and_rules(
    experiment: Experiment, space: Space
) -> Iterator[tuple[Mapping[str, int] | None, RulesName | None]]:
    own = rules_name(experiment)
    keep_rules = "rules" not in space.vary or own is None
    all_of_them = (
        meshes(experiment, space.num_devices, space.num_slices) if "mesh" in space.vary else [None]
    )
    for mesh in all_of_them:
        for rules in [None] if keep_rules else rules_for(mesh or space.own_mesh or {}):
            yield mesh, rules


def _pipelines(mesh: Mapping[str, int]) -> Sequence[int | None]:
    stages = mesh.get("stage", 1)
    return [stages * each for each in _PIPELINE] if stages > 1 else [None]


def _fewest_groups(cut: Layout, mesh: Mapping[str, int]) -> int:
    return batch_parts(mesh) * (cut.microbatches or 1) * (cut.pipeline_microbatches or 1)


def _groups(experiment: Experiment, space: Space, least: int) -> Sequence[int | None]:
    """Numbers of groups that the mesh divides, with slots enough in each expert; own first."""
    model = experiment.model
    if not model.num_experts or "num_groups" not in space.vary:
        return [None]
    fewest = min(_FEWEST_SLOTS, _slots(experiment, model.num_groups))
    counts = [model.num_groups, *(least * times for times in _GROUPS)]
    return [
        count
        for count in dict.fromkeys(counts)
        if count == model.num_groups
        or (experiment.batch_size % count == 0 and _slots(experiment, count) >= fewest)
    ]


def _slots(experiment: Experiment, num_groups: int) -> int:
    """Slots of an expert for a group of the shorter side."""
    length = min(experiment.task_feature_lengths.values())
    size = max(1, experiment.batch_size * length // num_groups)
    model = experiment.model
    return capacity(size, model.num_experts, slots_per_token=model.slots_per_token)


def _fault(cut: Layout, experiment: Experiment, mesh: Mapping[str, int] | None) -> str | None:
    """In few words why a layout cannot work; None where it can."""
    assert mesh, "without a mesh of its own the caller has to vary it"
    try:
        applied = cut.applied(experiment)
    except ValueError as error:
        return str(error)
    # Whether the machine has memory for it on its hosts is no question of the layout.
    applied = dataclasses.replace(applied, offload_optimizer=False)
    fault = next(mesh_faults(applied, abstract_mesh(mesh)), None)
    return fault and _reason(fault)


def _reason(fault: str) -> str:
    """The part of a fault that many layouts have in common."""
    name, equals, _ = fault.partition("=")
    if "parts of num_groups" in fault:
        return "the groups do not divide the batch"
    if equals and " " not in name:
        if name.endswith("_layers"):
            return "the stages of a pipeline do not divide the pairs of layers"
        return f"the mesh does not divide {name}"
    return fault.partition(";")[0]
