"""The layer in a Linen model, through Flax's bridge: the same numbers, and shardings as named."""

import functools
import re

import jax
import numpy as np
import pytest
from flax import linen, nnx
from jax.sharding import PartitionSpec

from gshard_annotate import DEFAULT_RULES, expect_collectives, rules_scope
from gshard_moe import MoELayer, TopK

G, S, E, M, H = 16, 6, 8, 5, 7
OPTIONS = {"router": TopK(2), "gated": True, "use_bias": True, "dispatch": "gather"}


class Block(linen.Module):
    """Norm and experts on the residual, as people write it in Linen."""

    @linen.compact
    def __call__(self, x, mask):
        to_linen = nnx.bridge.to_linen
        experts = to_linen(MoELayer, num_experts=E, embed=M, mlp=H, **OPTIONS, name="experts")
        y, output = experts(linen.LayerNorm()(x), mask)
        return x + y, output


def inputs():
    x = jax.random.normal(jax.random.key(1), (G, S, M))
    return x, jax.random.uniform(jax.random.key(2), (G, S)) < 0.8


def test_a_linen_model_gives_the_numbers_of_the_layer(one_device):
    x, mask = inputs()

    @jax.jit
    def init(x, mask):
        with rules_scope(DEFAULT_RULES, one_device):
            return Block().init(jax.random.key(0), x, mask)

    @jax.jit
    def apply(variables, x, mask):
        with rules_scope(DEFAULT_RULES, one_device):
            return Block().apply(variables, x, mask)

    variables = init(x, mask)
    y, output = apply(variables, x, mask)
    layer = MoELayer(E, M, H, **OPTIONS, rngs=nnx.Rngs(0))
    for name, value in linen.unbox(variables["params"]["experts"]).items():
        getattr(layer, name)[...] = value
    with rules_scope(DEFAULT_RULES, one_device):
        norm = linen.LayerNorm().apply({"params": variables["params"]["LayerNorm_0"]}, x)
        expected, expected_output = nnx.jit(lambda layer: layer(norm, mask))(layer)
    np.testing.assert_allclose(y, x + expected, atol=1e-5)
    assert output.statistics.tokens == expected_output.statistics.tokens == mask.sum()


def test_parameters_carry_their_logical_names_into_linen(mesh):
    x, mask = inputs()

    def init():
        with rules_scope(DEFAULT_RULES, mesh):
            return Block().init(jax.random.key(0), x, mask)

    shapes = jax.eval_shape(init)
    specs = linen.get_partition_spec(shapes)["params"]["experts"]
    assert specs["wi"] == specs["gate"] == PartitionSpec("expert", "embed", "mlp")
    assert specs["wo"] == PartitionSpec("expert", "mlp", "embed")
    assert specs["bi"] == specs["bg"] == PartitionSpec("expert", "mlp")
    assert specs["bo"] == PartitionSpec("expert", "embed")
    assert specs["router"] == PartitionSpec("embed", "router")

    def sharding(spec):
        return jax.NamedSharding(mesh, DEFAULT_RULES.spec(tuple(spec), mesh=mesh))

    shardings = jax.tree.map(sharding, linen.get_partition_spec(shapes))
    variables = jax.jit(lambda: linen.unbox(init()), out_shardings=shardings)()
    assert variables["params"]["experts"]["wi"].addressable_shards[0].data.shape == (2, M, H)

    @jax.jit
    def apply(variables, x, mask):
        with rules_scope(DEFAULT_RULES, mesh):
            return Block().apply(variables, x, mask)

    groups = sharding(("group",))
    arguments = (variables, *jax.device_put((x, mask), groups))
    expect_collectives(apply.lower(*arguments).compile(), {"all-to-all": 2, "all-gather": 0})


def test_a_name_for_messages_comes_with_the_class(one_device):
    named = functools.partial(MoELayer, name="encoder/experts")
    experts = nnx.bridge.to_linen(named, num_experts=E, embed=M, mlp=H, name="experts")
    message = "encoder/experts: x has shape (2, 3, 4); give [groups, tokens, 5]"
    with rules_scope(DEFAULT_RULES, one_device), pytest.raises(ValueError) as caught:  # noqa: PT011
        experts.init(jax.random.key(0), np.ones((2, 3, 4), np.float32), deterministic=True)
    assert re.match(re.escape(message), str(caught.value))
