"""Sums that add up, and the shares made of them."""

import jax
import jax.numpy as jnp
import numpy as np

from gshard_moe import probabilities, statistics, summary, top1, top2


@jax.jit
def run(logits, mask):
    routing = top2(logits, capacity=2, mask_GS=mask, second="always")
    return statistics(routing, probabilities(logits), mask)


def test_by_hand():
    p = jnp.array(
        [
            [0.60, 0.20, 0.10, 0.10],
            [0.50, 0.30, 0.10, 0.10],
            [0.45, 0.05, 0.30, 0.20],
            [0.30, 0.60, 0.05, 0.05],
            [0.25, 0.25, 0.25, 0.25],
        ]
    )[None]
    mask = jnp.array([[True] * 4 + [False]])
    stats = run(jnp.log(p), mask)
    # Kept: token 0 in experts 0 and 1, token 1 in 0, token 2 in 2, token 3 in 1.
    assert stats.tokens == 4
    np.testing.assert_array_equal(stats.load_E, [2, 2, 1, 0])
    np.testing.assert_allclose(stats.importance_E, [1.85, 1.15, 0.55, 0.45], rtol=1e-6)
    np.testing.assert_array_equal(stats.chosen_K, [4, 4])
    np.testing.assert_array_equal(stats.dropped_K, [1, 2])
    np.testing.assert_array_equal(stats.reached_J, [0, 3, 1])
    entropy = -(p[0, :4] * jnp.log(p[0, :4])).sum()
    np.testing.assert_allclose(stats.entropy, entropy, rtol=1e-6)
    np.testing.assert_allclose(stats.confidence, 2.15, rtol=1e-6)
    shares = summary(stats)
    np.testing.assert_allclose(shares["load"], [0.4, 0.4, 0.2, 0], rtol=1e-6)
    np.testing.assert_allclose(shares["importance"].sum(), 1, rtol=1e-6)
    expected = {
        "dropped_first": 0.25,
        "dropped_second": 0.5,
        "dropped": 0.375,
        "tokens_with_0_experts": 0,
        "tokens_with_1_experts": 0.75,
        "tokens_with_2_experts": 0.25,
        "router_entropy": entropy / 4,
        "router_confidence": 2.15 / 4,
    }
    assert set(shares) == {"load", "importance", *expected}
    for name, value in expected.items():
        np.testing.assert_allclose(shares[name], value, rtol=1e-6)


def test_sums_over_parts_are_the_sums_of_the_whole():
    logits = 2 * jax.random.normal(jax.random.key(0), (4, 9, 3))
    mask = jax.random.uniform(jax.random.key(1), (4, 9)) < jnp.array([[0.2], [0.9], [0.9], [0.9]])
    whole = run(logits, mask)
    total = run(logits[:1], mask[:1]) + run(logits[1:], mask[1:])
    for a, b in zip(jax.tree.leaves(total), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_top1_has_one_choice():
    logits = jax.random.normal(jax.random.key(0), (2, 6, 4))
    routing = top1(logits, capacity=1)
    shares = summary(statistics(routing, probabilities(logits)))
    assert "dropped_second" not in shares
    np.testing.assert_allclose(
        shares["tokens_with_0_experts"] + shares["tokens_with_1_experts"], 1, rtol=1e-6
    )


def test_only_padding_is_no_division_by_zero():
    logits = jnp.zeros((1, 3, 2))
    stats = run(logits, jnp.zeros((1, 3), bool))
    assert all(bool((value == 0).all()) for value in summary(stats).values())


def test_no_gradient():
    def confidence(logits):
        return statistics(top1(logits, capacity=2), probabilities(logits)).confidence

    np.testing.assert_array_equal(jax.grad(confidence)(jnp.ones((1, 3, 2))), 0)
