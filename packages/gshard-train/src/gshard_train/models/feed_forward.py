"""The second half of every layer: experts or a dense feed-forward layer, on the residual.

Axes: B batch, L length, M model width, G groups, S tokens per group.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from gshard_moe import MoELayer, MoEOutput, Top2, TopK
from gshard_moe.grouping import group, ungroup
from gshard_train.models.config import TransformerConfig
from gshard_train.models.context import Context
from gshard_train.models.layers import FeedForward, Length, RMSScale, dropout
from gshard_train.models.remat import Remat, recomputed_block


class FeedForwardPart(nnx.Module):
    """Norm, then experts or a dense feed-forward layer, on the residual."""

    def __init__(self, config: TransformerConfig, *, experts: bool, length: Length, rngs: nnx.Rngs):
        self.norm = RMSScale(config.embed)
        self.dropout_rate = config.dropout_rate
        self.remat: Remat = config.remat
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
        if isinstance(self.layer, MoELayer):
            y_BLM, output = recomputed_block(self._experts, "experts", self.remat)(x_BLM, context)
        else:
            y_BLM = recomputed_block(self._dense, "feed_forward", self.remat)(x_BLM, context)
            output = None
        return x_BLM + y_BLM, output

    def _experts(self, x_BLM, context: Context):
        assert isinstance(self.layer, MoELayer)
        h_GSM, mask_GS = group(self.norm(x_BLM), context.mask_BL, context.group_G.shape[0])
        y_GSM, output = self.layer(
            h_GSM,
            mask_GS,
            key=context.group_keys(),
            deterministic=context.evaluating,
            labels_GS=context.label_GS(),
            num_labels=context.num_labels,
        )
        y_BLM = ungroup(y_GSM, x_BLM.shape[0])
        with jax.named_scope("combine"):
            y_BLM = dropout(y_BLM, self.dropout_rate, context.row_keys(1))
        return y_BLM, output

    @jax.named_scope("dense_feed_forward")
    def _dense(self, x_BLM, context: Context):
        assert isinstance(self.layer, FeedForward)
        return dropout(self.layer(self.norm(x_BLM)), self.dropout_rate, context.row_keys(1))


def _moe_layer(config: TransformerConfig, *, rngs: nnx.Rngs) -> MoELayer:
    two = config.choices == 2
    return MoELayer(
        config.num_experts,
        config.embed,
        config.expert_width,
        slots_per_token=config.slots_per_token,
        eval_slots_per_token=config.eval_slots_per_token,
        router=Top2(config.second_expert) if two else TopK(config.choices, "choose_then_softmax"),
        dispatch=config.dispatch,
        dtype=jnp.dtype(config.dtype),
        rngs=rngs,
    )
