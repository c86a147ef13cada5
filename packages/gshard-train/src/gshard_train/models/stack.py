"""Pairs of layers stacked along an axis named "layer": one pair's code, run as often as there are.

By a scan, or by pipeline stages where the rules split "layer" over the mesh.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from gshard_moe import MoEOutput
from gshard_train.models.blocks import DecoderPair, EncoderPair, Source
from gshard_train.models.config import TransformerConfig
from gshard_train.models.context import Context, LayerKeys
from gshard_train.models.pipeline import run_stages, stages_around
from gshard_train.models.remat import recomputed_pair

Pair = TypeVar("Pair", EncoderPair, DecoderPair)


def stack(pair: type[Pair], config: TransformerConfig, count: int, rngs: nnx.Rngs) -> Pair:
    """`count` pairs as one module whose parameters have a leading axis named "layer"."""
    make = nnx.vmap(
        lambda key: pair(config, rngs=nnx.Rngs(params=key)),
        transform_metadata={nnx.PARTITION_NAME: "layer"},
    )
    return make(jax.random.split(rngs.params(), count))


def run(
    pairs: EncoderPair | DecoderPair,
    x_BLM: Float[Array, "B L M"],
    context: Context,
    source: Source | None,
    config: TransformerConfig,
) -> tuple[Float[Array, "B L M"], MoEOutput | None]:
    """The residual stream after all pairs of a stack, and their reports stacked."""
    graph, layers = nnx.split(pairs)
    key = context.key  # the same for all microbatches, so it stays where it is

    def stage(layers: Any, numbers: Array, moving: Any):
        x_BLM, rows, sources = moving
        keys = dataclasses.replace(rows, key=key).layer_keys(numbers)

        def pair(x_BLM: Array, inputs: tuple[Any, LayerKeys | None]):
            layer, keys = inputs
            of_pair = dataclasses.replace(rows, keys=keys)
            if config.narrow:
                # Else the TPU compiler narrows the parameters of all layers before the first.
                layer = jax.lax.optimization_barrier(layer)
            return nnx.merge(graph, layer)(x_BLM, *sources, context=of_pair)

        x_BLM, output = jax.lax.scan(recomputed_pair(pair, config.remat), x_BLM, (layers, keys))
        return (x_BLM, rows, sources), output

    moving = (x_BLM, dataclasses.replace(context, key=None), () if source is None else (source,))
    if stages_around().parts > 1:
        return run_stages(stage, layers, moving, microbatches=config.pipeline_microbatches)
    (x_BLM, _, _), output = stage(layers, jnp.arange(jax.tree.leaves(layers)[0].shape[0]), moving)
    return x_BLM, output
