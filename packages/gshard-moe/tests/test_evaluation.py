"""Evaluation is the model that was trained."""

import jax
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import ExpertChoice, MoELayer, TopK

G, S, E, M, H = 2, 12, 4, 5, 7


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def make(**options):
    options = {"num_experts": E, "embed": M, "mlp": H, "rngs": nnx.Rngs(0)} | options
    return MoELayer(**options)


def tokens():
    return jax.random.normal(jax.random.key(1), (G, S, M))


@pytest.mark.parametrize("slots_per_token", ["choices", 1.0])
def test_experts_choose_as_many_tokens_at_evaluation_as_in_training(slots_per_token):
    layer = make(router=ExpertChoice(), causal=False, slots_per_token=slots_per_token)
    trained, output = layer(tokens())
    evaluated, other = layer(tokens(), deterministic=True)
    np.testing.assert_array_equal(evaluated, trained)
    np.testing.assert_array_equal(other.statistics.load_E, output.statistics.load_E)
    fewer = make(router=ExpertChoice(), causal=False, eval_slots_per_token=0.5)
    _, output = fewer(tokens(), deterministic=True)
    np.testing.assert_array_equal(output.statistics.load_E, [G * 2] * E)


def test_other_routers_agree_where_nothing_is_dropped():
    layer = make(router=TopK(2), slots_per_token=None)
    np.testing.assert_array_equal(layer(tokens())[0], layer(tokens(), deterministic=True)[0])


@pytest.mark.parametrize(
    ("options", "sorts"),
    [
        ({"router": TopK(1)}, True),
        ({"router": TopK(6)}, False),
        ({"router": TopK(1), "eval_padded_slots": 2**20}, False),
        ({"router": TopK(4), "eval_padded_slots": 16 * 64 - 1}, True),
        ({"router": TopK(1), "dispatch": "gather"}, False),
        ({"router": TopK(1), "eval_slots_per_token": 1.0}, False),
    ],
)
def test_an_evaluation_without_limit_sorts_where_rows_are_few(options, sorts):
    layer = make(num_experts=16, **options)
    x = jax.random.normal(jax.random.key(1), (G, 64, M))
    program = str(jax.make_jaxpr(lambda x: layer(x, deterministic=True)[0])(x))
    assert ("ragged_dot" in program) == sorts
    if "eval_slots_per_token" not in options:
        slots = make(num_experts=16, **{"eval_padded_slots": 2**20} | options)
        expected = slots(x, deterministic=True)[0]
        np.testing.assert_allclose(layer(x, deterministic=True)[0], expected, atol=1e-6)
