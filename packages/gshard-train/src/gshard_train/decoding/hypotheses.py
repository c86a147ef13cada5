"""What every search shares: the ends of sentences, scores, and the form of its results.

Axes: B batch, K hypotheses, L target length, X anything that is chosen among.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

EOS_ID = 1
IMPOSSIBLE = -1e9


class Translations(NamedTuple):
    """The hypothesis that was found for each sentence."""

    tokens_BL: Int[Array, "B L"]  # without the end of sentence, then 0
    score_B: Float[Array, " B"]
    truncated_B: Bool[Array, " B"]  # it did not end within L tokens and is cut there


def length_norm(length: Int[Array, ""] | int, alpha: float) -> Float[Array, ""]:
    """What a log probability is divided by (GNMT, arXiv 1609.08144, equation 14)."""
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def top(
    values_BX: Float[Array, "B X"], count: int
) -> tuple[Float[Array, "B K"], Int[Array, "B K"]]:
    """The `count` largest values of each row and where they stand, ties to the lower index.

    Plain reductions, since a sort costs more than the model on CPU and `count` is small.
    """
    positions = jax.lax.broadcasted_iota(jnp.int32, values_BX.shape, 1)
    found, places = [], []
    for _ in range(count):
        best = values_BX.max(axis=1, keepdims=True)
        place = jnp.where(values_BX == best, positions, values_BX.shape[1]).min(axis=1)
        found.append(best[:, 0])
        places.append(place)
        values_BX = jnp.where(positions == place[:, None], -jnp.inf, values_BX)
    return jnp.stack(found, axis=1), jnp.stack(places, axis=1)


def pick(rows: Array, chosen_BK: Int[Array, "B K"]) -> Array:
    """`rows[b, chosen[b, k]]` for each sentence and hypothesis."""
    return jax.vmap(lambda row, chosen: row[chosen])(rows, chosen_BK)
