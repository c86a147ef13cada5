"""Sending tokens to the slots of their experts, and the experts' outputs back.

Two kinds that give the same numbers and gradients, each a mirrored pair: one-hot einsums (GShard,
arXiv 2006.16668, Algorithm 2) and index gathers.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, L = E * C slots per
group, M model width, K choices per token.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.routing import Routing


def dispatch_einsum(x_GSM: Float[Array, "G S M"], routing: Routing) -> Float[Array, "E G C M"]:
    """Copies each token into the slots it was given; free slots are 0."""
    mask_GSL = _by_slot(routing, jnp.ones_like(routing.weight_GSK), x_GSM.dtype)
    return _split_slots(jnp.einsum("GSM,GSL->GLM", x_GSM, mask_GSL), routing)


def combine_einsum(y_EGCM: Float[Array, "E G C M"], routing: Routing) -> Float[Array, "G S M"]:
    """The weighted sum of each token's slots; 0 for a token that has none."""
    weight_GSL = _by_slot(routing, routing.weight_GSK, y_EGCM.dtype)
    return jnp.einsum("GLM,GSL->GSM", _merge_slots(y_EGCM), weight_GSL)


def dispatch_gather(x_GSM: Float[Array, "G S M"], routing: Routing) -> Float[Array, "E G C M"]:
    """Copies each token into the slots it was given; free slots are 0."""
    return _split_slots(_to_slots(x_GSM, _links(routing)), routing)


def combine_gather(y_EGCM: Float[Array, "E G C M"], routing: Routing) -> Float[Array, "G S M"]:
    """The weighted sum of each token's slots; 0 for a token that has none."""
    return _from_slots(_merge_slots(y_EGCM), routing.weight_GSK, _links(routing))


def _split_slots(x_GLM: Float[Array, "G L M"], routing: Routing) -> Float[Array, "E G C M"]:
    G, _, M = x_GLM.shape
    return x_GLM.reshape(G, routing.num_experts, routing.capacity, M).swapaxes(0, 1)


def _merge_slots(y_EGCM: Float[Array, "E G C M"]) -> Float[Array, "G L M"]:
    E, G, C, M = y_EGCM.shape
    return y_EGCM.swapaxes(0, 1).reshape(G, E * C, M)


def _flat_slot(routing: Routing) -> Int[Array, "G S K"]:
    """The slot of each choice among the L of its group; L where it has none."""
    slot_GSK = routing.expert_GSK * routing.capacity + routing.slot_GSK
    return jnp.where(routing.kept_GSK, slot_GSK, routing.num_experts * routing.capacity)


def _by_slot(
    routing: Routing, value_GSK: Float[Array, "G S K"], dtype: jnp.dtype
) -> Float[Array, "G S L"]:
    """The value of each choice at its slot: the paper's combine_weights, Algorithm 2, line 3.

    The one-hot is that of the slot's number among all L, cheaper than the product of an expert's
    and a slot's one-hot.
    """
    slots = routing.num_experts * routing.capacity
    one_hot_GSKL = _flat_slot(routing)[..., None] == jnp.arange(slots)
    return jnp.where(one_hot_GSKL, value_GSK[..., None].astype(dtype), 0).sum(2)


class _Links(NamedTuple):
    """Who stands where, in both directions; an index is in range also where its flag is False."""

    slot_GSK: Int[Array, "G S K"]
    kept_GSK: Bool[Array, "G S K"]
    choice_GL: Int[Array, "G L"]  # s * K + k
    filled_GL: Bool[Array, "G L"]


def _links(routing: Routing) -> _Links:
    G, S, K = routing.kept_GSK.shape
    slots = routing.num_experts * routing.capacity
    slot_GSK = _flat_slot(routing)
    choices = jnp.arange(S * K, dtype=jnp.int32)
    empty = jnp.full((slots,), S * K, jnp.int32)
    choice_GL = jax.vmap(lambda slot: empty.at[slot].set(choices, mode="drop"))(
        slot_GSK.reshape(G, S * K)
    )
    filled_GL = choice_GL < S * K
    return _Links(
        jnp.minimum(slot_GSK, slots - 1),
        routing.kept_GSK,
        jnp.minimum(choice_GL, S * K - 1),
        filled_GL,
    )


@jax.custom_vjp
def _to_slots(x_GSM: Float[Array, "G S M"], links: _Links) -> Float[Array, "G L M"]:
    """Each slot's token. Backward each token gathers from its slots: no scatter of vectors."""
    x_GLM = _take(x_GSM, links.choice_GL // links.kept_GSK.shape[-1])
    return jnp.where(links.filled_GL[..., None], x_GLM, 0)


def _to_slots_forward(x_GSM: Array, links: _Links) -> tuple[Array, _Links]:
    return _to_slots(x_GSM, links), links


def _to_slots_backward(links: _Links, d_GLM: Array) -> tuple[Array, None]:
    ones_GSK = jnp.ones_like(links.slot_GSK, d_GLM.dtype)
    return _weighted_sum(d_GLM, ones_GSK, links), None


_to_slots.defvjp(_to_slots_forward, _to_slots_backward)


@jax.custom_vjp
def _from_slots(
    y_GLM: Float[Array, "G L M"], weight_GSK: Float[Array, "G S K"], links: _Links
) -> Float[Array, "G S M"]:
    """Each token's weighted sum of its slots. Backward each slot gathers from its token."""
    return _weighted_sum(y_GLM, weight_GSK, links)


def _from_slots_forward(
    y_GLM: Array, weight_GSK: Array, links: _Links
) -> tuple[Array, tuple[Array, Array, _Links]]:
    return _from_slots(y_GLM, weight_GSK, links), (y_GLM, weight_GSK, links)


def _from_slots_backward(
    saved: tuple[Array, Array, _Links], d_GSM: Array
) -> tuple[Array, Array, None]:
    y_GLM, weight_GSK, links = saved
    G, S, K = weight_GSK.shape
    d_GLM = _take(d_GSM, links.choice_GL // K)
    weight_GL = _take(weight_GSK.reshape(G, S * K, 1), links.choice_GL)
    dy_GLM = d_GLM * jnp.where(links.filled_GL[..., None], weight_GL, 0).astype(d_GLM.dtype)
    # The weight's gradient is <d of the token, output of the slot>, and is where the slot is.
    inner_GL1 = jnp.einsum("GLM,GLM->GL", d_GLM, y_GLM, preferred_element_type=jnp.float32)[
        ..., None
    ]
    dw_GSK = _take(inner_GL1, links.slot_GSK.reshape(G, S * K)).reshape(G, S, K)
    return dy_GLM, jnp.where(links.kept_GSK, dw_GSK, 0).astype(weight_GSK.dtype), None


_from_slots.defvjp(_from_slots_forward, _from_slots_backward)


def _take(x_GNM: Float[Array, "G N M"], index_GJ: Int[Array, "G J"]) -> Float[Array, "G J M"]:
    """Rows of each group, with groups as batch, so that no device looks beyond its own."""
    return jnp.take_along_axis(x_GNM, index_GJ[..., None], axis=1, mode="promise_in_bounds")


def _weighted_sum(
    x_GLM: Float[Array, "G L M"], weight_GSK: Float[Array, "G S K"], links: _Links
) -> Float[Array, "G S M"]:
    weight_GSK = jnp.where(links.kept_GSK, weight_GSK, 0).astype(x_GLM.dtype)
    terms = (
        _take(x_GLM, links.slot_GSK[..., k]) * weight_GSK[..., k, None]
        for k in range(weight_GSK.shape[-1])
    )
    return sum(terms, start=jnp.zeros((), x_GLM.dtype))
