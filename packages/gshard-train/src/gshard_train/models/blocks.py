"""Encoder and decoder layers, in pairs: one with experts, one dense.

Every part is pre-norm: x + dropout(part(norm(x))). Axes: B batch, L target length, T source
length, M model width, K hypotheses of a beam.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gshard_moe import MoELayer, MoEOutput
from gshard_moe.grouping import group, ungroup
from gshard_train.models.attention import Attention, KeysValues
from gshard_train.models.config import TransformerConfig
from gshard_train.models.layers import FeedForward, Length, RMSScale, dropout


class Context(NamedTuple):
    """What a layer needs beside its input."""

    mask_BL: Bool[Array, "B L"]  # True where a token stands
    key: PRNGKeyArray | None  # for dropout and the second expert's coin; None when evaluating

    def fold(self, number: int) -> "Context":
        """The context of sub-part `number`, with a key of its own."""
        key = None if self.key is None else jax.random.fold_in(self.key, number)
        return self._replace(key=key)


class FeedForwardPart(nnx.Module):
    """Norm, then experts or a dense feed-forward layer, on the residual."""

    def __init__(self, config: TransformerConfig, *, experts: bool, length: Length, rngs: nnx.Rngs):
        self.norm = RMSScale(config.embed)
        self.dropout_rate = config.dropout_rate
        self.num_groups = config.num_groups
        self.layer = (
            _moe_layer(config, rngs=rngs)
            if experts
            else FeedForward(
                config.embed,
                config.mlp,
                length=length,
                dtype=jnp.dtype(config.dtype),
                rngs=rngs,
            )
        )

    def __call__(
        self, x_BLM: Float[Array, "B L M"], context: Context
    ) -> tuple[Float[Array, "B L M"], MoEOutput | None]:
        """The residual stream after the part; losses and statistics where there are experts."""
        h_BLM, output = self.norm(x_BLM), None
        if isinstance(self.layer, MoELayer):
            h_GSM, mask_GS = group(h_BLM, context.mask_BL, self.num_groups)
            y_GSM, output = self.layer(
                h_GSM, mask_GS, key=context.fold(0).key, deterministic=context.key is None
            )
            y_BLM = ungroup(y_GSM, x_BLM.shape[0])
        else:
            y_BLM = self.layer(h_BLM)
        return x_BLM + dropout(y_BLM, self.dropout_rate, context.fold(1).key), output


class EncoderLayer(nnx.Module):
    """Self-attention over the source, then experts or a dense feed-forward layer."""

    def __init__(self, config: TransformerConfig, *, experts: bool, rngs: nnx.Rngs):
        self.attention_norm = RMSScale(config.embed)
        self.attention = _attention(config, "source_length", "source_length", rngs=rngs)
        self.feed_forward = FeedForwardPart(
            config, experts=experts, length="source_length", rngs=rngs
        )
        self.dropout_rate = config.dropout_rate

    def __call__(
        self, x_BTM: Float[Array, "B T M"], context: Context
    ) -> tuple[Float[Array, "B T M"], MoEOutput | None]:
        """The residual stream after the layer, and what its experts report."""
        h_BTM = self.attention_norm(x_BTM)
        y_BTM = self.attention(h_BTM, h_BTM, context.mask_BL[:, None, :])
        x_BTM = x_BTM + dropout(y_BTM, self.dropout_rate, context.fold(2).key)
        return self.feed_forward(x_BTM, context)


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

    def __call__(
        self,
        x_BLM: Float[Array, "B L M"],
        encoded_BTM: Float[Array, "B T M"],
        source_mask_BT: Bool[Array, "B T"],
        context: Context,
    ) -> tuple[Float[Array, "B L M"], MoEOutput | None]:
        """The residual stream after the layer, and what its experts report."""
        h_BLM = self.self_norm(x_BLM)
        causal_LL = jnp.tri(x_BLM.shape[1], dtype=bool)
        y_BLM = self.self_attention(h_BLM, h_BLM, causal_LL[None])
        x_BLM = x_BLM + dropout(y_BLM, self.dropout_rate, context.fold(2).key)
        y_BLM = self.cross_attention(
            self.cross_norm(x_BLM), encoded_BTM, source_mask_BT[:, None, :]
        )
        x_BLM = x_BLM + dropout(y_BLM, self.dropout_rate, context.fold(3).key)
        return self.feed_forward(x_BLM, context)

    def step(
        self,
        x_BKM: Float[Array, "B K M"],
        kept: KeysValues,
        source: KeysValues,
        source_mask_BT: Bool[Array, "B T"],
        index: Int[Array, ""],
        live_BK: Bool[Array, "B K"],
    ) -> tuple[Float[Array, "B K M"], KeysValues]:
        """One position of K hypotheses a sentence, and the kept keys and values with it added.

        Args:
          x_BKM: the residual stream at position `index`.
          kept: self-attention keys and values of the positions before, [B K, length, N, D].
          source: cross-attention keys and values, shared by the hypotheses of a sentence.
          source_mask_BT: True where a source token stands.
          index: the position.
          live_BK: True for hypotheses whose token may take an expert's slot.
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
        seen = (jnp.arange(kept.keys.shape[1]) <= index)[None, None, :]
        y = self.self_attention.attend(h, kept, seen)
        x_BKM = x_BKM + y.reshape(batch, beams, width)
        # The hypotheses of a sentence are the queries of one attention over its source.
        y_BKM = self.cross_attention.attend(
            self.cross_norm(x_BKM), source, source_mask_BT[:, None, :]
        )
        x_BKM, _ = self.feed_forward(x_BKM + y_BKM, Context(live_BK, None))
        return x_BKM, kept


