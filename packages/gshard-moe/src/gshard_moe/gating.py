"""From router logits to a Routing: which expert, which of its slots, with what weight.

`top2` is GShard, arXiv 2006.16668, Algorithm 1, for all groups at once; `top1` and `topk` give
slots in the same order. Everything is float32 (float64 of float64) or integer, whatever the
activations are.

Axes: G groups, S tokens per group, E experts, K choices per token.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gshard_moe.choosing import (
    at_least_float32,
    best,
    check_inputs,
    in_choice_order,
    normalized,
    pick,
    routing_of,
    valid,
)
from gshard_moe.choosing import probabilities as probabilities
from gshard_moe.drawing import draw, key_faults
from gshard_moe.routing import Routing

SecondExpert = Literal["random", "always", "never"]
Weights = Literal["softmax_then_choose", "choose_then_softmax"]


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
    check_inputs("top1", logits_GSE, mask_GS, capacity)
    return topk(logits_GSE, k=1, capacity=capacity, mask_GS=mask_GS)


def top2(
    logits_GSE: Float[Array, "G S E"],
    *,
    capacity: int,
    mask_GS: Bool[Array, "G S"] | None = None,
    key: jax.Array | None = None,
    second: SecondExpert = "random",
    burn_slots: bool = False,
    normalize_after_dropping: bool = False,
) -> Routing:
    """Routing of each token to its two best experts as in Algorithm 1.

    All first choices take slots in token order, then all second choices; both gates are divided
    by their sum before anything is dropped (line 7), and by default never again. Experts
    are compared by their logits: of equal ones the lower index wins.

    Args:
      logits_GSE: Router logits.
      capacity: Slots per group and expert.
      mask_GS: False for padding, which takes no slot.
      key: For `second="random"`. What is drawn depends on it and on the token's place only,
        not on devices. With one key for each group, its place in its group.
      second: Whether the second expert is used with the paper's probability 2 g2 ("random",
        lines 17-20), "always" or "never".
      burn_slots: The coin's losers take up slots all the same. As printed, line 21; the authors'
        released code lets only winners in, and so do we by default, to waste no capacity.
      normalize_after_dropping: A token that keeps one expert weighs it with 1, as in fairscale and
        in NLLB-MoE by default, and not with its gate as in the paper.
    """
    check_inputs("top2", logits_GSE, mask_GS, capacity, key_faults(key, logits_GSE.shape[:1]))
    _check_second("top2", second, key)
    logits_GSE = at_least_float32(logits_GSE)
    stopped_GSE = jax.lax.stop_gradient(logits_GSE)
    valid_GS = valid(logits_GSE, mask_GS)
    expert1_GS, first_GSE = best(stopped_GSE)
    expert2_GS, second_GSE = best(jnp.where(first_GSE, -jnp.inf, stopped_GSE))
    # Each gate over the sum of both: what softmax divides by drops out, and the softmax with it.
    gate2_GS = jax.nn.sigmoid(pick(logits_GSE, second_GSE) - pick(logits_GSE, first_GSE))
    # With one expert the second choice is the first again; its gate is counted once.
    gate2_GS = gate2_GS if logits_GSE.shape[-1] > 1 else jnp.zeros_like(gate2_GS)
    gate1_GS = 1 - gate2_GS

    wins_GS = valid_GS & _coin(gate2_GS, second, key)
    asking_GS = valid_GS if burn_slots else wins_GS
    first_GSE &= valid_GS[..., None]
    second_GSE &= asking_GS[..., None]
    routing = routing_of(
        [expert1_GS, expert2_GS],
        [first_GSE, second_GSE],
        in_choice_order([first_GSE, second_GSE]),
        [gate1_GS, gate2_GS],
        [valid_GS, wins_GS],
        capacity,
    )
    return normalized(routing) if normalize_after_dropping else routing


def topk(
    logits_GSE: Float[Array, "G S E"],
    *,
    k: int,
    capacity: int,
    mask_GS: Bool[Array, "G S"] | None = None,
    weights: Weights = "softmax_then_choose",
) -> Routing:
    """Routing of each token to its k best experts.

    Slots go to all first choices in token order, then to all second ones, and so on, as in
    Algorithm 1; nothing is renormalised after dropping. A choice whose weight is 0 (the others
    underflow) asks for no slot, the first one apart.

    Args:
      logits_GSE: Router logits.
      k: Choices per token, at most E.
      capacity: Slots per group and expert.
      mask_GS: False for padding, which takes no slot.
      weights: "softmax_then_choose": the probabilities among all experts (Switch, flaxformer).
        "choose_then_softmax": softmax of the k chosen logits, which sums to 1 (Mixtral, and
        `top2`'s gates). Of one choice that is 1 whatever the logits are, so that the router
        would learn nothing from the task: k=1 is refused.

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """
    faults = topk_faults(k, weights, logits_GSE.shape[-1])
    check_inputs("topk", logits_GSE, mask_GS, capacity, faults)
    p_GSE = probabilities(logits_GSE)
    left_GSE, valid_GS = jax.lax.stop_gradient(p_GSE), valid(p_GSE, mask_GS)
    experts, one_hots, gates = [], [], []
    for _ in range(k):
        expert_GS, one_hot_GSE = best(left_GSE)
        left_GSE = jnp.where(one_hot_GSE, -1.0, left_GSE)
        experts.append(expert_GS)
        one_hots.append(one_hot_GSE)
        gates.append(pick(p_GSE, one_hot_GSE))
    if weights == "choose_then_softmax":
        total_GS = sum(gates[1:], start=gates[0])  # at least 1/E: no division by zero
        gates = [gate_GS / total_GS for gate_GS in gates]
    chosen = [valid_GS, *(valid_GS & (gate_GS > 0) for gate_GS in gates[1:])]
    one_hots = [hot & chosen_GS[..., None] for hot, chosen_GS in zip(one_hots, chosen, strict=True)]
    return routing_of(experts, one_hots, in_choice_order(one_hots), gates, chosen, capacity)


def topk_faults(k: object, weights: object, num_experts: int) -> list[str]:
    """What is wrong with these arguments of `topk`, one sentence each."""
    faults = []
    if not isinstance(k, int) or isinstance(k, bool):
        return [f"k is {k!r}; give a whole number from 1 to {num_experts}"]
    if not 1 <= k <= num_experts:
        faults.append(f"k is {k} of {num_experts} experts; give 1 to {num_experts}")
    if weights not in get_args(Weights):
        allowed = ", ".join(map(repr, get_args(Weights)))
        faults.append(f"weights is {weights!r}; give one of {allowed}")
    if k == 1 and weights == "choose_then_softmax":
        faults.append(
            "with k=1 weights='choose_then_softmax' is 1 for any logits, and the router gets no "
            "gradient from the task; give 'softmax_then_choose'"
        )
    return faults


def _check_second(who: str, second: str, key: jax.Array | None) -> None:
    if second not in get_args(SecondExpert):
        allowed = ", ".join(map(repr, get_args(SecondExpert)))
        raise ValueError(f"{who}: second is {second!r}; give one of {allowed}")
    if second == "random" and key is None:
        raise ValueError(
            f"{who}: second='random' draws a number per token and needs key=; "
            "pass a key, or second='always' or 'never'"
        )


def _coin(
    gate2_GS: Float[Array, "G S"], second: SecondExpert, key: jax.Array | None
) -> Bool[Array, "G S"]:
    if second == "random":
        assert key is not None
        return 2 * gate2_GS > draw(jax.random.uniform, key, gate2_GS.shape)
    # A second gate of 0 has nothing to send (one expert, or all others underflow).
    return gate2_GS > 0 if second == "always" else jnp.zeros(gate2_GS.shape, bool)
