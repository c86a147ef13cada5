"""What all ways of routing share: the best expert, counting, and the Routing made of choices.

Everything is float32 (float64 of float64), boolean or integer, whatever the activations are.

Axes: G groups, S tokens per group, E experts, K choices per token.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.routing import Routing

# Tokens per triangular matmul: its work grows with the square, its overhead falls.
_BLOCK = 128


def probabilities(logits_GSE: Float[Array, "G S E"]) -> Float[Array, "G S E"]:
    """Softmax over experts, in float32 at least."""
    return jax.nn.softmax(at_least_float32(logits_GSE), axis=-1)


def at_least_float32(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """What decides on experts: half precision as float32, and float64 as it is."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@jax.custom_vjp
def softmax(logits_GSE: Float[Array, "G S E"]) -> tuple[Array, Array]:
    """Probabilities and logsumexp of the logits, with one exponential for both and both gradients.

    Logits have to be finite, also those of padding.
    """
    logsumexp_GS = jax.nn.logsumexp(logits_GSE, axis=-1)
    return jnp.exp(logits_GSE - logsumexp_GS[..., None]), logsumexp_GS


def _softmax_forward(logits_GSE: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    p_GSE, logsumexp_GS = softmax(logits_GSE)
    return (p_GSE, logsumexp_GS), (logits_GSE, logsumexp_GS)


def _softmax_backward(saved: tuple[Array, Array], d: tuple[Array, Array]) -> tuple[Array]:
    logits_GSE, logsumexp_GS = saved
    dp_GSE, dlogsumexp_GS = d
    p_GSE = jnp.exp(logits_GSE - logsumexp_GS[..., None])
    rest_GS = dlogsumexp_GS - (p_GSE * dp_GSE).sum(-1)
    return (p_GSE * (dp_GSE + rest_GS[..., None]),)


softmax.defvjp(_softmax_forward, _softmax_backward)


def check_inputs(
    who: str, logits_GSE: Array, mask_GS: Array | None, capacity: int, faults: Sequence[str] = ()
) -> None:
    """One ValueError with everything that is wrong, `faults` of the caller last."""
    found = []
    if logits_GSE.ndim != 3:
        found.append(f"logits have shape {logits_GSE.shape}; give [groups, tokens, experts]")
    if capacity < 1:
        found.append(f"capacity is {capacity}; give at least 1 slot")
    if mask_GS is not None:
        if mask_GS.shape != logits_GSE.shape[:2]:
            found.append(f"mask has shape {mask_GS.shape}; give {logits_GSE.shape[:2]}")
        if mask_GS.dtype != jnp.bool_:
            found.append(f"mask is {mask_GS.dtype}; give bool, False for padding")
    if found := [*found, *faults]:
        raise ValueError(f"{who}: {'; '.join(found)}")


def valid(p_GSE: Array, mask_GS: Array | None) -> Bool[Array, "G S"]:
    """The mask, True everywhere when there is none."""
    return jnp.ones(p_GSE.shape[:2], bool) if mask_GS is None else mask_GS


def best(p_GSE: Float[Array, "G S E"]) -> tuple[Int[Array, "G S"], Bool[Array, "G S E"]]:
    """The expert with the highest value (the lower index of equals), and its one-hot.

    Two reductions that vectorise: `lax.top_k` costs more than the experts on some backends, and
    its gradient is a scatter.
    """
    iota_E = jax.lax.broadcasted_iota(jnp.int32, p_GSE.shape, 2)
    at_max_GSE = p_GSE == p_GSE.max(-1, keepdims=True)
    # NaN equals nothing: the minimum keeps the index in range.
    last = p_GSE.shape[-1] - 1
    expert_GS = jnp.min(jnp.where(at_max_GSE, iota_E, last), -1)
    return expert_GS, iota_E == expert_GS[..., None]


def pick(x_GSE: Array, one_hot_GSE: Bool[Array, "G S E"]) -> Array:
    """The entry that the one-hot marks, 0 where it marks none."""
    return jnp.where(one_hot_GSE, x_GSE, jnp.zeros_like(x_GSE)).sum(-1)


def count_before(one_hot_GSE: Bool[Array, "G S E"]) -> Int[Array, "G S E"]:
    """For each token the number of earlier tokens of its group, per expert.

    A triangular matmul per block of tokens: exact, since products are 0 or 1 and sums stay below
    2**24, and without a data-dependent operation.
    """
    G, S, E = one_hot_GSE.shape
    block = min(S, _BLOCK)
    blocks = -(-S // block)
    x_GSE = one_hot_GSE.astype(jnp.float32)
    x_GSE = jnp.pad(x_GSE, ((0, 0), (0, blocks * block - S), (0, 0)))
    x_GBTE = x_GSE.reshape(G, blocks, block, E)
    earlier_TT = jnp.tril(jnp.ones((block, block), jnp.float32), -1)
    count_GBTE = jnp.einsum("tu,gbue->gbte", earlier_TT, x_GBTE)
    if blocks > 1:
        total_GBE = x_GBTE.sum(2)
        count_GBTE += (jnp.cumsum(total_GBE, 1) - total_GBE)[:, :, None]
    return count_GBTE.reshape(G, blocks * block, E)[:, :S].astype(jnp.int32)


def in_choice_order(one_hots: Sequence[Bool[Array, "G S E"]]) -> list[Int[Array, "G S E"]]:
    """How many claims come before each: those of earlier choices, of all tokens, come first.

    Claims that found no slot count too, so that who is dropped does not depend on capacity.
    """
    positions, taken = [], 0
    for one_hot_GSE in one_hots:
        positions.append(count_before(one_hot_GSE) + taken)
        taken = taken + one_hot_GSE.sum(1, keepdims=True)
    return positions


def routing_of(
    experts: Sequence[Array],
    one_hots: Sequence[Array],
    positions: Sequence[Array],
    weights: Sequence[Array],
    chosen: Sequence[Array],
    capacity: int,
) -> Routing:
    """The Routing of these choices: a choice gets its slot if its position is below capacity."""
    slots = [pick(p, hot) for p, hot in zip(positions, one_hots, strict=True)]
    slot_GSK, chosen_GSK = jnp.stack(slots, -1), jnp.stack(chosen, -1)
    kept_GSK = chosen_GSK & (slot_GSK < capacity)
    return Routing(
        expert_GSK=jnp.stack(experts, -1),
        slot_GSK=jnp.where(kept_GSK, slot_GSK, capacity),
        weight_GSK=jnp.where(kept_GSK, jnp.stack(weights, -1), 0.0),
        chosen_GSK=chosen_GSK,
        kept_GSK=kept_GSK,
        capacity=capacity,
        num_experts=one_hots[0].shape[-1],
    )


def normalized(routing: Routing) -> Routing:
    """The routing with weights of a token that sum to 1, where it has any expert."""
    total_GS1 = routing.weight_GSK.sum(-1, keepdims=True)
    weight_GSK = routing.weight_GSK / jnp.where(total_GS1 > 0, total_GS1, 1.0)
    return dataclasses.replace(routing, weight_GSK=weight_GSK)
