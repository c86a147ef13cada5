"""The tree of parameters that converters and upcycling work on is the one that layers have."""

import itertools

import jax.numpy as jnp
import pytest
from flax import nnx

from gshard_moe import MoELayer
from gshard_moe.parameters import AXES, arrays_of, parameter_faults

SIZES = {"E": 4, "M": 5, "H": 7}


@pytest.mark.parametrize(("gated", "use_bias"), [*itertools.product([False, True], repeat=2)])
def test_it_has_the_names_and_shapes_of_a_layer(gated, use_bias):
    layer = nnx.eval_shape(
        lambda: MoELayer(4, 5, 7, gated=gated, use_bias=use_bias, rngs=nnx.Rngs(0))
    )
    state = nnx.state(layer)
    for name, variable in state.items():
        assert variable.shape == tuple(SIZES[axis] for axis in AXES[name])
    assert parameter_faults(nnx.to_pure_dict(state)) == []
    assert parameter_faults(arrays_of(state), sizes=SIZES, layers=0) == []


def test_leading_axes_are_one_or_none_and_the_same_everywhere():
    tree = {"router": jnp.zeros((3, 5, 4)), "wi": jnp.zeros((3, 4, 5, 7))}
    tree["wo"] = jnp.zeros((2, 4, 7, 5))
    assert parameter_faults(tree) == ["wo has shape (2, 4, 7, 5), needed is (3, 4, 7, 5)"]
    tree["wo"] = jnp.zeros((3, 4, 7, 5))
    assert parameter_faults(tree) == []
    assert parameter_faults(tree, layers=2) == [
        "router has shape (3, 5, 4), needed is (2, 5, 4)",
        "wi has shape (3, 4, 5, 7), needed is (2, 4, 5, 7)",
        "wo has shape (3, 4, 7, 5), needed is (2, 4, 7, 5)",
    ]
    assert len(parameter_faults(tree, layers=0)) == 3
    deeper = {name: array[None] for name, array in tree.items()}
    assert len(parameter_faults(deeper)) == 3
