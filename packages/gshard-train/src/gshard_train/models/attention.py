"""Multi-head attention, whole sequences at once or step by step with kept keys and values.

Axes: B batch, L query length, T key length, M model width, N heads, D head width.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Key

from gshard_annotate import annotate
from gshard_train.models.initializers import kernel
from gshard_train.models.layers import Length, dropout

MASKED_SCORE = -1e9


class KeysValues(NamedTuple):
    """Keys and values of one layer, [B, T, N, D] each."""

    keys: Float[Array, "*dims T N D"]
    values: Float[Array, "*dims T N D"]


class Attention(nnx.Module):
    """Scaled dot-product attention without biases; the softmax runs in float32."""

    def __init__(
        self,
        embed: int,
        num_heads: int,
        head_dim: int,
        *,
        queries: Length,
        keys: Length,
        dropout_rate: float,
        dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ):
        inner = (embed, num_heads, head_dim)
        names = ["embed", "heads", "head_dim"]
        self.wq = kernel(rngs.params(), inner, names, fan_in=embed)
        self.wk = kernel(rngs.params(), inner, names, fan_in=embed)
        self.wv = kernel(rngs.params(), inner, names, fan_in=embed)
        self.wo = kernel(
            rngs.params(),
            (num_heads, head_dim, embed),
            ["heads", "head_dim", "embed"],
            fan_in=num_heads * head_dim,
        )
        self.queries, self.keys, self.dtype = queries, keys, dtype
        self.dropout_rate = dropout_rate

    @jax.named_scope("attention")
    def __call__(
        self,
        x_BLM: Float[Array, "B L M"],
        kv_BTM: Float[Array, "B T M"],
        mask_BLT: Bool[Array, "#B #L T"],
        key_B: Key[Array, " B"] | None = None,
    ) -> Float[Array, "B L M"]:
        """What each query gathers from the positions that its mask allows; keys are for dropout."""
        return self.attend(x_BLM, self.project(kv_BTM), mask_BLT, key_B)

    @jax.named_scope("attention")
    @jax.named_scope("projections")
    def project(self, kv_BTM: Float[Array, "B T M"]) -> KeysValues:
        """The keys and values of a sequence."""
        k_BTND = jnp.einsum("BTM,MND->BTND", kv_BTM, self.wk[...].astype(self.dtype))
        v_BTND = jnp.einsum("BTM,MND->BTND", kv_BTM, self.wv[...].astype(self.dtype))
        names = ("batch", self.keys, "act_heads", "head_dim")
        return KeysValues(annotate(k_BTND, *names), annotate(v_BTND, *names))

    @jax.named_scope("attention")
    def attend(
        self,
        x_BLM: Float[Array, "B L M"],
        kv: KeysValues,
        mask_BLT: Bool[Array, "#B #L T"],
        key_B: Key[Array, " B"] | None = None,
    ) -> Float[Array, "B L M"]:
        """The attention output for queries from `x_BLM` over keys and values made before."""
        with jax.named_scope("projections"):
            q_BLND = jnp.einsum("BLM,MND->BLND", x_BLM, self.wq[...].astype(self.dtype))
        q_BLND = annotate(q_BLND, "batch", self.queries, "act_heads", "head_dim")
        scores_BNLT = jnp.einsum(
            "BLND,BTND->BNLT",
            q_BLND,
            kv.keys,
            preferred_element_type=jnp.promote_types(self.dtype, jnp.float32),
        )
        scores_BNLT = scores_BNLT * q_BLND.shape[-1] ** -0.5
        scores_BNLT = jnp.where(mask_BLT[:, None], scores_BNLT, MASKED_SCORE)
        weights_BNLT = jax.nn.softmax(scores_BNLT, axis=-1).astype(self.dtype)
        weights_BNLT = dropout(weights_BNLT, self.dropout_rate, key_B)
        y_BLND = jnp.einsum("BNLT,BTND->BLND", weights_BNLT, kv.values)
        with jax.named_scope("projections"):
            y_BLM = jnp.einsum("BLND,NDM->BLM", y_BLND, self.wo[...].astype(self.dtype))
        return annotate(y_BLM, "batch", self.queries, "act_embed")
