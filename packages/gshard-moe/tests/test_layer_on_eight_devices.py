"""The layer on a mesh of eight: the numbers of one device, and the collectives of the program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import (
    DEFAULT_RULES,
    collectives,
    expect_collectives,
    make_mesh,
    rules_scope,
    tree_shardings,
)
from gshard_moe import MoELayer

G, S, E, M, H = 16, 24, 8, 6, 10
NAMES = {"router": ("embed", "router")}
NAMES |= {"wi": ("expert", "embed", "mlp"), "wo": ("expert", "mlp", "embed")}
ONE_EXCHANGE_EACH_WAY = {"all-gather": 0, "collective-permute": 0, "reduce-scatter": 0}


@functools.cache
def programs(mesh, dispatch):
    """The layer, its gradient, and arguments, on this mesh: each is compiled once."""
    layer = MoELayer(E, M, H, slots_per_token=1.5, dispatch=dispatch, rngs=nnx.Rngs(0))
    graph, params = nnx.split(layer)

    def forward(params, x, mask, key):
        with rules_scope(DEFAULT_RULES, mesh):
            return nnx.merge(graph, params)(x, mask, key=key)

    def loss(params, x, mask, key):
        y, output = forward(params, x, mask, key)
        return jnp.sin(y).sum() + output.balance_loss + output.z_loss, (y, output)

    shapes = {name: params[name][...] for name in NAMES}
    shardings = tree_shardings(NAMES, shapes, DEFAULT_RULES, mesh)
    for name in NAMES:
        params[name][...] = jax.device_put(shapes[name], shardings[name])
    groups = jax.NamedSharding(mesh, DEFAULT_RULES.spec(("group",), mesh=mesh))
    x = jax.device_put(jax.random.normal(jax.random.key(1), (G, S, M)), groups)
    mask = jax.device_put(jax.random.uniform(jax.random.key(2), (G, S)) < 0.8, groups)
    gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    return jax.jit(forward), jax.jit(gradient), (params, x, mask, jax.random.key(3))


@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
@pytest.mark.parametrize(
    "axes",
    [
        {"data": 2, "expert": 4},
        pytest.param({"data": 1, "expert": 8}, marks=pytest.mark.slow),
        pytest.param({"data": 2, "expert": 2, "model": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_eight_devices_give_the_numbers_of_one(one_device, axes, dispatch):
    _, one, arguments = programs(one_device, dispatch)
    expected = one(*arguments)
    _, eight, arguments = programs(make_mesh(axes), dispatch)
    for a, b in zip(*map(jax.tree.leaves, (eight(*arguments), expected)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
def test_two_all_to_alls_forward_and_two_backward(mesh, dispatch):
    forward, gradient, arguments = programs(mesh, dispatch)
    compiled = forward.lower(*arguments).compile()
    expect_collectives(compiled, ONE_EXCHANGE_EACH_WAY | {"all-to-all": 2})
    compiled = gradient.lower(*arguments).compile()
    found = expect_collectives(compiled, ONE_EXCHANGE_EACH_WAY | {"all-to-all": 4})
    # All slots of all groups go round, an eighth of them on each device.
    sizes = {one.bytes for one in found if one.kind == "all-to-all"}
    assert sizes == {E * G * 5 * M * 4 // 8}


@pytest.mark.parametrize(
    ("policy", "exchanges"),
    [
        (None, 6),  # both forward exchanges of the layer are done again
        (jax.checkpoint_policies.save_only_these_names("moe_dispatch", "moe_combine"), 4),
    ],
    ids=["everything again", "exchanged tokens saved"],
)
def test_exchanges_of_rematerialised_stacked_layers(mesh, policy, exchanges):
    @nnx.split_rngs(splits=3)
    @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: "layer"})
    def create(rngs):
        return MoELayer(E, M, H, rngs=rngs)

    graph, state = nnx.split(create(nnx.Rngs(0)))
    names = {name: ("layer", *axes) for name, axes in NAMES.items()}
    shapes = {name: state[name][...] for name in names}
    shardings = tree_shardings(names, shapes, DEFAULT_RULES, mesh)
    for name in names:
        state[name][...] = jax.device_put(shapes[name], shardings[name])

    def loss(state, x, keys):
        def step(x, layer_and_key):
            layer, key = layer_and_key
            y, output = nnx.merge(graph, layer)(x, key=key)
            return x + y, output

        with rules_scope(DEFAULT_RULES, mesh):
            y, output = jax.lax.scan(jax.checkpoint(step, policy=policy), x, (state, keys))
        return (y**2).sum() + output.balance_loss.sum()

    groups = jax.NamedSharding(mesh, DEFAULT_RULES.spec(("group",), mesh=mesh))
    x = jax.device_put(jnp.ones((G, S, M)), groups)
    keys = jax.random.split(jax.random.key(0), 3)
    compiled = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(state, x, keys).compile()
    expect_collectives(compiled, ONE_EXCHANGE_EACH_WAY | {"all-to-all": exchanges})


def test_statistics_cost_no_collective_of_their_own(mesh):
    forward, _, arguments = programs(mesh, "gather")
    sums = [one for one in collectives(forward.lower(*arguments).compile()) if "reduce" in one.kind]
    assert len(sums) == 1


def test_groups_that_devices_do_not_divide(mesh):
    layer = MoELayer(E, M, H, rngs=nnx.Rngs(0))
    with rules_scope(DEFAULT_RULES, mesh), pytest.raises(ValueError) as caught:  # noqa: PT011
        layer(jnp.ones((6, S, M)), key=jax.random.key(0))
    assert str(caught.value) == (
        "annotate: dimension 0 of x f32[6,24,6] cannot be split over mesh axes "
        "('data', 'expert') of size 8 (6 % 8 = 6); "
        "pad it to 8 or use an axis of size 1, 2, 3 or 6"
    )


def test_experts_that_the_expert_axis_does_not_divide(mesh):
    layer = MoELayer(6, M, H, rngs=nnx.Rngs(0))
    with rules_scope(DEFAULT_RULES, mesh), pytest.raises(ValueError) as caught:  # noqa: PT011
        layer(jnp.ones((G, S, M)), key=jax.random.key(0))
    assert str(caught.value) == (
        "annotate: dimension 0 of x f32[6,16,8,6] cannot be split over mesh axis 'expert' of "
        "size 4 (6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6"
    )
