"""Tokens to slots and back by index alone, in both directions of differentiation.

Who stands where is known both ways, so that forward and backward each side fetches what it needs:
no vector is ever scattered, and the result is the same in every run.

Axes: G groups, S tokens per group, K choices per token, L slots per group, M model width.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Links(NamedTuple):
    """Who stands where, in both directions; an index is in range also where its flag is False."""

    slot_GSK: Int[Array, "G S K"]
    kept_GSK: Bool[Array, "G S K"]
    choice_GL: Int[Array, "G L"]  # s * K + k
    filled_GL: Bool[Array, "G L"]


def links_of(slot_GSK: Int[Array, "G S K"], num_slots: int) -> Links:
    """The links of choices that have these slots; `num_slots` or more where they have none."""
    G, S, K = slot_GSK.shape
    kept_GSK = slot_GSK < num_slots
    choices = jnp.arange(S * K, dtype=jnp.int32)
    empty = jnp.full((num_slots,), S * K, jnp.int32)
    choice_GL = jax.vmap(lambda slot: empty.at[slot].set(choices, mode="drop"))(
        slot_GSK.reshape(G, S * K)
    )
    return Links(
        jnp.minimum(slot_GSK, num_slots - 1),
        kept_GSK,
        jnp.minimum(choice_GL, S * K - 1),
        choice_GL < S * K,
    )


@jax.custom_vjp
def to_slots(x_GSM: Float[Array, "G S M"], links: Links) -> Float[Array, "G L M"]:
    """Each slot's token. Backward each token gathers from its slots: no scatter of vectors."""
    x_GLM = take(x_GSM, links.choice_GL // links.kept_GSK.shape[-1])
    return jnp.where(links.filled_GL[..., None], x_GLM, 0)


def _to_slots_forward(x_GSM: Array, links: Links) -> tuple[Array, Links]:
    return to_slots(x_GSM, links), links


def _to_slots_backward(links: Links, d_GLM: Array) -> tuple[Array, None]:
    ones_GSK = jnp.ones_like(links.slot_GSK, d_GLM.dtype)
    return _weighted_sum(d_GLM, ones_GSK, links), None


to_slots.defvjp(_to_slots_forward, _to_slots_backward)


@jax.custom_vjp
def from_slots(
    y_GLM: Float[Array, "G L M"], weight_GSK: Float[Array, "G S K"], links: Links
) -> Float[Array, "G S M"]:
    """Each token's weighted sum of its slots. Backward each slot gathers from its token."""
    return _weighted_sum(y_GLM, weight_GSK, links)


def _from_slots_forward(
    y_GLM: Array, weight_GSK: Array, links: Links
) -> tuple[Array, tuple[Array, Array, Links]]:
    return from_slots(y_GLM, weight_GSK, links), (y_GLM, weight_GSK, links)


def _from_slots_backward(
    saved: tuple[Array, Array, Links], d_GSM: Array
) -> tuple[Array, Array, None]:
    y_GLM, weight_GSK, links = saved
    G, S, K = weight_GSK.shape
    d_GLM = take(d_GSM, links.choice_GL // K)
    weight_GL = take(weight_GSK.reshape(G, S * K, 1), links.choice_GL)
    dy_GLM = d_GLM * jnp.where(links.filled_GL[..., None], weight_GL, 0).astype(d_GLM.dtype)
    # The weight's gradient is <d of the token, output of the slot>, and is where the slot is.
    wide = jnp.promote_types(d_GLM.dtype, jnp.float32)
    inner_GL1 = jnp.einsum("GLM,GLM->GL", d_GLM, y_GLM, preferred_element_type=wide)[..., None]
    dw_GSK = take(inner_GL1, links.slot_GSK.reshape(G, S * K)).reshape(G, S, K)
    return dy_GLM, jnp.where(links.kept_GSK, dw_GSK, 0).astype(weight_GSK.dtype), None


from_slots.defvjp(_from_slots_forward, _from_slots_backward)


def take(x_GNM: Float[Array, "G N M"], index_GJ: Int[Array, "G J"]) -> Float[Array, "G J M"]:
    """Rows of each group, with groups as batch, so that no device looks beyond its own."""
    return jnp.take_along_axis(x_GNM, index_GJ[..., None], axis=1, mode="promise_in_bounds")


def _weighted_sum(
    x_GLM: Float[Array, "G L M"], weight_GSK: Float[Array, "G S K"], links: Links
) -> Float[Array, "G S M"]:
    weight_GSK = weight_GSK.astype(x_GLM.dtype)
    # The product is masked and not the weight: a slot that is another token's may hold NaN.
    terms = (
        jnp.where(
            links.kept_GSK[..., k, None],
            take(x_GLM, links.slot_GSK[..., k]) * weight_GSK[..., k, None],
            0,
        )
        for k in range(weight_GSK.shape[-1])
    )
    return sum(terms, start=jnp.zeros((), x_GLM.dtype))
