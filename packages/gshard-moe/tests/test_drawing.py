"""One key for all groups, or one for each."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, top2
from gshard_moe.drawing import draw, fold_in

G, S, E, M, H = 3, 16, 4, 5, 7


@pytest.fixture(autouse=True, scope="module")
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def keys_of(seed: int, legacy: bool = False) -> jax.Array:
    make = jax.random.PRNGKey if legacy else jax.random.key
    return jax.random.split(make(seed), G)


@pytest.fixture(scope="module")
def layer() -> MoELayer:
    return MoELayer(E, M, H, slots_per_token=2.0, jitter=0.1, rngs=nnx.Rngs(0))


@pytest.fixture(scope="module")
def x_GSM() -> jax.Array:
    return jax.random.normal(jax.random.key(1), (G, S, M))


@nnx.jit
def run(layer, x, key):
    return layer(x, key=key)


def test_one_key_draws_what_jax_draws():
    key, shape = jax.random.key(3), (G, S)
    np.testing.assert_array_equal(
        draw(jax.random.uniform, key, shape), jax.random.uniform(key, shape)
    )
    assert fold_in(key, 1) == jax.random.fold_in(key, 1)


@pytest.mark.parametrize("legacy", [False, True])
def test_with_a_key_each_a_group_gets_what_it_gets_alone(layer, x_GSM, legacy):
    keys = keys_of(2, legacy)
    together, output = run(layer, x_GSM, keys)
    alone = [run(layer, x_GSM[g : g + 1], keys[g]) for g in range(G)]
    np.testing.assert_array_equal(together, jnp.concatenate([y for y, _ in alone]))
    loads = [output.statistics.load_E for _, output in alone]
    np.testing.assert_array_equal(output.statistics.load_E, sum(loads))


def test_a_group_s_draws_do_not_depend_on_which_groups_are_with_it(layer, x_GSM):
    keys = keys_of(4)
    order = jnp.array([2, 0, 1])
    np.testing.assert_allclose(
        run(layer, x_GSM[order], keys[order])[0], run(layer, x_GSM, keys)[0][order], atol=1e-6
    )


def test_keys_of_another_number_of_groups_are_refused(layer, x_GSM):
    given = "key has shape (2,); give one key, or one for each group (3,)"
    with pytest.raises(ValueError, match=re.escape(f"MoELayer: {given}")):
        layer(x_GSM, key=keys_of(0)[:2])
    with pytest.raises(ValueError, match=re.escape(f"top2: {given}")):
        top2(jnp.zeros((G, S, E)), capacity=3, key=keys_of(0)[:2])
    with pytest.raises(ValueError, match=re.escape("MoELayer: key is 7; give jax.random.key")):
        layer(x_GSM, key=7)
