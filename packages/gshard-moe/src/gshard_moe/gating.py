"""From router logits to a Routing: which expert, which of its slots, with what weight.

GShard, arXiv 2006.16668, Algorithm 1, for all groups at once. Everything is float32 or integer,
whatever the activations are.

Axes: G groups, S tokens per group, E experts, K choices per token.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.routing import Routing

SecondExpert = Literal["random", "always", "never"]

# Tokens per triangular matmul: its work grows with the square, its overhead falls.
_BLOCK = 128


def probabilities(logits_GSE: Float[Array, "G S E"]) -> Float[Array, "G S E"]:
    """Softmax over experts, in float32."""
    return jax.nn.softmax(logits_GSE.astype(jnp.float32), axis=-1)


def top1(
    logits_GSE: Float[Array, "G S E"],
    *,
    capacity: int,
    mask_GS: Bool[Array, "G S"] | None = None,
) -> Routing:
    """Routing of each token to its best expert, in token order, weighted with its probability.

    Args:
      logits_GSE: Router logits.
      capacity: Slots per group and expert.
      mask_GS: False for padding, which takes no slot.
    """
    _check("top1", logits_GSE, mask_GS, capacity)
    p_GSE = probabilities(logits_GSE)
    expert_GS, first_GSE = _best(jax.lax.stop_gradient(p_GSE))
    first_GSE &= _valid(p_GSE, mask_GS)[..., None]
    position_GSE = _count_before(first_GSE)
    weight_GS = _pick(p_GSE, first_GSE)
    return _routing(
        [expert_GS], [first_GSE], [position_GSE], [weight_GS], [first_GSE.any(-1)], capacity
    )


def top2(
    logits_GSE: Float[Array, "G S E"],
    *,
    capacity: int,
    mask_GS: Bool[Array, "G S"] | None = None,
    key: jax.Array | None = None,
    second: SecondExpert = "random",
    burn_slots: bool = False,
) -> Routing:
    """Routing of each token to its two best experts as in Algorithm 1.

    All first choices take slots in token order, then all second choices; both gates are divided
    by their sum before anything is dropped (line 7), and nothing is renormalised after.

    Args:
      logits_GSE: Router logits.
      capacity: Slots per group and expert.
      mask_GS: False for padding, which takes no slot.
      key: For `second="random"`. What is drawn depends on it and on the token's place only,
        not on devices.
      second: Whether the second expert is used with the paper's probability 2 g2 ("random",
        lines 17-20), "always" or "never".
      burn_slots: The coin's losers take up slots all the same. As printed, line 21; the authors'
        released code lets only winners in, and so do we by default, to waste no capacity.
    """
    _check("top2", logits_GSE, mask_GS, capacity)
    _check_second("top2", second, key)
    p_GSE = probabilities(logits_GSE)
    p_stopped_GSE = jax.lax.stop_gradient(p_GSE)
    valid_GS = _valid(p_GSE, mask_GS)
    expert1_GS, first_GSE = _best(p_stopped_GSE)
    expert2_GS, second_GSE = _best(jnp.where(first_GSE, -1.0, p_stopped_GSE))
    gate1_GS, gate2_GS = _pick(p_GSE, first_GSE), _pick(p_GSE, second_GSE)
    # With one expert the second choice is the first again; its gate is counted once.
    gate2_GS = gate2_GS if p_GSE.shape[-1] > 1 else jnp.zeros_like(gate1_GS)
    total_GS = gate1_GS + gate2_GS  # at least 1/E: no division by zero
    gate1_GS, gate2_GS = gate1_GS / total_GS, gate2_GS / total_GS

    wins_GS = valid_GS & _coin(gate2_GS, second, key)
    asking_GS = valid_GS if burn_slots else wins_GS
    first_GSE &= valid_GS[..., None]
    second_GSE &= asking_GS[..., None]
    # Second choices come after every first choice of the group, those that found no slot included.
    before1_GSE, before2_GSE = _count_before(first_GSE), _count_before(second_GSE)
    before2_GSE += first_GSE.sum(1, keepdims=True)
    return _routing(
        [expert1_GS, expert2_GS],
        [first_GSE, second_GSE],
        [before1_GSE, before2_GSE],
        [gate1_GS, gate2_GS],
        [valid_GS, wins_GS],
        capacity,
    )


def _check(who: str, logits_GSE: Array, mask_GS: Array | None, capacity: int) -> None:
    faults = []
    if logits_GSE.ndim != 3:
        faults.append(f"logits have shape {logits_GSE.shape}; give [groups, tokens, experts]")
    if capacity < 1:
        faults.append(f"capacity is {capacity}; give at least 1 slot")
    if mask_GS is not None:
        if mask_GS.shape != logits_GSE.shape[:2]:
            faults.append(f"mask has shape {mask_GS.shape}; give {logits_GSE.shape[:2]}")
        if mask_GS.dtype != jnp.bool_:
            faults.append(f"mask is {mask_GS.dtype}; give bool, False for padding")
    if faults:
        raise ValueError(f"{who}: {'; '.join(faults)}")


def _check_second(who: str, second: str, key: jax.Array | None) -> None:
    if second not in get_args(SecondExpert):
        allowed = ", ".join(map(repr, get_args(SecondExpert)))
        raise ValueError(f"{who}: second is {second!r}; give one of {allowed}")
    if second == "random" and key is None:
        raise ValueError(
            f"{who}: second='random' draws a number per token and needs key=; "
            "pass a key, or second='always' or 'never'"
        )


def _valid(p_GSE: Array, mask_GS: Array | None) -> Bool[Array, "G S"]:
    return jnp.ones(p_GSE.shape[:2], bool) if mask_GS is None else mask_GS


def _best(p_GSE: Float[Array, "G S E"]) -> tuple[Int[Array, "G S"], Bool[Array, "G S E"]]:
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


def _pick(x_GSE: Array, one_hot_GSE: Bool[Array, "G S E"]) -> Array:
    """The entry that the one-hot marks, 0 where it marks none."""
    return jnp.where(one_hot_GSE, x_GSE, jnp.zeros_like(x_GSE)).sum(-1)


def _coin(
    gate2_GS: Float[Array, "G S"], second: SecondExpert, key: jax.Array | None
) -> Bool[Array, "G S"]:
    if second == "random":
        assert key is not None
        return 2 * gate2_GS > jax.random.uniform(key, gate2_GS.shape)
    # A second gate of 0 has nothing to send (one expert, or all others underflow).
    return gate2_GS > 0 if second == "always" else jnp.zeros(gate2_GS.shape, bool)


def _count_before(one_hot_GSE: Bool[Array, "G S E"]) -> Int[Array, "G S E"]:
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


def _routing(
    experts: list[Array],
    one_hots: list[Array],
    positions: list[Array],
    weights: list[Array],
    chosen: list[Array],
    capacity: int,
) -> Routing:
    """The Routing of these choices: a choice gets its slot if its position is below capacity."""
    slots = [_pick(p, hot) for p, hot in zip(positions, one_hots, strict=True)]
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
