"""Encoder and decoder layers, in pairs: one with experts, one dense.

Every part is pre-norm: x + dropout(part(norm(x))). Axes: B batch, L target length, T source
length, M model width, K hypotheses of a beam.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gshard_moe import MoEOutput
from gshard_train.models.attention import Attention, KeysValues
from gshard_train.models.config import TransformerConfig
from gshard_train.models.context import Context
from gshard_train.models.feed_forward import FeedForwardPart
from gshard_train.models.layers import Length, RMSScale, dropout
from gshard_train.models.remat import Remat, recomputed_block


class Source(NamedTuple):
    """What a decoder looks at."""

    encoded_BTM: Float[Array, "B T M"]
    mask_BT: Bool[Array, "B T"]  # True where a token stands
    segment_BT: Int[Array, "B T"] | None  # as in a context


class EncoderLayer(nnx.Module):
    """Self-attention over the source, then experts or a dense feed-forward layer."""

    def __init__(self, config: TransformerConfig, *, experts: bool, rngs: nnx.Rngs):
        self.attention_norm = RMSScale(config.embed)
        self.attention = _attention(config, "source_length", "source_length", rngs=rngs)
        self.feed_forward = FeedForwardPart(
            config, experts=experts, length="source_length", rngs=rngs
        )
        self.dropout_rate = config.dropout_rate
        self.remat: Remat = config.remat

    def __call__(
        self, x_BTM: Float[Array, "B T M"], context: Context
    ) -> tuple[Float[Array, "B T M"], MoEOutput | None]:
        """The residual stream after the layer, and what its experts report."""
        attended = recomputed_block(self._attended, "attention", self.remat)
        x_BTM = x_BTM + attended(x_BTM, context)
        return self.feed_forward(x_BTM, context)

    @jax.named_scope("attention")
    def _attended(self, x_BTM, context: Context):
        h_BTM = self.attention_norm(x_BTM)
        mask_BTT = seen(context.mask_BL, context.segment_BL, context.segment_BL)
        y_BTM = self.attention(h_BTM, h_BTM, mask_BTT, context.row_keys(4))
        return dropout(y_BTM, self.dropout_rate, context.row_keys(2))


class DecoderLayer(nnx.Module):
    """Causal self-attention, attention over the source, then experts or feed-forward."""

    def __init__(self, config: TransformerConfig, *, experts: bool, rngs: nnx.Rngs):
        self.self_norm = RMSScale(config.embed)
        self.self_attention = _attention(config, "target_length", "target_length", rngs=rngs)
        self.cross_norm = RMSScale(config.embed)
        self.cross_attention = _attention(config, "target_length", "source_length", rngs=rngs)
        self.feed_forward = FeedForwardPart(
            config, experts=experts, length="target_length", rngs=rngs
        )
        self.dropout_rate = config.dropout_rate
        self.remat: Remat = config.remat

    def __call__(
        self,
        x_BLM: Float[Array, "B L M"],
        source: Source,
        context: Context,
    ) -> tuple[Float[Array, "B L M"], MoEOutput | None]:
        """The residual stream after the layer, and what its experts report."""
        for function in (self._attended, self._attended_source):
            attended = recomputed_block(function, "attention", self.remat)
            x_BLM = x_BLM + attended(x_BLM, source, context)
        return self.feed_forward(x_BLM, context)

    @jax.named_scope("attention")
    def _attended(self, x_BLM, source: Source, context: Context):
        del source
        h_BLM = self.self_norm(x_BLM)
        # Padding needs no mask here: it comes last, where no token looks.
        mask_BLL = jnp.tri(x_BLM.shape[1], dtype=bool)[None]
        if context.segment_BL is not None:
            mask_BLL &= same(context.segment_BL, context.segment_BL)
        y_BLM = self.self_attention(h_BLM, h_BLM, mask_BLL, context.row_keys(4))
        return dropout(y_BLM, self.dropout_rate, context.row_keys(2))

    @jax.named_scope("attention")
    def _attended_source(self, x_BLM, source: Source, context: Context):
        mask_BLT = seen(source.mask_BT, context.segment_BL, source.segment_BT)
        h_BLM = self.cross_norm(x_BLM)
        y_BLM = self.cross_attention(h_BLM, source.encoded_BTM, mask_BLT, context.row_keys(5))
        return dropout(y_BLM, self.dropout_rate, context.row_keys(3))

    def step(
        self,
        x_BKM: Float[Array, "B K M"],
        kept: KeysValues,
        source: KeysValues,
        source_mask_BT: Bool[Array, "B T"],
        index: Int[Array, ""],
        context: Context,
    ) -> tuple[Float[Array, "B K M"], KeysValues]:
        """One position of K hypotheses a sentence, and the kept keys and values with it added.

        Args:
          x_BKM: the residual stream at position `index`.
          kept: self-attention keys and values of the positions before, [B K, length, N, D].
          source: cross-attention keys and values, shared by the hypotheses of a sentence.
          source_mask_BT: True where a source token stands.
          index: the position.
          context: of all hypotheses; those of its mask may take an expert's slot.
        """
        batch, beams, width = x_BKM.shape
        h = self.self_norm(x_BKM).reshape(batch * beams, 1, width)
        new = self.self_attention.project(h)
        kept = KeysValues(
            *(
                jax.lax.dynamic_update_slice_in_dim(k, n, index, 1)
                for k, n in zip(kept, new, strict=True)
            )
        )
        so_far = (jnp.arange(kept.keys.shape[1]) <= index)[None, None, :]
        y = self.self_attention.attend(h, kept, so_far)
        x_BKM = x_BKM + y.reshape(batch, beams, width)
        # The hypotheses of a sentence are the queries of one attention over its source.
        y_BKM = self.cross_attention.attend(
            self.cross_norm(x_BKM), source, source_mask_BT[:, None, :]
        )
        x_BKM, _ = self.feed_forward(x_BKM + y_BKM, context)
        return x_BKM, kept


class EncoderPair(nnx.Module):
    """An encoder layer with experts and a dense one: what the encoder repeats."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.first = EncoderLayer(config, experts=config.num_experts > 0, rngs=rngs)
        self.second = EncoderLayer(config, experts=False, rngs=rngs)

    def __call__(self, x_BTM: Float[Array, "B T M"], context: Context):
        """The residual stream after both layers, and what the experts report."""
        x_BTM, output = self.first(x_BTM, context.of_layer(0))
        x_BTM, _ = self.second(x_BTM, context.of_layer(1))
        return x_BTM, output


