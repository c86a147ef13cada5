"""How parameters start: arrays that carry the logical names their shardings come from."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


def kernel(key: jax.Array, shape: Sequence[int], names: Sequence[str], *, fan_in: int) -> nnx.Param:
    """A float32 matrix drawn evenly from +-sqrt(3 / fan_in), which has variance 1 / fan_in.

    GShard's authors' code starts every matrix so (lingvo, gshard_layers.py).
    """
    bound = (3.0 / fan_in) ** 0.5
    return named(jax.random.uniform(key, shape, jnp.float32, -bound, bound), names)


def table(key: jax.Array, shape: Sequence[int], names: Sequence[str], *, scale: float) -> nnx.Param:
    """Float32 vectors drawn from N(0, scale ** 2), one a row."""
    return named(jax.random.normal(key, shape, jnp.float32) * scale, names)


def named(value: jax.Array, names: Sequence[str]) -> nnx.Param:
    """A parameter whose dimensions have logical names; rules turn the names into a sharding."""
    return nnx.Param(value, out_sharding=tuple(names), eager_sharding=False)