class EncoderPair(nnx.Module):
    """An encoder layer with experts and a dense one: what the encoder repeats."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.first = EncoderLayer(config, experts=config.num_experts > 0, rngs=rngs)
        self.second = EncoderLayer(config, experts=False, rngs=rngs)

    def __call__(self, x_BTM: Float[Array, "B T M"], context: Context):
        """The residual stream after both layers, and what the experts report."""
        x_BTM, output = self.first(x_BTM, context.fold(0))
        x_BTM, _ = self.second(x_BTM, context.fold(1))
        return x_BTM, output


class DecoderPair(nnx.Module):
    """A decoder layer with experts and a dense one: what the decoder repeats."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        self.first = DecoderLayer(config, experts=config.num_experts > 0, rngs=rngs)
        self.second = DecoderLayer(config, experts=False, rngs=rngs)

    def __call__(
        self,
        x_BLM: Float[Array, "B L M"],
        encoded_BTM: Float[Array, "B T M"],
        source_mask_BT: Bool[Array, "B T"],
        context: Context,
    ):
        """The residual stream after both layers, and what the experts report."""
        x_BLM, output = self.first(x_BLM, encoded_BTM, source_mask_BT, context.fold(0))
        x_BLM, _ = self.second(x_BLM, encoded_BTM, source_mask_BT, context.fold(1))
        return x_BLM, output


def _attention(
    config: TransformerConfig, queries: Length, keys: Length, *, rngs: nnx.Rngs
) -> Attention:
    return Attention(
        config.embed,
        config.num_heads,
        config.head_dim,
        queries=queries,
        keys=keys,
        dtype=jnp.dtype(config.dtype),
        rngs=rngs,
    )


def _moe_layer(config: TransformerConfig, *, rngs: nnx.Rngs) -> MoELayer:
    return MoELayer(
        config.num_experts,
        config.embed,
        config.mlp,
        slots_per_token=config.slots_per_token,
        eval_slots_per_token=config.eval_slots_per_token,
        second_expert=config.second_expert,
        dispatch=config.dispatch,
        dtype=jnp.dtype(config.dtype),
        rngs=rngs,
    )