class DecoderPair(nnx.Module):
    """A decoder layer with experts and a dense one: what the decoder repeats."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.first = DecoderLayer(config, experts=config.num_experts > 0, rngs=rngs)
        self.second = DecoderLayer(config, experts=False, rngs=rngs)

    def __call__(
        self,
        x_BLM: Float[Array, "B L M"],
        source: Source,
        context: Context,
    ):
        """The residual stream after both layers, and what the experts report."""
        x_BLM, output = self.first(x_BLM, source, context.of_layer(0))
        x_BLM, _ = self.second(x_BLM, source, context.of_layer(1))
        return x_BLM, output


def same(query_BL: Int[Array, "B L"], key_BT: Int[Array, "B T"]) -> Bool[Array, "B L T"]:
    """Whether query and key belong to the same example of their row."""
    return query_BL[:, :, None] == key_BT[:, None, :]


def seen(
    mask_BT: Bool[Array, "B T"],
    query_BL: Int[Array, "B L"] | None,
    key_BT: Int[Array, "B T"] | None,
) -> Bool[Array, " B #L T"]:
    """Whether a query may look at a key: a token, and of its own example where rows are packed."""
    mask_BLT = mask_BT[:, None, :]
    if query_BL is None or key_BT is None:
        return mask_BLT
    return mask_BLT & same(query_BL, key_BT)


def _attention(
    config: TransformerConfig, queries: Length, keys: Length, *, rngs: nnx.Rngs
) -> Attention:
    return Attention(
        config.embed,
        config.num_heads,
        config.head_dim,
        queries=queries,
        keys=keys,
        dropout_rate=config.dropout_of_attention,
        dtype=jnp.dtype(config.dtype),
        rngs=rngs,
    )
