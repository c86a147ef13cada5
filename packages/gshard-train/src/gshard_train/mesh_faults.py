"""What of an experiment its mesh of devices does not divide, known before anything is traced."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jax.sharding import Mesh

from gshard_annotate.checks import axes_size, axes_tuple
from gshard_train.errors import did_you_mean
from gshard_train.models.pipeline import pipeline_faults
from gshard_train.state import offload_fault

if TYPE_CHECKING:
    from gshard_train.experiment import Experiment


def mesh_faults(experiment: "Experiment", mesh: Mesh) -> Iterator[str]:
    """One sentence for each number of the experiment that does not fit the mesh under its rules."""
    sizes, rules = dict(mesh.shape), experiment.rules
    named = list(dict.fromkeys(axis for _, axes in rules.pairs for axis in axes_tuple(axes)))
    needed = [axis for axis in named if axis not in rules.optional_axes]
    if lacking := [axis for axis in needed if axis not in sizes]:
        unknown = [axis for axis in sizes if axis not in named]
        near = "".join(
            did_you_mean(axis, lacking).replace("?", f" for {axis}?") for axis in unknown
        )
        yield (
            f"the mesh has the axes {', '.join(sizes)} and lacks {' and '.join(lacking)}"
            f"{near or '; give size 1 to an axis that is not used'}"
        )
        return
    for axis, size in sizes.items():
        if axis not in named and size > 1:
            yield (
                f"mesh axis {axis!r} of size {size} splits nothing, since no rule names it: its "
                f"devices would all compute the same; rules name {', '.join(named)}"
            )
    yield from _indivisible_numbers(experiment, mesh)
    yield from pipeline_faults(
        experiment.model,
        rules,
        mesh,
        batch_size=experiment.batch_size,
        microbatches=max(experiment.microbatches, 1),
    )
    if experiment.offload_optimizer and (fault := offload_fault(mesh)):
        yield fault


def batch_fault(experiment: "Experiment") -> str:
    """That the batch's rows do not go into the groups; "" where they do. It needs no mesh."""
    batch, groups = experiment.batch_size, experiment.model.num_groups
    if not experiment.model.num_experts or batch % groups == 0:
        return ""
    return indivisible("batch_size", batch, groups, "num_groups")


def indivisible(name: str, value: int, parts: int, what: str, *, multiple_of: int = 1) -> str:
    """The sentence for a number that is no multiple of its parts, with the nearest that are.

    Args:
      name: of the number.
      value: of it.
      parts: into which it is divided.
      what: has these parts.
      multiple_of: what the numbers to use are multiples of, too.
    """
    near = _nearest(value, math.lcm(parts, multiple_of))
    return (
        f"{name}={value} cannot be divided by the {parts} parts of {what} "
        f"({value} % {parts} = {value % parts}); use {' or '.join(map(str, near))}"
    )


def _nearest(value: int, parts: int) -> list[int]:
    return sorted({max(parts, value // parts * parts), -(-max(value, 1) // parts) * parts})


def _indivisible_numbers(experiment: "Experiment", mesh: Mesh) -> Iterator[str]:
    known, said = {name for name, _ in experiment.rules.pairs}, set()
    grid = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    count = max(experiment.microbatches, 1)
    for name, of, value in _numbers(experiment):
        axes = axes_tuple(experiment.rules.mesh_axes(of, mesh)) if of in known else ()
        parts, what = axes_size(axes, dict(mesh.shape)), f"mesh axis '{axes[0] if axes else ''}'"
        if of in ("batch", "group"):
            parts, what = parts * count, f"mesh ({grid})"
            what += f" in {count} microbatches" if count > 1 else ""
        elif len(axes) > 1:
            what = f"mesh axes {', '.join(map(repr, axes))}"
        if of == "batch":
            yield from _batch_faults(experiment, parts, what)
        elif value % parts and (name, parts) not in said:
            said.add((name, parts))
            yield indivisible(name, value, parts, what)


def _batch_faults(experiment: "Experiment", parts: int, what: str) -> Iterator[str]:
    """In one sentence that the batch fits neither the mesh nor the groups; numbers fit both."""
    batch, groups = experiment.batch_size, experiment.model.num_groups
    whole = math.lcm(*_nearest(groups, parts)) if experiment.model.num_experts else 1
    if not batch_fault(experiment):
        if batch % parts:
            yield indivisible("batch_size", batch, parts, what, multiple_of=whole)
        return
    if batch % parts:
        what += f" nor by num_groups={groups}"
        yield indivisible("batch_size", batch, parts, what, multiple_of=whole)
    else:
        yield indivisible("batch_size", batch, groups, "num_groups", multiple_of=whole)


def _numbers(experiment: "Experiment") -> Iterator[tuple[str, str, int]]:
    """Each number that is divided: what it is called, the logical name of the dimension, value."""
    model = experiment.model
    yield "batch_size", "batch", experiment.batch_size
    if model.num_experts:
        yield "num_experts", "expert", model.num_experts
    yield "num_heads", "heads", model.num_heads
    yield "head_dim", "head_dim", model.head_dim
    yield "embed", "embed", model.embed
    yield "mlp", "mlp", model.mlp
    yield "source_vocab_size", "vocab", model.source_vocab_size
    yield "target_vocab_size", "vocab", model.target_vocab_size
    if model.num_experts:
        yield "embed", "expert_embed", model.embed
        width = "mlp" if model.expert_mlp is None else "expert_mlp"
        yield width, "expert_mlp", model.expert_width
        yield "num_groups", "group", model.num_groups
