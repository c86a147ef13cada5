"""Every mesh that a number of devices makes, and the rules by which a model may lie on it."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from jax.sharding import AbstractMesh, AxisType, Mesh

from gshard_annotate import Rules
from gshard_train import layouts
from gshard_train.experiment import Experiment
from gshard_train.precompiling.layout import RulesName

BATCH_AXES = ("replica", "data", "expert")
_RULES: Mapping[RulesName, Callable[[], Rules]] = {
    "gshard": layouts.gshard,
    "dense_split": layouts.dense_split,
    "fsdp": layouts.fsdp,
    "tensor_parallel": layouts.tensor_parallel,
    "several_slices": layouts.several_slices,
    "pipeline": layouts.pipeline,
}
_AXES = ("data", "expert", "model", "stage")


def abstract_mesh(axes: Mapping[str, int]) -> Mesh:
    """A mesh of these axes without devices, for what asks for nothing but sizes."""
    auto = (AxisType.Auto,) * len(axes)
    return cast(Mesh, AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=auto))


def batch_parts(mesh: Mapping[str, int]) -> int:
    """Parts that a mesh makes of a batch."""
    return math.prod(mesh.get(axis, 1) for axis in BATCH_AXES)


def rules_name(experiment: Experiment) -> RulesName | None:
    """What the experiment's rules are called; None for rules that only its files have."""
    for name, rules in _RULES.items():
        if rules() == experiment.rules:
            return name
    return None


def meshes(experiment: Experiment, num_devices: int, num_slices: int) -> Iterator[dict[str, int]]:
    """Every way to write the number of devices as a product; data and expert are always named."""
    first = {"replica": num_slices} if num_slices > 1 else {}
    axes = [axis for axis in _AXES if axis != "expert" or experiment.model.num_experts]
    for sizes in _factorisations(num_devices // num_slices, len(axes)):
        split = dict(zip(axes, sizes, strict=True))
        data, expert = split.pop("data"), split.pop("expert", 1)
        more = {axis: size for axis, size in split.items() if size > 1}
        yield {**first, "data": data, "expert": expert, **more}


def rules_for(mesh: Mapping[str, int]) -> Iterator[RulesName]:
    """What may split a model on a mesh."""
    yield _gshard_rules(mesh)
    # A layer's parameters would be gathered again at every tick of a pipeline.
    if mesh.get("stage", 1) > 1:
        return
    # With one of them of size 1 it is fsdp, or splits nothing.
    if mesh.get("expert", 1) > 1 and mesh.get("data", 1) > 1:
        yield "dense_split"
    if batch_parts(mesh) > 1:
        yield "fsdp"


def _gshard_rules(mesh: Mapping[str, int]) -> RulesName:
    """The paper's rules for a mesh, by the name that says what the mesh must have."""
    if mesh.get("stage", 1) > 1:
        return "pipeline"
    if mesh.get("replica", 1) > 1:
        return "several_slices"
    return "tensor_parallel" if mesh.get("model", 1) > 1 else "gshard"


def _factorisations(number: int, count: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (number,)
        return
    for size in range(1, number + 1):
        if number % size == 0:
            yield from ((size, *rest) for rest in _factorisations(number // size, count - 1))
