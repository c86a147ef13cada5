"""Tokens to slots and back: one-hot einsums, gathers and a loop give the same."""

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
    top1,
    top2,
)

# Jitted: one compilation instead of one per operation.
KINDS = {
    "einsum": (jax.jit(dispatch_einsum), jax.jit(combine_einsum)),
    "gather": (jax.jit(dispatch_gather), jax.jit(combine_gather)),
}
jit_top1 = jax.jit(top1, static_argnames="capacity")
jit_top2 = jax.jit(top2, static_argnames=("capacity", "second"))


def draw(seed, G, S, E, M):
    rng = np.random.default_rng(seed)
    logits, x = 2 * rng.normal(size=(G, S, E)), rng.normal(size=(G, S, M))
    mask = jnp.asarray(rng.random((G, S)) < 0.8)
    return jnp.asarray(logits, jnp.float32), jnp.asarray(x, jnp.float32), mask


def naive_dispatch(x, routing):
    routing = jax.tree.map(np.asarray, routing)
    G, _, M = x.shape
    out = np.zeros((routing.num_experts, G, routing.capacity, M), np.float32)
    for g, s, k in np.argwhere(routing.kept_GSK):
        out[routing.expert_GSK[g, s, k], g, routing.slot_GSK[g, s, k]] = x[g, s]
    return out


def naive_combine(y, routing):
    routing = jax.tree.map(np.asarray, routing)
    G, S, _ = routing.kept_GSK.shape
    out = np.zeros((G, S, y.shape[-1]), np.float32)
    for g, s, k in np.argwhere(routing.kept_GSK):
        slot = y[routing.expert_GSK[g, s, k], g, routing.slot_GSK[g, s, k]]
        out[g, s] += routing.weight_GSK[g, s, k] * slot
    return out


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    sizes=st.sampled_from([(2, 6, 4, 5), (3, 1, 2, 4), (2, 7, 1, 3)]),
    capacity=st.sampled_from([1, 3]),
    choices=st.sampled_from([1, 2]),
)
def test_like_a_loop_over_tokens(kind, seed, sizes, capacity, choices):
    logits, x, mask = draw(seed, *sizes)
    if choices == 1:
        routing = jit_top1(logits, capacity=capacity, mask_GS=mask)
    else:
        routing = jit_top2(logits, capacity=capacity, mask_GS=mask, second="always")
    dispatch, combine = KINDS[kind]
    sent = dispatch(x, routing)
    np.testing.assert_array_equal(sent, naive_dispatch(np.asarray(x), routing))
    y = jnp.asarray(np.random.default_rng(seed + 1).normal(size=sent.shape), jnp.float32)
    np.testing.assert_allclose(
        combine(y, routing), naive_combine(np.asarray(y), routing), atol=1e-6
    )


def test_kinds_have_the_same_gradients():
    logits, x, mask = draw(5, 2, 11, 4, 3)
    w = jax.random.normal(jax.random.key(6), (4, 3, 3))
    d = jax.random.normal(jax.random.key(7), x.shape)

    def loss(logits, x, w, kind):
        dispatch, combine = KINDS[kind]
        routing = jit_top2(logits, capacity=4, mask_GS=mask, second="always")
        y = jnp.einsum("EGCM,EMN->EGCN", dispatch(x, routing), w)
        return (d * combine(jnp.sin(y), routing)).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)), static_argnums=3)
    einsum, gather = (gradient(logits, x, w, kind) for kind in KINDS)
    assert jnp.abs(einsum[0]).max() > 1e-3
    for a, b in zip(einsum, gather, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_a_token_without_slot_comes_back_as_zero():
    routing = jit_top2(jnp.zeros((1, 3, 2)), capacity=1, second="never")
    for dispatch, combine in KINDS.values():
        out = combine(dispatch(jnp.ones((1, 3, 5)), routing), routing)
        np.testing.assert_array_equal(out[0], [[0.5] * 5, [0] * 5, [0] * 5])


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_stays_bfloat16(kind):
    logits, x, mask = draw(8, 2, 6, 4, 5)
    routing = jit_top2(logits, capacity=3, mask_GS=mask, second="always")
    dispatch, combine = KINDS[kind]
    sent = dispatch(x.astype(jnp.bfloat16), routing)
    back = combine(sent, routing)
    assert (sent.dtype, back.dtype) == (jnp.bfloat16, jnp.bfloat16)
    exact = combine(sent.astype(jnp.float32), routing)
    np.testing.assert_allclose(back.astype(jnp.float32), exact, atol=2e-2)
