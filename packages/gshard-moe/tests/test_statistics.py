"""Sums that add up, and the shares made of them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_moe import (
    Statistics,
    expert_choice,
    probabilities,
    statistics,
    statistics_by_label,
    summary,
    top1,
    top2,
    topk,
)
from gshard_moe.statistics import load_per_token

# One compilation instead of one per operation.
jit_probabilities = jax.jit(probabilities)
jit_statistics = jax.jit(statistics)
jit_expert_choice = jax.jit(expert_choice, static_argnames="capacity")
jit_top1 = jax.jit(top1, static_argnames="capacity")
jit_top2 = jax.jit(top2, static_argnames=("capacity", "second"))
jit_topk = jax.jit(topk, static_argnames=("k", "capacity"))


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
    routing = jit_top1(logits, capacity=1)
    shares = summary(jit_statistics(routing, jit_probabilities(logits)))
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
        return jit_statistics(jit_top1(logits, capacity=2), jit_probabilities(logits)).confidence

    np.testing.assert_array_equal(jax.grad(confidence)(jnp.ones((1, 3, 2))), 0)


def test_three_choices_are_named_and_counted():
    logits = 2 * jax.random.normal(jax.random.key(0), (2, 9, 5))
    routing = jit_topk(logits, k=3, capacity=2)
    stats = jit_statistics(routing, jit_probabilities(logits))
    dropped = np.asarray(routing.chosen_GSK & ~routing.kept_GSK).sum((0, 1))
    np.testing.assert_array_equal(stats.dropped_K, dropped)
    assert (dropped > 0).all()
    reached = np.bincount(np.asarray(routing.kept_GSK).sum(-1).ravel(), minlength=4)
    np.testing.assert_array_equal(stats.reached_J, reached)
    shares = summary(stats)
    names = ("dropped_first", "dropped_second", "dropped_choice_3")
    np.testing.assert_allclose([shares[name] for name in names], dropped / 18, rtol=1e-6)
    assert "tokens_with_3_experts" in shares


def test_expert_choice_by_hand():
    # Expert 0 takes tokens 0 and 3, expert 1 takes 2 and 1; of four experts' worth of places.
    p = jnp.array([[[0.7, 0.3], [0.6, 0.4], [0.1, 0.9], [0.65, 0.35]]])
    stats = jit_statistics(jit_expert_choice(jnp.log(p), capacity=2), p)
    np.testing.assert_array_equal(stats.load_E, [2, 2])
    np.testing.assert_array_equal(stats.chosen_K, [4])
    np.testing.assert_array_equal(stats.dropped_K, [0])
    np.testing.assert_array_equal(stats.reached_J, [0, 4, 0])
    mask = jnp.array([[True, False, True, False]])
    masked = jit_statistics(jit_expert_choice(jnp.log(p), capacity=2, mask_GS=mask), p, mask)
    np.testing.assert_array_equal(masked.load_E, [2, 2])
    np.testing.assert_array_equal(masked.reached_J, [0, 0, 2])


def test_tokens_with_many_experts_are_counted_together():
    logits = jnp.zeros((1, 3, 7))
    stats = jit_statistics(jit_expert_choice(logits, capacity=3), jit_probabilities(logits))
    np.testing.assert_array_equal(stats.reached_J, [0, 0, 0, 0, 3])


def test_load_of_expert_choice_takes_no_more_memory_than_tokens_and_experts():
    G, S, E, C = 1, 512, 4, 64
    routing = jax.eval_shape(lambda x: expert_choice(x, capacity=C), jnp.zeros((G, S, E)))
    compiled = jax.jit(load_per_token).lower(routing).compile()
    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes <= 4 * G * S * E * 4


def test_what_does_not_fit_is_refused():
    routing = jit_top1(jnp.zeros((2, 3, 4)), capacity=1)
    message = (
        "statistics: probabilities have shape (2, 3, 5); give (2, 3, 4); "
        "mask is float32[2, 3]; give bool[2, 3]"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        statistics(routing, jnp.zeros((2, 3, 5)), jnp.ones((2, 3)))


def test_sums_of_other_numbers_of_experts_and_choices_are_not_added():
    def zeros(E, K):
        return Statistics(*map(jnp.zeros, ((), E, E, K, K, K + 1, (), ())))

    message = (
        "Statistics: shapes differ: load_E has (1,) and (4,); importance_E has (1,) and (4,); "
        "add up those of layers with as many experts and choices, and keep others apart"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        _ = zeros(1, 2) + zeros(4, 2)
    with pytest.raises(ValueError, match=re.escape("chosen_K has (1,) and (2,)")):
        _ = zeros(4, 1) + zeros(4, 2)


def naive_table(routing, labels, mask, num_labels):
    load, tokens = np.zeros((num_labels, routing.num_experts)), np.zeros(num_labels)
    chosen, dropped = np.zeros(num_labels), np.zeros(num_labels)
    for g, s in np.ndindex(labels.shape):
        if mask[g, s] and 0 <= (label := labels[g, s]) < num_labels:
            tokens[label] += 1
            for k in range(routing.kept_GSK.shape[-1]):
                chosen[label] += routing.chosen_GSK[g, s, k]
                dropped[label] += routing.chosen_GSK[g, s, k] and not routing.kept_GSK[g, s, k]
                load[label, routing.expert_GSK[g, s, k]] += routing.kept_GSK[g, s, k]
    return tokens, load, chosen, dropped


jit_by_label = jax.jit(statistics_by_label, static_argnums=2)


@pytest.mark.parametrize("seed", range(4))
def test_table_of_labels_like_a_loop_over_tokens(seed):
    rng = np.random.default_rng(seed)
    logits = jnp.asarray(2 * rng.normal(size=(3, 8, 5)), jnp.float32)
    labels, mask = rng.integers(-1, 5, (3, 8)), rng.random((3, 8)) < 0.8
    routing = jit_topk(logits, k=2, capacity=2, mask_GS=jnp.asarray(mask))
    table = jit_by_label(routing, jnp.asarray(labels), 4, jnp.asarray(mask))
    expected = naive_table(jax.tree.map(np.asarray, routing), labels, mask, 4)
    for a, b in zip(jax.tree.leaves(table), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    whole = jit_statistics(routing, jit_probabilities(logits), jnp.asarray(mask))
    everywhere = jit_by_label(routing, jnp.zeros((3, 8), jnp.int32), 1, jnp.asarray(mask))
    np.testing.assert_array_equal(everywhere.load_NE[0], whole.load_E)
    assert everywhere.dropped_N[0] == whole.dropped_K.sum()


def test_tables_add_up_and_show_shares():
    logits = 2 * jax.random.normal(jax.random.key(0), (4, 6, 3))
    labels = jnp.arange(24).reshape(4, 6) % 5
    routing = jit_top2(logits, capacity=2, second="always")
    table = jit_by_label(routing, labels, 7)
    parts = [
        jit_by_label(jax.tree.map(lambda x, at=at: x[at], routing), labels[at], 7)
        for at in (slice(0, 1), slice(1, 4))
    ]
    for a, b in zip(*map(jax.tree.leaves, (parts[0] + parts[1], table)), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(table.shares_NE.sum(-1), [1, 1, 1, 1, 1, 0, 0], rtol=1e-6)


def test_table_of_labels_where_experts_choose():
    p = jnp.array([[[0.7, 0.3], [0.6, 0.4], [0.1, 0.9], [0.65, 0.35]]])
    table = jit_by_label(jit_expert_choice(jnp.log(p), capacity=2), jnp.array([[0, 1, 1, 0]]), 2)
    np.testing.assert_array_equal(table.load_NE, [[2, 0], [0, 2]])


def test_wrong_labels():
    routing = jit_top1(jnp.zeros((2, 3, 4)), capacity=1)
    message = (
        "statistics_by_label: num_labels is 0; give at least 1; labels have shape (3, 2); "
        "give (2, 3); labels are float32; give integers; mask is int32[2, 3]; give bool[2, 3]"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        statistics_by_label(routing, jnp.zeros((3, 2)), 0, jnp.zeros((2, 3), jnp.int32))
