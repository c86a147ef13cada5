"""How parameters start: arrays that carry the logical names their shardings come from."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx


def kernel(
    key: jax.Array, shape: Sequence[int], names: Sequence[str], *, fan_in: int, scale: float = 1.0
) -> nnx.Param:
    """A float32 parameter drawn from N(0, scale / fan_in), named dimension by dimension."""
    return named(jax.random.normal(key, shape, jnp.float32) * (scale / fan_in) ** 0.5, names)


def named(value: jax.Array, names: Sequence[str]) -> nnx.Param:
    """A parameter whose dimensions have logical names; rules turn the names into a sharding."""
    return nnx.Param(value, sharding_names=tuple(names), eager_sharding=False)
