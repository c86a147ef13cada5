"""Gradients that are written down, against those that JAX derives from the plain formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer
from gshard_moe.choosing import softmax
from gshard_moe.experts import _relu
from gshard_moe.logits import router_logits

G, S, E, M = 2, 5, 3, 4


def drawn(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def same(ours, plain, *arguments):
    """Values and gradients of all arguments, for a random direction of the result."""
    out, ours_back = jax.vjp(ours, *arguments)
    expected, plain_back = jax.vjp(plain, *arguments)
    for found, wanted in zip(jax.tree.leaves(out), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
    direction = jax.tree.map(lambda a: drawn(*a.shape, seed=7).astype(a.dtype), out)
    for found, wanted in zip(ours_back(direction), plain_back(direction), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_softmax_with_its_logsumexp():
    def plain(logits):
        return jax.nn.softmax(logits, -1), jax.nn.logsumexp(logits, -1)

    same(softmax, plain, 5 * drawn(G, S, E))
    same(softmax, plain, jnp.asarray([[[300.0, -300.0, 0.0]]]))
    same(softmax, plain, jnp.zeros((1, 1, 1)))


def test_relu():
    same(_relu, jax.nn.relu, jnp.asarray([-2.0, -0.0, 0.0, 1e-30, 3.0]))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("with_mask", [False, True])
def test_router_logits(with_mask, dtype):
    mask = jnp.arange(S) < jnp.asarray([[3], [0]]) if with_mask else None

    def ours(x, router):
        return router_logits(x, router, mask)

    def plain(x, router):
        x = x if mask is None else jnp.where(mask[..., None], x, 0)
        return x.astype(jnp.float32) @ router

    same(ours, plain, drawn(G, S, M).astype(dtype), drawn(M, E, seed=1))


def test_router_logits_of_padding_that_is_not_a_number():
    mask = jnp.asarray([[True, False]])
    x = jnp.asarray([[[1.0, 2.0], [jnp.nan, jnp.inf]]])

    def loss(x, router):
        return (router_logits(x, router, mask) ** 2).sum()

    router = jnp.asarray([[1.0, 0.0], [0.0, 2.0]])
    value, (dx, drouter) = jax.value_and_grad(loss, (0, 1))(x, router)
    assert value == 1 + 16
    assert dx.tolist() == [[[2.0, 16.0], [0.0, 0.0]]]
    assert drouter.tolist() == [[2.0, 8.0], [4.0, 16.0]]


def test_forward_mode_is_refused(one_device):
    layer = MoELayer(E, M, 2 * M, rngs=nnx.Rngs(0), second_expert="never", slots_per_token=None)
    x = drawn(G, S, M)
    with rules_scope(DEFAULT_RULES, one_device), pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(lambda x: layer(x)[0], (x,), (x,))
