"""The small parts that every block uses: RMS scale, dropout, embeddings, feed-forward.

Axes: B batch, L length, M model width, H hidden width, V vocabulary.
"""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from gshard_annotate import annotate
from gshard_train.models.initializers import kernel, named, table

RMS_EPSILON = 1e-6
HALF_WORDS = 2**16

# Logical names of the two lengths: apart, so that swapping them is noticed.
Length = Literal["source_length", "target_length"]


class RMSScale(nnx.Module):
    """Scales each vector to a root mean square of 1, then by a learned factor; no bias, no mean."""

    def __init__(self, embed: int):
        self.scale = named(jnp.ones(embed, jnp.float32), ["embed"])

    @jax.named_scope("norm")
    def __call__(self, x: Float[Array, "*dims M"]) -> Float[Array, "*dims M"]:
        """The scaled vectors in the dtype of `x`; the mean is taken in float32 at least."""
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        inverse = jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + RMS_EPSILON)
        return (wide * inverse * self.scale[...]).astype(x.dtype)


def dropout(
    x_BX: Float[Array, " B *X"], rate: float, key_B: Key[Array, " B"] | None
) -> Float[Array, " B *X"]:
    """`x` with a share `rate` of its entries set to 0 and the rest scaled up; no keys, no dropout.

    The share is a multiple of 2**-16. Each row draws from its own key, so what it draws depends on
    nothing else in the batch.
    """
    if key_B is None or rate == 0.0:
        return x_BX
    # A random word is enough for two entries, and drawing is what dropout costs.
    dropped = round(rate * HALF_WORDS)
    *shape, last = x_BX.shape[1:]
    draw = functools.partial(jax.random.bits, shape=(*shape, -(-last // 2)), dtype=jnp.uint32)
    words_BX = jax.vmap(draw)(key_B)
    halves_BX = jnp.concatenate([words_BX >> 16, words_BX & (HALF_WORDS - 1)], -1)[..., :last]
    return jnp.where(halves_BX >= dropped, x_BX / (1.0 - dropped / HALF_WORDS), 0).astype(
        x_BX.dtype
    )


class Embedding(nnx.Module):
    """Token vectors plus a learned vector for each position."""

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        embed: int,
        *,
        length: Length,
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        self.tokens = table(
            rngs.params(), (vocab_size, embed), ["vocab", "embed"], scale=embed**-0.5
        )
        self.positions = table(
            rngs.params(), (max_length, embed), ["length", "embed"], scale=embed**-0.5
        )
        self.length, self.dtype = length, dtype

    @jax.named_scope("embedding")
    def __call__(
        self, tokens_BL: Int[Array, "B L"], positions_BL: Int[Array, "B L"]
    ) -> Float[Array, "B L M"]:
        """The sum of token and position vectors, sharded over the batch."""
        x_BLM = self.tokens[...][tokens_BL] + self.positions[...][positions_BL]
        return annotate(x_BLM.astype(self.dtype), "batch", self.length, "act_embed")


class FeedForward(nnx.Module):
    """Two matrices with a ReLU between them and no biases (the paper's equation 2, one expert)."""

    def __init__(self, embed: int, mlp: int, *, length: Length, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.wi = kernel(rngs.params(), (embed, mlp), ["embed", "mlp"], fan_in=embed)
        self.wo = kernel(rngs.params(), (mlp, embed), ["mlp", "embed"], fan_in=mlp)
        self.length, self.dtype = length, dtype

    @jax.named_scope("dense_feed_forward")
    def __call__(self, x_BLM: Float[Array, "B L M"]) -> Float[Array, "B L M"]:
        """The transformed tokens; the hidden width may be split over the model axis."""
        h_BLH = jax.nn.relu(jnp.einsum("BLM,MH->BLH", x_BLM, self.wi[...].astype(self.dtype)))
        h_BLH = annotate(h_BLH, "batch", self.length, "act_mlp")
        y_BLM = jnp.einsum("BLH,HM->BLM", h_BLH, self.wo[...].astype(self.dtype))
        return annotate(y_BLM, "batch", self.length, "act_embed")
