"""Algorithm 1: against a loop, against numbers by hand, and what has to hold for any input."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_moe import probabilities, top1, top2

SECONDS = ("random", "always", "never")
# One compilation instead of one per operation.
jit_top1 = jax.jit(top1, static_argnames="capacity")
jit_top2 = jax.jit(top2, static_argnames=("capacity", "second", "burn_slots"))
jit_probabilities = jax.jit(probabilities)

# One group of four tokens and four experts, two slots each: the paper's C = 2S/E.
P = np.array(
    [
        [0.60, 0.20, 0.10, 0.10],
        [0.50, 0.30, 0.10, 0.10],
        [0.45, 0.05, 0.30, 0.20],
        [0.30, 0.60, 0.05, 0.05],
    ],
    np.float32,
)[None]


def draw(seed, G, S, E, padding=0.2):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(G, S, E)).astype(np.float32) * 2
    return jnp.asarray(logits), jnp.asarray(rng.random((G, S)) >= padding)


def assert_like_naive(naive, logits, mask, key, capacity, second, burn_slots):
    G, S, _ = logits.shape
    routing = jit_top2(
        logits, capacity=capacity, mask_GS=mask, key=key, second=second, burn_slots=burn_slots
    )
    expert, slot, weight = naive.route(
        np.asarray(jit_probabilities(logits)),
        capacity,
        np.asarray(mask),
        np.asarray(jax.random.uniform(key, (G, S))),
        second=second,
        burn_slots=burn_slots,
    )
    valid = np.asarray(mask)
    np.testing.assert_array_equal(routing.expert_GSK[valid], expert[valid])
    np.testing.assert_array_equal(routing.slot_GSK, np.where(slot < 0, capacity, slot))
    np.testing.assert_array_equal(routing.kept_GSK, slot >= 0)
    np.testing.assert_allclose(routing.weight_GSK, weight, atol=1e-6)


def test_normalized_after_dropping(naive):
    logits, mask = draw(3, 2, 17, 4)
    p, uniforms = np.asarray(jit_probabilities(logits)), np.zeros((2, 17))
    _, slot, weight = naive.route(p, 3, np.asarray(mask), uniforms, second="always")

    def weights(logits):
        return top2(
            logits, capacity=3, mask_GS=mask, second="always", normalize_after_dropping=True
        ).weight_GSK

    kept = (slot >= 0).sum(-1)
    assert {0, 1, 2} <= set(kept.ravel())
    expected = np.where((kept == 1)[..., None], slot >= 0, weight)
    np.testing.assert_allclose(weights(logits), expected, atol=1e-6)
    # A weight of 1 does not depend on the logits; a token without an expert has no gradient.
    gradient = jax.grad(lambda logits: weights(logits)[..., 0].sum())(logits)
    np.testing.assert_array_equal((jnp.abs(gradient) > 1e-6).any(-1), kept == 2)


@pytest.mark.parametrize("burn_slots", [False, True])
@pytest.mark.parametrize("second", SECONDS)
def test_top2_like_a_loop_over_tokens(naive, second, burn_slots):
    logits, mask = draw(0, 2, 14, 5)
    assert_like_naive(naive, logits, mask, jax.random.key(1), 3, second, burn_slots)


# Few programs, many draws: compiling one takes longer than running a hundred.
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    program=st.sampled_from(
        [
            (1, 1, 1, 1, "random", False),
            (2, 7, 3, 3, "always", False),
            (3, 4, 6, 1, "never", True),
            (1, 20, 2, 8, "random", True),
            (2, 130, 4, 8, "random", False),
        ]
    ),
    padding=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_top2_like_a_loop_for_any_size(naive, seed, program, padding):
    *sizes, capacity, second, burn_slots = program
    logits, mask = draw(seed, *sizes, padding=padding)
    assert_like_naive(naive, logits, mask, jax.random.key(seed), capacity, second, burn_slots)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    program=st.sampled_from(
        [(2, 7, 3, 3, "always"), (3, 4, 6, 1, "random"), (1, 20, 2, 8, "never")]
    ),
)
def test_what_holds_for_any_routing(seed, program):
    *sizes, capacity, second = program
    logits, mask = draw(seed, *sizes)
    routing = jit_top2(
        logits, capacity=capacity, mask_GS=mask, key=jax.random.key(seed), second=second
    )
    kept = np.asarray(routing.kept_GSK)
    expert, slot = np.asarray(routing.expert_GSK), np.asarray(routing.slot_GSK)
    taken = [(g, expert[g, s, k], slot[g, s, k]) for g, s, k in np.argwhere(kept)]
    assert len(set(taken)) == len(taken), "a slot is used twice"
    assert all(slot < capacity for _, _, slot in taken)
    assert not kept[~np.asarray(mask)].any()
    assert not (kept & ~np.asarray(routing.chosen_GSK)).any()
    gates = np.sort(np.asarray(jit_probabilities(logits)), -1)[..., :-3:-1]
    gates = gates / gates.sum(-1, keepdims=True)
    np.testing.assert_allclose(routing.weight_GSK, np.where(kept, gates, 0), atol=1e-6)


def test_by_hand_first_choices_claim_before_second_choices():
    routing = jit_top2(jnp.log(P), capacity=2, second="always")
    np.testing.assert_array_equal(routing.expert_GSK[0], [[0, 1], [0, 1], [0, 2], [1, 0]])
    # Expert 0 is full after two first choices, and counts the third: token 3 finds it at 3.
    # Expert 1 has token 3 in slot 0, then token 0 in slot 1, and none left for token 1.
    np.testing.assert_array_equal(routing.slot_GSK[0], [[0, 1], [1, 2], [2, 0], [0, 2]])
    np.testing.assert_allclose(
        routing.weight_GSK[0], [[0.75, 0.25], [0.625, 0], [0, 0.4], [2 / 3, 0]], atol=1e-6
    )


@pytest.mark.parametrize(
    ("burn_slots", "second_kept"),
    [
        (True, [False, False, True, False]),  # as printed: token 0's lost coin takes slot 1
        (False, [False, True, True, False]),  # as released: token 1 gets it
    ],
)
def test_by_hand_what_a_lost_coin_costs(monkeypatch, burn_slots, second_kept):
    # 2 g2' is 0.5, 0.75, 0.8, 0.667: token 0 loses.
    monkeypatch.setattr(jax.random, "uniform", lambda *_: jnp.array([[0.6, 0.1, 0.1, 0.1]]))
    key = jax.random.key(0)
    routing = top2(jnp.log(P), capacity=2, key=key, burn_slots=burn_slots)
    np.testing.assert_array_equal(routing.chosen_GSK[0, :, 1], [False, True, True, True])
    np.testing.assert_array_equal(routing.kept_GSK[0, :, 1], second_kept)


def test_second_expert_is_used_with_probability_2_g2():
    logits = jnp.log(jnp.broadcast_to(jnp.array([0.6, 0.15, 0.25]), (50, 400, 3)))
    routing = jit_top2(logits, capacity=400, key=jax.random.key(0))
    share = routing.chosen_GSK[..., 1].mean()
    np.testing.assert_allclose(share, 2 * 0.25 / 0.85, atol=0.01)


def test_padding_changes_nothing_for_the_others():
    logits, _ = draw(3, 2, 9, 4)
    padded = jnp.concatenate([logits[:, :4], 9 * logits[:, ::-1], logits[:, 4:]], 1)
    mask = jnp.arange(18) < 4
    mask = jnp.broadcast_to(mask | (jnp.arange(18) >= 13), (2, 18))
    alone = jit_top2(logits, capacity=3, second="always")
    among = jit_top2(padded, capacity=3, mask_GS=mask, second="always")
    for name in ("expert_GSK", "slot_GSK", "weight_GSK", "kept_GSK", "chosen_GSK"):
        np.testing.assert_array_equal(getattr(among, name)[:, mask[0]], getattr(alone, name))


def test_permuted_groups_give_permuted_results():
    logits, mask = draw(4, 3, 8, 4)
    order = jnp.array([2, 0, 1])
    straight = jit_top2(logits, capacity=2, mask_GS=mask, second="always")
    permuted = jit_top2(logits[order], capacity=2, mask_GS=mask[order], second="always")
    np.testing.assert_array_equal(permuted.slot_GSK, straight.slot_GSK[order])
    np.testing.assert_array_equal(permuted.weight_GSK, straight.weight_GSK[order])


def test_equal_gates_go_to_the_lower_index():
    routing = jit_top2(jnp.zeros((1, 2, 4)), capacity=4, second="always")
    np.testing.assert_array_equal(routing.expert_GSK, [[[0, 1], [0, 1]]])
    np.testing.assert_allclose(routing.weight_GSK, 0.5)


def test_second_expert_differs_when_all_other_gates_underflow():
    routing = jit_top2(jnp.array([[[500.0, 0, 0]]]), capacity=1, second="always")
    np.testing.assert_array_equal(routing.expert_GSK, [[[0, 1]]])
    np.testing.assert_array_equal(routing.kept_GSK, [[[True, False]]])
    np.testing.assert_array_equal(routing.weight_GSK, [[[1, 0]]])


@pytest.mark.parametrize("second", SECONDS)
def test_one_expert_gets_every_token_once(second):
    routing = jit_top2(jnp.zeros((2, 3, 1)), capacity=3, key=jax.random.key(0), second=second)
    np.testing.assert_array_equal(routing.kept_GSK[..., 0], True)
    np.testing.assert_array_equal(routing.kept_GSK[..., 1], False)
    np.testing.assert_array_equal(routing.weight_GSK[..., 0], 1)


def test_top1_by_hand():
    routing = jit_top1(jnp.log(P), capacity=2, mask_GS=jnp.array([[True, False, True, True]]))
    np.testing.assert_array_equal(routing.expert_GSK[0, :, 0], [0, 0, 0, 1])
    np.testing.assert_array_equal(routing.slot_GSK[0, :, 0], [0, 2, 1, 0])
    np.testing.assert_allclose(routing.weight_GSK[0, :, 0], [0.6, 0, 0.45, 0.6], atol=1e-6)


def test_top1_weight_has_a_gradient():
    grad = jax.grad(lambda logits: jit_top1(logits, capacity=2).weight_GSK.sum())(jnp.log(P))
    # d p_e / d logit_j = p_e (1[e=j] - p_j), of the tokens that have a slot
    np.testing.assert_allclose(grad[0, 0], 0.6 * (np.eye(4)[0] - P[0, 0]), atol=1e-6)
    np.testing.assert_array_equal(grad[0, 2], 0)


def test_gates_are_float32_whatever_the_logits_are():
    logits = jnp.log(P).astype(jnp.bfloat16)
    routing = jit_top2(logits, capacity=4, second="always")
    assert routing.weight_GSK.dtype == jnp.float32
    exact = jit_top2(logits.astype(jnp.float32), capacity=4, second="always")
    np.testing.assert_array_equal(routing.weight_GSK, exact.weight_GSK)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"capacity": 0, "mask_GS": jnp.ones((1, 4), jnp.int32)},
            "top2: capacity is 0; give at least 1 slot; "
            "mask is int32; give bool, False for padding",
        ),
        (
            {"capacity": 2, "mask_GS": jnp.ones((4, 1), bool)},
            "top2: mask has shape (4, 1); give (1, 4)",
        ),
        (
            {"capacity": 2, "second": "sometimes"},
            "top2: second is 'sometimes'; give one of 'random', 'always', 'never'",
        ),
        (
            {"capacity": 2},
            "top2: second='random' draws a number per token and needs key=; "
            "pass a key, or second='always' or 'never'",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(top2)(jnp.log(P), **arguments)


def test_logits_without_groups():
    message = "top1: logits have shape (4, 4); give [groups, tokens, experts]"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(top1)(jnp.log(P[0]), capacity=2)
