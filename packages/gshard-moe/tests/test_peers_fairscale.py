"""Against fairscale 0.4.13's top-2 gate and layer: the same where they mean the same, else how not.

It draws the second expert with Gumbel noise and always uses it, and divides gates by their sum
after dropping: a token that keeps one expert has weight 1 there, and here if asked for.
"""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, Top2, balance_loss, probabilities, top2

GOLDEN = np.load(pathlib.Path(__file__).parent / "goldens" / "fairscale.npz")
M, H = 6, 10
X = GOLDEN["x"].reshape(1, 24, M)


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def parameters(case, num_experts):
    def stack(name):
        each = [GOLDEN[f"{case}/weights/experts.{e}.{name}"].T for e in range(num_experts)]
        return jnp.asarray(np.stack(each))

    arrays = {"wi": "0.weight", "bi": "0.bias", "wo": "2.weight", "bo": "2.bias"}
    arrays = {name: stack(theirs) for name, theirs in arrays.items()}
    return arrays | {"router": jnp.asarray(GOLDEN[f"{case}/weights/gate.wg.weight"].T)}


def apply(case, num_experts):
    router = Top2("always", normalize_after_dropping=True)
    layer = MoELayer(num_experts, M, H, use_bias=True, router=router, rngs=nnx.Rngs(0))
    nnx.update(layer, parameters(case, num_experts))
    y, output = nnx.jit(lambda layer, x: layer(x))(layer, X)
    return np.asarray(y).reshape(GOLDEN["x"].shape), output


@functools.partial(jax.jit, static_argnames="capacity")
def combine_weights(logits, capacity):
    """Weights [tokens, experts, slots], and the loss."""
    routing = top2(logits, capacity=capacity, second="always", normalize_after_dropping=True)
    expert = jax.nn.one_hot(routing.expert_GSK, logits.shape[-1]) * routing.weight_GSK[..., None]
    slot = jax.nn.one_hot(routing.slot_GSK, capacity)
    loss = balance_loss(probabilities(logits), routing.expert_GSK[..., 0])
    return jnp.einsum("GSKE,GSKC->SEC", expert, slot), loss


def routed(case, num_experts):
    logits = X @ GOLDEN[f"{case}/weights/gate.wg.weight"].T
    combine, loss = combine_weights(logits, 2 * 24 // num_experts)
    return np.asarray(combine), loss


def test_two_experts_leave_nothing_to_noise_and_nothing_drops():
    combine, _ = routed("two", 2)
    np.testing.assert_allclose(combine, GOLDEN["two/combine"], atol=1e-6)
    y, output = apply("two", 2)
    np.testing.assert_allclose(y, GOLDEN["two/y"], atol=1e-5)
    np.testing.assert_allclose(output.balance_loss, GOLDEN["two/loss"] * 2**2, rtol=1e-6)


def test_without_noise_they_fill_the_same_slots_with_the_same_weights():
    combine, loss = routed("no noise", 4)
    np.testing.assert_allclose(combine, GOLDEN["no noise/combine"], atol=1e-6)
    np.testing.assert_allclose(loss, GOLDEN["no noise/loss"] * 4**2, rtol=1e-6)


def test_without_noise_their_output_is_ours_also_where_an_expert_is_full():
    y, output = apply("no noise", 4)
    assert output.statistics.dropped_K.sum() > 0
    np.testing.assert_allclose(y, GOLDEN["no noise/y"], atol=1e-5)


def test_with_noise_first_choices_are_the_same_and_second_ones_are_others():
    combine, loss = routed("noise", 4)
    logits = X[0] @ GOLDEN["noise/weights/gate.wg.weight"].T
    first = jax.nn.one_hot(logits.argmax(1), 4)[..., None] > 0
    theirs = GOLDEN["noise/combine"] > 0
    np.testing.assert_array_equal(theirs & first, (combine > 0) & first)
    assert ((combine > 0) != theirs).any()
    np.testing.assert_allclose(loss, GOLDEN["noise/loss"] * 4**2, rtol=1e-6)
