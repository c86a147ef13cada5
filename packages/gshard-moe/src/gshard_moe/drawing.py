"""Random numbers of groups: from one key for all of them, or from one for each.

Axes: G groups.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def draw(
    sample: Callable[[jax.Array, tuple[int, ...]], Array], key: jax.Array, shape: tuple[int, ...]
) -> Array:
    """sample(key, shape); with G keys, what a group gets depends on its own key alone.

    Args:
      sample: Such as `jax.random.uniform`.
      key: One key, or G of them.
      shape: Starting with G.
    """
    if key_shape(key) == ():
        return sample(key, shape)
    return jax.vmap(lambda one: sample(one, shape[1:]))(key)


def fold_in(key: jax.Array, number: int) -> jax.Array:
    """Another key, or G others."""
    if key_shape(key) == ():
        return jax.random.fold_in(key, number)
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(key, number)


def key_shape(key: jax.Array) -> tuple[int, ...]:
    """() for one key, (G,) for G of them: typed, or as the uint32 pairs of `jax.random.PRNGKey`."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key.shape if typed else key.shape[:-1]


def key_faults(key: Any, groups: tuple[int, ...]) -> list[str]:
    """That something is given as key, and is neither one key nor one for each of (G,) groups."""
    if key is None:
        return []
    if not hasattr(key, "dtype"):
        return [f"key is {key!r}; give jax.random.key(...)"]
    if key_shape(key) in ((), groups):
        return []
    return [f"key has shape {key_shape(key)}; give one key, or one for each group {groups}"]
