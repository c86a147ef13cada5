"""A stack of layers divided into stages that compute at the same time, each a microbatch.

As in GSPMD (arXiv 2105.04663, 3.3): the stages are a dimension of every array, split over a mesh
axis, and one program computes all of them. After each tick what a stage made moves to the next one,
which the compiler makes a collective-permute. It takes M + N - 1 ticks, so N - 1 of them are idle
in each stage.

A microbatch is every M-th unit of the batch, where a unit is the least that rows and groups share:
so each device keeps its rows, groups stay whole, and routing is that of the batch as a whole.

Axes: N stages, M microbatches, K layers (pairs) of a stage, X ticks, U units, B rows.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh
from jaxtyping import Array, Bool, Float

from gshard_annotate import Rules, annotate, replicate, rules_scope
from gshard_annotate.checks import axes_size, axes_tuple, mesh_sizes
from gshard_annotate.scope import Scope, current_scope
from gshard_moe import MoEOutput
from gshard_train.models.config import TransformerConfig

# What a stage does: its layers, their numbers, what enters it -> the same after it, their reports.
Stage = Callable[[Any, Any, Any], tuple[Any, MoEOutput | None]]


class Stages(NamedTuple):
    """The mesh axes that layers are split over, and how many parts that makes."""

    axes: tuple[str, ...]
    parts: int


def stages_of(rules: Rules, mesh: Mesh | AbstractMesh) -> Stages:
    """The stages that these rules make of this mesh; one where layers are not split."""
    axes = rules.mesh_axes("layer", mesh)
    return Stages(axes_tuple(axes), axes_size(axes, mesh_sizes(mesh)))


def stages_around() -> Stages:
    """Those of the `rules_scope` around."""
    scope = current_scope()
    return stages_of(scope.rules, scope.mesh) if scope else Stages((), 1)


def pipeline_faults(
    config: TransformerConfig,
    rules: Rules,
    mesh: Mesh,
    *,
    batch_size: int,
    microbatches: int = 1,
) -> Iterator[str]:
    """What stages and their microbatches do not divide, one sentence each.

    Args:
      config: the model.
      rules: logical axis names to mesh axes.
      mesh: the devices.
      batch_size: rows of a global batch.
      microbatches: of gradient accumulation, each of which goes through the pipeline.
    """
    _, stages = stages_of(rules, mesh)
    if stages == 1:
        return
    for name in ("num_encoder_layers", "num_decoder_layers"):
        if (pairs := getattr(config, name) // 2) % stages:
            low = max(1, pairs // stages) * stages * 2
            near = " or ".join(map(str, sorted({low, -(-pairs // stages) * stages * 2})))
            yield (
                f"{name}={getattr(config, name)} makes {pairs} pair{'s' * (pairs > 1)}, which "
                f"{stages} pipeline stages do not divide; use {near} layers, or a number of stages "
                f"that divides {pairs}"
            )
    count = config.pipeline_microbatches or stages
    sizes = {"batch_size": ("batch", batch_size)}
    if config.num_experts:
        sizes["num_groups"] = ("group", config.num_groups)
    for what, (name, size) in sizes.items():
        parts = axes_size(rules.mesh_axes(name, mesh), mesh_sizes(mesh))
        if size % (whole := microbatches * count * parts):
            accumulated = f"{microbatches} microbatches of accumulation x " * (microbatches > 1)
            yield (
                f"{what}={size} cannot be divided by {accumulated}pipeline_microbatches={count} x "
                f"{parts} parts of the mesh; use a multiple of {whole}"
            )


def run_stages(
    stage: Stage,
    layers: Any,
    moving: Any,
    *,
    microbatches: int | None,
) -> tuple[Array, MoEOutput | None]:
    """What leaves the last stage, and what all layers report, in their order.

    Args:
      stage: applied to each stage's layers with a leading axis K.
      layers: arrays whose leading axis counts all layers.
      moving: what goes from stage to stage; arrays whose leading axis counts rows or groups. Its
        first entry is what comes out.
      microbatches: M; None for as many as stages.

    Raises:
      ValueError: layers that the stages do not divide, or rows or groups that M does not.
    """
    axes, count = stages_around()
    moving, merge = _split_batch(moving, microbatches or count)
    size = jax.tree.leaves(layers)[0].shape[0]
    if size % count:
        raise ValueError(f"pipeline: {size} pairs of layers cannot be divided by {count} stages")
    layers_NK = jax.tree.map(lambda p: p.reshape(count, size // count, *p.shape[1:]), layers)
    numbers_NK = jnp.arange(size).reshape(count, -1)
    compute = jax.vmap(stage, spmd_axis_name=axes)

    def tick(inside: Any, inputs: tuple[Array, Any]):
        number, entering = inputs
        inside = _annotated(jax.tree.map(_moved_on, inside, entering))
        made, output = compute(layers_NK, numbers_NK, inside)
        made = _annotated(made)
        return made, (made[0], _without_bubbles(output, number, moving, count))

    ticks = jax.tree.leaves(moving)[0].shape[0] + count - 1
    with _scope_of_stages():
        queue = _annotated(jax.tree.map(lambda x: _queue(x, ticks, count), moving), (None,))
        empty = _annotated(jax.tree.map(lambda x: jnp.zeros_like(x[0]), queue))
        _, (made_XN, outputs) = jax.lax.scan(tick, empty, (jnp.arange(ticks), queue))
        last = _of_last_stage(made_XN[count - 1 :])
    return merge(last), None if outputs is None else _over_ticks(outputs)


def _split_batch(moving: Any, count: int) -> tuple[Any, Callable[[Array], Array]]:
    """The arrays with a leading axis M, and the way back for one of them."""
    sizes = {leaf.shape[0] for leaf in jax.tree.leaves(moving)}
    units = math.gcd(*sizes)
    if units % count:
        given = " and ".join(map(str, sorted(sizes - {0})))
        raise ValueError(
            f"pipeline: a batch of {given} rows and groups cannot be divided into "
            f"pipeline_microbatches={count}; make both numbers multiples of it"
        )

    def split(x: Array) -> Array:
        x_UMB = x.reshape(units // count, count, x.shape[0] // units, *x.shape[1:])
        return x_UMB.swapaxes(0, 1).reshape(count, x.shape[0] // count, *x.shape[1:])

    def merge(x: Array) -> Array:
        rows = count * x.shape[1]
        x_MUB = x.reshape(count, units // count, rows // units, *x.shape[2:])
        return x_MUB.swapaxes(0, 1).reshape(rows, *x.shape[2:])

    return jax.tree.map(split, moving), merge


def _queue(x_M: Array, ticks: int, stages: int) -> Array:
    """What enters each stage at each tick: only the first has any, and in idle ticks no token.

    Made once, so that its gradient is summed over stages once and not at every tick.
    """
    x_X = jnp.pad(x_M, [(0, ticks - x_M.shape[0])] + [(0, 0)] * (x_M.ndim - 1))
    return jnp.where(_is_stage(0, stages, x_M.ndim - 1), x_X[:, None], jnp.zeros_like(x_X[:, None]))


def _moved_on(inside_N: Array, entering_N: Array) -> Array:
    """What each stage has next: what the one before made, and the first what enters."""
    first_N = _is_stage(0, inside_N.shape[0], inside_N.ndim - 1)
    return jnp.where(first_N, entering_N, jnp.roll(inside_N, 1, axis=0))


def _is_stage(number: int, stages: int, more: int) -> Bool[Array, " N *ones"]:
    """True at one stage, with `more` axes of size 1 behind."""
    return jnp.arange(stages).reshape(-1, *[1] * more) == number


def _annotated(inside: Any, before: tuple[None, ...] = ()) -> Any:
    """Stages over their mesh axes, rows over theirs; what has no row (groups) goes with them."""

    def place(x: Array) -> Array:
        names = (*before, "layer", "batch", None, "act_embed")[: x.ndim]
        return annotate(x, *names) if x.ndim > len(before) + 2 else x

    return jax.tree.map(place, inside)


def _without_bubbles(
    output: MoEOutput | None, tick: Array, moving: Any, count: int
) -> MoEOutput | None:
    """The reports of a tick, 0 for the stages that were idle."""
    number_N = tick - jnp.arange(count)
    busy_N = (number_N >= 0) & (number_N < jax.tree.leaves(moving)[0].shape[0])

    def where_busy(x_NK: Array) -> Array:
        return jnp.where(busy_N.reshape(-1, *[1] * (x_NK.ndim - 1)), x_NK, 0)

    return jax.tree.map(where_busy, output)


def _of_last_stage(x_XN: Array) -> Array:
    """On all stages, by one sum over them: the others add 0."""
    last_N = _is_stage(x_XN.shape[1] - 1, x_XN.shape[1], x_XN.ndim - 2)
    x_X = jnp.where(last_N, x_XN, 0).sum(axis=1)
    return annotate(x_X.astype(x_XN.dtype), None, "batch", None, "act_embed")


def _over_ticks(output: MoEOutput) -> MoEOutput:
    """One report a layer: sums added up, means weighed with the tokens they are of."""
    tokens_XNK = output.statistics.tokens
    total_NK = jnp.maximum(tokens_XNK.sum(axis=0), 1)

    def mean(loss_XNK: Float[Array, "X N K"]) -> Float[Array, " layers"]:
        return ((loss_XNK * tokens_XNK).sum(axis=0) / total_NK).ravel()

    summed = jax.tree.map(lambda x: x.sum(axis=0).reshape(-1, *x.shape[3:]), output)
    summed = dataclasses.replace(
        summed, balance_loss=mean(output.balance_loss), z_loss=mean(output.z_loss)
    )
    # So that they go over to all stages as they are, and not one by one with what is made of them.
    return jax.tree.map(replicate, summed)


def _scope_of_stages():
    """A scope for the sizes of microbatches, which are others than the batch's."""
    scope = current_scope()
    assert isinstance(scope, Scope)
    return rules_scope(scope.rules, scope.mesh, varying=scope.varying)
