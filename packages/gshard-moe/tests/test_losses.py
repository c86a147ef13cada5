"""Balance and z-loss: by hand, at their extremes, and untouched by padding."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gshard_moe

balance_loss = jax.jit(gshard_moe.balance_loss)
router_z_loss = jax.jit(gshard_moe.router_z_loss)


def test_balance_loss_by_hand():
    p = jnp.array(
        [
            [0.60, 0.20, 0.10, 0.10],
            [0.50, 0.30, 0.10, 0.10],
            [0.45, 0.05, 0.30, 0.20],
            [0.30, 0.60, 0.05, 0.05],
        ]
    )[None]
    # c/S is 3/4, 1/4, 0, 0 and m is 0.4625, 0.2875, ...; the paper's l_aux has 1/E, ours E
    paper = (0.75 * 0.4625 + 0.25 * 0.2875) / 4
    loss = balance_loss(p, jnp.array([[0, 0, 0, 1]]))
    np.testing.assert_allclose(loss, paper * 4**2, rtol=1e-6)


def test_balanced_is_one_and_collapsed_is_the_number_of_experts():
    first = jnp.arange(12).reshape(2, 6) % 3
    np.testing.assert_allclose(balance_loss(jnp.full((2, 6, 3), 1 / 3), first), 1, rtol=1e-6)
    collapsed = jnp.broadcast_to(jnp.array([0.0, 1, 0]), (2, 6, 3))
    np.testing.assert_allclose(balance_loss(collapsed, jnp.ones((2, 6), int)), 3, rtol=1e-6)


def test_opposite_imbalance_of_two_groups_does_not_cancel():
    p = jnp.stack(
        [jnp.tile(jnp.array([0.9, 0.1]), (4, 1)), jnp.tile(jnp.array([0.1, 0.9]), (4, 1))]
    )
    first = jnp.array([[0] * 4, [1] * 4])
    np.testing.assert_allclose(balance_loss(p, first), 1.8, rtol=1e-6)


def test_z_loss_by_hand():
    # logsumexp of (0, 0) is log 2, of (log 3, 0) is log 4
    logits = jnp.log(jnp.array([[[1.0, 1.0], [3.0, 1.0]]]))
    expected = (np.log(2) ** 2 + np.log(4) ** 2) / 2
    np.testing.assert_allclose(router_z_loss(logits), expected, rtol=1e-6)


def test_padding_changes_nothing():
    logits = jax.random.normal(jax.random.key(0), (3, 5, 4))
    padded = jnp.concatenate([logits, jnp.full((3, 4, 4), jnp.nan)], 1)
    mask = jnp.broadcast_to(jnp.arange(9) < 5, (3, 9))
    np.testing.assert_allclose(router_z_loss(padded, mask), router_z_loss(logits), rtol=1e-6)
    gradient = jax.jit(jax.grad(router_z_loss))(padded, mask)
    np.testing.assert_allclose(gradient[:, :5], jax.jit(jax.grad(router_z_loss))(logits), rtol=1e-5)
    np.testing.assert_array_equal(gradient[:, 5:], 0)

    @jax.jit
    def balance(logits, mask=None):
        p = jax.nn.softmax(logits)
        return balance_loss(p, p.argmax(-1), mask)

    np.testing.assert_allclose(balance(padded, mask), balance(logits), rtol=1e-6)


def test_a_group_of_padding_counts_for_nothing():
    p = jax.nn.softmax(jax.random.normal(jax.random.key(1), (2, 5, 3)))
    mask = jnp.array([[True] * 5, [False] * 5])
    first = p.argmax(-1)
    np.testing.assert_allclose(
        balance_loss(p, first, mask), balance_loss(p[:1], first[:1]), rtol=1e-6
    )
    nothing = jnp.zeros((2, 5), bool)
    assert balance_loss(p, first, nothing) == 0
    assert router_z_loss(p, nothing) == 0


def test_gradient_pushes_the_crowded_expert_down():
    logits = jnp.array([[[1.0, 0, 0], [2.0, 0, 0], [0, 1.0, 0]]])

    def loss(logits):
        p = jax.nn.softmax(logits)
        return balance_loss(p, p.argmax(-1))

    gradient = jax.jit(jax.grad(loss))(logits).sum((0, 1))
    assert gradient[0] > 0 > gradient[2]


def test_what_does_not_fit_is_refused():
    p, mask = jnp.ones((2, 5, 3)), jnp.ones((2, 5))
    message = (
        "balance_loss: first expert is float32[2, 4]; give int32[2, 5]; "
        "mask is float32[2, 5]; give bool[2, 5]"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(gshard_moe.balance_loss)(p, jnp.zeros((2, 4)), mask)
    message = "router_z_loss: mask is float32[2, 5]; give bool[2, 5]"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(gshard_moe.router_z_loss)(p, mask)
