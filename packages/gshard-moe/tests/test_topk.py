"""Top-k: against a loop, by hand, beside top-1 and top-2, and what has to hold for any input."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_moe import probabilities, top1, top2, topk

WEIGHTS = ("softmax_then_choose", "choose_then_softmax")
# One compilation instead of one per operation.
jit_topk = jax.jit(topk, static_argnames=("k", "capacity", "weights"))
jit_probabilities = jax.jit(probabilities)

# One group of three tokens and four experts.
P = np.array(
    [[0.10, 0.20, 0.30, 0.40], [0.05, 0.15, 0.30, 0.50], [0.25, 0.40, 0.05, 0.30]], np.float32
)[None]


def draw(seed, G, S, E, padding=0.2):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(G, S, E)).astype(np.float32) * 2
    return jnp.asarray(logits), jnp.asarray(rng.random((G, S)) >= padding)


def naive_topk(p, k, capacity, mask, weights):
    """Experts, slots (-1: none) and weights, each [G,S,K], choice after choice, token by token."""
    G, S, E = p.shape
    expert, slot = np.zeros((G, S, k), int), np.full((G, S, k), -1)
    weight = np.zeros((G, S, k), np.float32)
    for g in range(G):
        taken = [0] * E
        for choice in range(k):
            for s in range(S):
                best = sorted(range(E), key=lambda e: (-p[g, s, e], e))[:k]
                total = p[g, s, best].sum() if weights == "choose_then_softmax" else 1
                e = expert[g, s, choice] = best[choice]
                if mask[g, s]:
                    if taken[e] < capacity:
                        slot[g, s, choice] = taken[e]
                        weight[g, s, choice] = p[g, s, e] / total
                    taken[e] += 1
    return expert, slot, weight


# Few programs, many draws: compiling one takes longer than running a hundred.
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    program=st.sampled_from(
        [
            (2, 7, 5, 3, 1, WEIGHTS[1]),
            (3, 4, 6, 2, 3, WEIGHTS[0]),
            (1, 20, 3, 3, 8, WEIGHTS[1]),
            (2, 130, 4, 3, 8, WEIGHTS[0]),
            (1, 3, 4, 1, 1, WEIGHTS[0]),
        ]
    ),
    padding=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_like_a_loop_over_tokens(seed, program, padding):
    *sizes, k, capacity, weights = program
    logits, mask = draw(seed, *sizes, padding=padding)
    routing = jit_topk(logits, k=k, capacity=capacity, mask_GS=mask, weights=weights)
    p, valid = np.asarray(jit_probabilities(logits)), np.asarray(mask)
    expert, slot, weight = naive_topk(p, k, capacity, valid, weights)
    np.testing.assert_array_equal(routing.expert_GSK[valid], expert[valid])
    np.testing.assert_array_equal(routing.slot_GSK, np.where(slot < 0, capacity, slot))
    np.testing.assert_array_equal(routing.kept_GSK, slot >= 0)
    np.testing.assert_array_equal(routing.chosen_GSK, np.broadcast_to(valid[..., None], slot.shape))
    np.testing.assert_allclose(routing.weight_GSK, weight, atol=1e-6)


def test_by_hand_every_earlier_choice_comes_first():
    routing = jit_topk(jnp.log(P), k=3, capacity=2)
    np.testing.assert_array_equal(routing.expert_GSK[0], [[3, 2, 1], [3, 2, 1], [1, 3, 0]])
    # Expert 3 has two first choices: token 2's second one finds it full. Expert 1 has token 2's
    # first choice, then token 0's third; token 1's third finds it full.
    np.testing.assert_array_equal(routing.slot_GSK[0], [[0, 0, 1], [1, 1, 2], [0, 2, 0]])
    np.testing.assert_allclose(
        routing.weight_GSK[0], [[0.4, 0.3, 0.2], [0.5, 0.3, 0], [0.4, 0, 0.25]], atol=1e-6
    )


def test_by_hand_softmax_of_the_chosen_logits():
    routing = jit_topk(jnp.log(P), k=2, capacity=3, weights="choose_then_softmax")
    np.testing.assert_allclose(
        routing.weight_GSK[0], [[4 / 7, 3 / 7], [5 / 8, 3 / 8], [4 / 7, 3 / 7]], atol=1e-6
    )


def test_one_choice_is_top1():
    logits, mask = draw(1, 2, 9, 4)
    one, other = (
        jit_topk(logits, k=1, capacity=2, mask_GS=mask),
        top1(logits, capacity=2, mask_GS=mask),
    )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_choices_then_softmax_are_top2_with_its_second_expert_always():
    logits, mask = draw(2, 3, 11, 5)
    options = {"capacity": 3, "mask_GS": mask}
    one = jit_topk(logits, k=2, weights="choose_then_softmax", **options)
    other = top2(logits, second="always", **options)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    program=st.sampled_from(
        [(2, 7, 5, 3, 1, WEIGHTS[1]), (3, 4, 6, 6, 3, WEIGHTS[1]), (1, 20, 3, 2, 3, WEIGHTS[0])]
    ),
)
def test_what_holds_for_any_routing(seed, program):
    *sizes, k, capacity, weights = program
    logits, mask = draw(seed, *sizes)
    routing = jit_topk(logits, k=k, capacity=capacity, mask_GS=mask, weights=weights)
    kept = np.asarray(routing.kept_GSK)
    expert, slot = np.asarray(routing.expert_GSK), np.asarray(routing.slot_GSK)
    taken = [(g, expert[g, s, c], slot[g, s, c]) for g, s, c in np.argwhere(kept)]
    assert len(set(taken)) == len(taken), "a slot is used twice"
    assert all(slot < capacity for _, _, slot in taken)
    assert not kept[~np.asarray(mask)].any()
    for row in expert.reshape(-1, k):
        assert len(set(row)) == k, "a token chose an expert twice"
    totals = np.asarray(routing.weight_GSK).sum(-1)
    assert (totals <= 1 + 1e-6).all()
    if weights == "choose_then_softmax":
        np.testing.assert_allclose(totals[kept.all(-1)], 1, atol=1e-6)


@pytest.mark.parametrize(("k", "weights"), [(1, WEIGHTS[0]), (3, WEIGHTS[0]), (3, WEIGHTS[1])])
def test_router_has_a_gradient(k, weights):
    d = jnp.arange(1.0, k + 1)

    def total(logits):
        return (jit_topk(logits, k=k, capacity=3, weights=weights).weight_GSK * d).sum()

    gradient = jax.grad(total)(jnp.log(P))
    assert (jnp.abs(gradient).max(-1) > 1e-3).all()


def test_choices_that_underflow_ask_for_no_slot():
    logits = jnp.array([[[500.0, 0, 0], [0, 1, 2]]])
    for weights in WEIGHTS:
        routing = jit_topk(logits, k=2, capacity=1, weights=weights)
        np.testing.assert_array_equal(routing.chosen_GSK, [[[True, False], [True, True]]])
        np.testing.assert_array_equal(routing.kept_GSK, [[[True, False], [True, True]]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"k": 5, "capacity": 0, "weights": "softmax"},
            "topk: capacity is 0; give at least 1 slot; k is 5 of 4 experts; give 1 to 4; weights "
            "is 'softmax'; give one of 'softmax_then_choose', 'choose_then_softmax'",
        ),
        ({"k": 0, "capacity": 1}, "topk: k is 0 of 4 experts; give 1 to 4"),
        (
            {"k": 1, "capacity": 1, "weights": "choose_then_softmax"},
            "topk: with k=1 weights='choose_then_softmax' is 1 for any logits, and the router gets "
            "no gradient from the task; give 'softmax_then_choose'",
        ),
        (
            {"k": 2, "capacity": 1, "mask_GS": jnp.ones((3, 1), bool)},
            "topk: mask has shape (3, 1); give (1, 3)",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(topk)(jnp.log(P), **arguments)
