"""Experts choose their tokens: against a loop, by hand, and there and back by both kinds."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_moe import (
    combine_einsum,
    combine_gather,
    dispatch_einsum,
    dispatch_gather,
    expert_choice,
    probabilities,
)

KINDS = {
    "einsum": (jax.jit(dispatch_einsum), jax.jit(combine_einsum)),
    "gather": (jax.jit(dispatch_gather), jax.jit(combine_gather)),
}
jit_choice = jax.jit(expert_choice, static_argnames="capacity")
jit_probabilities = jax.jit(probabilities)


def draw(seed, G, S, E, padding=0.2):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(G, S, E)).astype(np.float32) * 2
    return jnp.asarray(logits), jnp.asarray(rng.random((G, S)) >= padding)


def naive_choice(p, capacity, mask):
    """Token (-1: none) of each slot, [G,E,C]."""
    G, S, E = p.shape
    token = np.full((G, E, capacity), -1)
    for g, e in np.ndindex(G, E):
        real = [s for s in range(S) if mask[g, s]]
        best = sorted(real, key=lambda s: (-p[g, s, e], s))[:capacity]
        token[g, e, : len(best)] = best
    return token


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    sizes=st.sampled_from([(2, 7, 3), (3, 4, 6), (1, 20, 2), (2, 5, 1)]),
    capacity=st.sampled_from([1, 3, 4]),
    padding=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_like_a_loop_over_experts(seed, sizes, capacity, padding):
    logits, mask = draw(seed, *sizes, padding=padding)
    routing = jit_choice(logits, capacity=capacity, mask_GS=mask)
    p = np.asarray(jit_probabilities(logits))
    token = naive_choice(p, capacity, np.asarray(mask))
    kept = np.asarray(routing.kept_GEC)
    np.testing.assert_array_equal(kept, token >= 0)
    np.testing.assert_array_equal(np.where(kept, routing.token_GEC, -1), token)
    assert ((routing.token_GEC >= 0) & (routing.token_GEC < sizes[1])).all()
    for (g, e, c), s in np.ndenumerate(token):
        weight = p[g, s, e] if s >= 0 else 0
        np.testing.assert_allclose(routing.weight_GEC[g, e, c], weight, rtol=1e-6)


def test_by_hand():
    p = jnp.array([[[0.7, 0.3], [0.6, 0.4], [0.1, 0.9], [0.65, 0.35]]])
    routing = jit_choice(jnp.log(p), capacity=2)
    np.testing.assert_array_equal(routing.token_GEC, [[[0, 3], [2, 1]]])
    np.testing.assert_allclose(routing.weight_GEC, [[[0.7, 0.65], [0.9, 0.4]]], rtol=1e-6)
    padded = jit_choice(jnp.log(p), capacity=2, mask_GS=jnp.array([[True, False, True, False]]))
    np.testing.assert_array_equal(padded.token_GEC, [[[0, 2], [2, 0]]])


def test_of_equal_scores_the_earlier_token_goes_first():
    routing = jit_choice(jnp.zeros((1, 5, 2)), capacity=3)
    np.testing.assert_array_equal(routing.token_GEC, [[[0, 1, 2]] * 2])


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_like_a_loop(kind):
    logits, mask = draw(3, 2, 6, 4, padding=0.5)
    routing = jit_choice(logits, capacity=5, mask_GS=mask)
    dispatch, combine = KINDS[kind]
    x = np.random.default_rng(4).normal(size=(2, 6, 3)).astype(np.float32)
    sent = dispatch(jnp.asarray(x), routing)
    assert sent.shape == (4, 2, 5, 3)
    y = np.random.default_rng(5).normal(size=sent.shape).astype(np.float32)
    back, expected = combine(jnp.asarray(y), routing), np.zeros_like(x)
    assert (~np.asarray(routing.kept_GEC)).any()
    for (g, e, c), kept in np.ndenumerate(routing.kept_GEC):
        s = routing.token_GEC[g, e, c]
        np.testing.assert_array_equal(sent[e, g, c], x[g, s] if kept else 0)
        expected[g, s] += routing.weight_GEC[g, e, c] * y[e, g, c]
    np.testing.assert_allclose(back, expected, atol=1e-6)


def test_kinds_have_the_same_gradients():
    logits, mask = draw(6, 2, 6, 4)
    x = jax.random.normal(jax.random.key(0), (2, 6, 3))
    w = jax.random.normal(jax.random.key(1), (4, 3, 3))

    def loss(logits, x, w, kind):
        dispatch, combine = KINDS[kind]
        routing = jit_choice(logits, capacity=3, mask_GS=mask)
        y = jnp.einsum("EGCM,EMN->EGCN", dispatch(x, routing), w)
        return (combine(jnp.sin(y), routing) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), static_argnums=3)
    einsum, gather = (gradient(logits, x, w, kind) for kind in KINDS)
    assert jnp.abs(einsum[0]).max() > 1e-3
    for a, b in zip(einsum, gather, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capacity": 7}, "expert_choice: capacity is 7 of 5 tokens; give at most 5"),
        (
            {"capacity": 0, "mask_GS": jnp.ones((2, 5))},
            "expert_choice: capacity is 0; give at least 1 slot; "
            "mask is float32; give bool, False for padding",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(expert_choice)(jnp.zeros((2, 5, 3)), **arguments)
