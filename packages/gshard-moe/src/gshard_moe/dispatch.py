"""Sending tokens to the slots of their experts, and the experts' outputs back.

Two kinds that give the same numbers and gradients, each a mirrored pair: one-hot einsums (GShard,
arXiv 2006.16668, Algorithm 2) and index gathers.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, L = E * C slots per
group, M model width, K choices per token.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gshard_moe.links import Links, from_slots, links_of, take, to_slots
from gshard_moe.routing import ExpertRouting, Routing

AnyRouting = Routing | ExpertRouting


@jax.named_scope("dispatch")
def dispatch_einsum(x_GSM: Float[Array, "G S M"], routing: AnyRouting) -> Float[Array, "E G C M"]:
    """Copies each token into the slots it was given; free slots are 0."""
    mask_GSL = _by_slot(routing, x_GSM.dtype, weighted=False)
    return _split_slots(jnp.einsum("GSM,GSL->GLM", x_GSM, mask_GSL), routing)


@jax.named_scope("combine")
def combine_einsum(y_EGCM: Float[Array, "E G C M"], routing: AnyRouting) -> Float[Array, "G S M"]:
    """The weighted sum of each token's slots; 0 for a token that has none."""
    weight_GSL = _by_slot(routing, y_EGCM.dtype, weighted=True)
    return jnp.einsum("GLM,GSL->GSM", _merge_slots(y_EGCM), weight_GSL)


@jax.named_scope("dispatch")
def dispatch_gather(x_GSM: Float[Array, "G S M"], routing: AnyRouting) -> Float[Array, "E G C M"]:
    """Copies each token into the slots it was given; free slots are 0."""
    if isinstance(routing, ExpertRouting):
        x_GLM = take(x_GSM, _flat(routing.token_GEC))
        x_GLM = jnp.where(_flat(routing.kept_GEC)[..., None], x_GLM, 0)
    else:
        x_GLM = to_slots(x_GSM, _slot_links(routing))
    return _split_slots(x_GLM, routing)


@jax.named_scope("combine")
def combine_gather(y_EGCM: Float[Array, "E G C M"], routing: AnyRouting) -> Float[Array, "G S M"]:
    """The weighted sum of each token's slots; 0 for a token that has none."""
    y_GLM = _merge_slots(y_EGCM)
    if not isinstance(routing, ExpertRouting):
        return from_slots(y_GLM, routing.weight_GSK, _slot_links(routing))
    # A token has any number of slots, so that here they add to it, instead of it fetching them.
    y_GLM *= _flat(routing.weight_GEC)[..., None].astype(y_GLM.dtype)
    zeros_SM = jnp.zeros((routing.num_tokens, y_GLM.shape[-1]), y_GLM.dtype)
    return jax.vmap(lambda token_L, y_LM: zeros_SM.at[token_L].add(y_LM))(
        _flat(routing.token_GEC), y_GLM
    )


def _flat(x_GEC: Array) -> Array:
    return x_GEC.reshape(x_GEC.shape[0], -1)


def _split_slots(x_GLM: Float[Array, "G L M"], routing: AnyRouting) -> Float[Array, "E G C M"]:
    G, _, M = x_GLM.shape
    return x_GLM.reshape(G, routing.num_experts, routing.capacity, M).swapaxes(0, 1)


def _merge_slots(y_EGCM: Float[Array, "E G C M"]) -> Float[Array, "G L M"]:
    E, G, C, M = y_EGCM.shape
    return y_EGCM.swapaxes(0, 1).reshape(G, E * C, M)


def _flat_slot(routing: Routing) -> Int[Array, "G S K"]:
    """The slot of each choice among the L of its group; L where it has none."""
    slot_GSK = routing.expert_GSK * routing.capacity + routing.slot_GSK
    return jnp.where(routing.kept_GSK, slot_GSK, routing.num_experts * routing.capacity)


def _slot_links(routing: Routing) -> Links:
    return links_of(_flat_slot(routing), routing.num_experts * routing.capacity)


def _by_slot(routing: AnyRouting, dtype: jnp.dtype, *, weighted: bool) -> Float[Array, "G S L"]:
    """The weight (or 1) of each choice at its slot: the paper's combine_weights and dispatch_mask.

    The one-hot is that of the slot's number among all L, cheaper than the product of an expert's
    and a slot's one-hot (Algorithm 2, line 3).
    """
    if isinstance(routing, ExpertRouting):
        weight_GEC = routing.weight_GEC if weighted else routing.kept_GEC
        tokens = jnp.arange(routing.num_tokens)[:, None]
        one_hot_GSL = _flat(routing.token_GEC)[:, None] == tokens
        return jnp.where(one_hot_GSL, _flat(weight_GEC)[:, None].astype(dtype), 0)
    weight_GSK = routing.weight_GSK if weighted else routing.kept_GSK
    slots = routing.num_experts * routing.capacity
    one_hot_GSKL = _flat_slot(routing)[..., None] == jnp.arange(slots)
    return jnp.where(one_hot_GSKL, weight_GSK[..., None].astype(dtype), 0).sum(2)
