"""Sending tokens to the slots of their experts, and the experts' outputs back.

Two kinds that give the same numbers, each a mirrored pair: one-hot einsums (GShard, arXiv
2006.16668, Algorithm 2) and index gathers.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
K choices per token.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gshard_moe.gating import Routing


def dispatch_einsum(x_GSM: Float[Array, "G S M"], routing: Routing) -> Float[Array, "E G C M"]:
    """Copies each token into the slots it was given; free slots are 0."""
    mask_GSEC = _by_slot(routing, jnp.ones_like(routing.weight_GSK)).astype(x_GSM.dtype)
    return jnp.einsum("GSM,GSEC->EGCM", x_GSM, mask_GSEC)


def combine_einsum(y_EGCM: Float[Array, "E G C M"], routing: Routing) -> Float[Array, "G S M"]:
    """The weighted sum of each token's slots; 0 for a token that has none."""
    weight_GSEC = _by_slot(routing, routing.weight_GSK).astype(y_EGCM.dtype)
    return jnp.einsum("EGCM,GSEC->GSM", y_EGCM, weight_GSEC)


def _by_slot(routing: Routing, value_GSK: Float[Array, "G S K"]) -> Float[Array, "G S E C"]:
    """The value of each choice at its slot: the paper's combine_weights, line 3 of Algorithm 2."""
    expert_GSKE = jax.nn.one_hot(routing.expert_GSK, routing.num_experts)
    # Choices without a slot carry index C, whose one-hot is all 0.
    slot_GSKC = jax.nn.one_hot(routing.slot_GSK, routing.capacity)
    return jnp.einsum("GSKE,GSKC->GSEC", expert_GSKE * value_GSK[..., None], slot_GSKC)
