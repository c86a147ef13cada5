import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from gshard_annotate import DEFAULT_RULES, make_mesh, rules_scope
from gshard_train.models.context import Context, LayerKeys

ROWS, GROUPS, PAIRS = 4, 3, 2
CONTEXT = Context(
    mask_BL=jnp.ones((ROWS, 5), bool),
    row_B=10 + jnp.arange(ROWS),
    group_G=20 + jnp.arange(GROUPS),
    key=jax.random.key(7),
)


def test_keys_of_all_layers_are_those_of_each_folded_by_itself():
    one_device = make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])
    with rules_scope(DEFAULT_RULES, one_device):
        keys = CONTEXT.layer_keys(jnp.arange(5, 5 + PAIRS))
    assert keys is not None
    for pair in range(PAIRS):
        of_pair = LayerKeys(*(each[pair] for each in keys))
        at_once = dataclasses.replace(CONTEXT, key=None, keys=of_pair)
        for layer in (0, 1):
            of_layer, alone = at_once.of_layer(layer), CONTEXT.fold(5 + pair).of_layer(layer)
            assert not of_layer.evaluating
            assert_same(of_layer.group_keys(), alone.group_keys())
            assert_same(of_layer.row_keys(1 + layer), alone.row_keys(1 + layer))
            assert_same(of_layer.row_keys(5), alone.row_keys(5))


def test_evaluating_has_no_keys():
    context = dataclasses.replace(CONTEXT, key=None)
    assert context.layer_keys(jnp.arange(PAIRS)) is None
    assert context.of_layer(1).evaluating
    assert context.row_keys(1) is None
    assert context.group_keys() is None


def assert_same(one: jax.Array | None, other: jax.Array | None) -> None:
    assert one is not None
    assert other is not None
    assert one.shape == other.shape
    np.testing.assert_array_equal(jax.random.key_data(one), jax.random.key_data(other))
