"""The layer on one device: against a loop, with masks, keys, dtypes, and what it refuses."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, balance_loss, probabilities, router_z_loss

G, S, E, M, H = 2, 12, 4, 5, 7


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def make(**options):
    options = {"num_experts": E, "embed": M, "mlp": H, "rngs": nnx.Rngs(0)} | options
    return MoELayer(**options)


@functools.partial(nnx.jit, static_argnames="deterministic")
def run(layer, x, mask=None, *, key=None, deterministic=False):
    return layer(x, mask, key=key, deterministic=deterministic)


@nnx.jit
def value_and_gradients(layer, x):
    def loss(layer, x):
        y, output = layer(x, key=jax.random.key(0))
        return y.sum() + output.balance_loss + output.z_loss, output

    return nnx.value_and_grad(loss, argnums=(0, 1), has_aux=True)(layer, x)


def tokens(seed=1):
    x = jax.random.normal(jax.random.key(seed), (G, S, M))
    return x, jax.random.uniform(jax.random.key(seed + 1), (G, S)) < 0.8


@pytest.mark.parametrize(
    ("dispatch", "second", "masked"),
    [
        ("einsum", "random", True),
        ("einsum", "random", False),
        ("einsum", "always", True),
        ("einsum", "never", True),
        ("gather", "random", True),
        ("gather", "always", False),
    ],
)
def test_like_a_loop_over_tokens(naive, dispatch, second, masked):
    layer = make(dispatch=dispatch, second_expert=second, slots_per_token=1.0)
    x, mask = tokens()
    mask = mask if masked else jnp.ones_like(mask)
    key = jax.random.key(9)
    y, output = run(layer, x, mask if masked else None, key=key)
    logits = jnp.einsum("GSM,ME->GSE", x, layer.router[...])
    p = probabilities(logits)
    uniforms = np.asarray(jax.random.uniform(key, (G, S)))
    routes = naive.route(np.asarray(p), 3, np.asarray(mask), uniforms, second=second)
    wi, wo = np.asarray(layer.wi[...]), np.asarray(layer.wo[...])
    np.testing.assert_allclose(y, naive.layer(np.asarray(x), wi, wo, *routes), atol=1e-5)
    balance = balance_loss(p, p.argmax(-1), mask)
    np.testing.assert_allclose(output.balance_loss, balance, rtol=1e-5)
    np.testing.assert_allclose(output.z_loss, router_z_loss(logits, mask), rtol=1e-5)
    assert output.statistics.load_E.sum() == (routes[1] >= 0).sum()
    assert output.statistics.tokens == mask.sum()


def test_dispatch_kinds_have_the_same_gradients():
    x, mask = tokens()

    def loss(layer, x):
        y, output = layer(x, mask, key=jax.random.key(3))
        return (y**2).sum() + output.balance_loss + output.z_loss

    gradient = nnx.jit(nnx.grad(loss, argnums=(0, 1)))
    gradients = [gradient(make(dispatch=kind), x) for kind in ("einsum", "gather")]
    for a, b in zip(*map(jax.tree.leaves, gradients), strict=True):
        assert jnp.abs(a).max() > 0
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_evaluation_drops_nothing_and_needs_no_key():
    layer = make()
    x = jnp.ones((G, S, M))  # every token wants the same experts
    _, trained = run(layer, x, key=jax.random.key(0))
    assert trained.statistics.dropped_K[0] == G * (S - 6)
    y, evaluated = run(layer, x, deterministic=True)
    np.testing.assert_array_equal(evaluated.statistics.dropped_K, 0)
    np.testing.assert_array_equal(evaluated.statistics.reached_J, [0, 0, G * S])
    np.testing.assert_allclose(y, jnp.broadcast_to(y[0, 0], y.shape), atol=1e-6)


def test_evaluated_token_does_not_depend_on_the_others():
    layer = make()
    x, _ = tokens()
    whole, _ = run(layer, x, deterministic=True)
    alone, _ = run(layer, x[1:, 3:4], deterministic=True)
    np.testing.assert_allclose(alone[0, 0], whole[1, 3], atol=1e-6)


def test_evaluation_settings_can_be_those_of_training():
    layer = make(eval_slots_per_token=2.0, eval_second_expert="random")
    x, mask = tokens()
    trained, _ = run(layer, x, mask, key=jax.random.key(4))
    evaluated, _ = run(layer, x, mask, key=jax.random.key(4), deterministic=True)
    np.testing.assert_array_equal(trained, evaluated)


@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
def test_padding_reaches_nothing(dispatch):
    layer = make(dispatch=dispatch)
    x, mask = tokens()

    def loss(layer, x):
        y, output = layer(x, mask, key=jax.random.key(5))
        return (y**2).sum() + output.balance_loss + output.z_loss, (y, output)

    gradient = nnx.jit(nnx.value_and_grad(loss, argnums=(0, 1), has_aux=True))
    zeros = gradient(layer, jnp.where(mask[..., None], x, 0))
    nans = gradient(layer, jnp.where(mask[..., None], x, jnp.nan))
    for a, b in zip(jax.tree.leaves(zeros), jax.tree.leaves(nans), strict=True):
        np.testing.assert_array_equal(a, b)
    (_, (y, _)), (_, dx) = zeros
    np.testing.assert_array_equal(y[~mask], 0)
    np.testing.assert_array_equal(dx[~mask], 0)


def test_key_decides_and_nothing_else():
    layer = make()
    x, mask = tokens()
    y, again, other = (run(layer, x, mask, key=jax.random.key(seed))[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(y, again)
    assert (y != other).any()


def test_router_learns_from_the_task_alone():
    layer = make(second_expert="never")
    x, _ = tokens()
    gradient = nnx.jit(nnx.grad(lambda layer: (layer(x)[0] ** 2).sum()))(layer)
    assert jnp.abs(gradient["router"][...]).max() > 1e-3


def test_bfloat16_experts_behind_a_float32_router():
    x, mask = tokens()
    x = x.astype(jnp.bfloat16)
    half, half_output = run(make(dtype=jnp.bfloat16), x, mask, key=jax.random.key(6))
    full, full_output = run(make(), x, mask, key=jax.random.key(6))
    assert (half.dtype, full.dtype) == (jnp.bfloat16, jnp.float32)
    for a, b in zip(jax.tree.leaves(half_output), jax.tree.leaves(full_output), strict=True):
        assert a.dtype == jnp.float32
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(half.astype(jnp.float32), full, atol=0.05)


def test_parameters_carry_logical_names():
    layer = make(param_dtype=jnp.bfloat16)
    names = {"router": ("embed", "router")}
    names |= {"wi": ("expert", "embed", "mlp"), "wo": ("expert", "mlp", "embed")}
    for name, expected in names.items():
        assert getattr(layer, name).out_sharding == expected
        assert getattr(layer, name)[...].dtype == jnp.bfloat16


def test_initial_kernels_have_the_fan_in_of_one_expert():
    layer = make(num_experts=16, embed=64, mlp=256)
    np.testing.assert_allclose(layer.wi[...].std(), 64**-0.5, rtol=0.02)
    np.testing.assert_allclose(layer.wo[...].std(), 256**-0.5, rtol=0.02)


@pytest.mark.parametrize(
    ("options", "x"),
    [
        ({}, None),
        ({}, jnp.ones((1, 1, M))),
        ({"num_experts": 1}, jnp.ones((G, S, M))),
        ({"num_experts": 64}, jnp.ones((G, S, M))),
        ({}, 1e4 * jnp.ones((G, S, M))),
    ],
    ids=["zero router", "one token", "one expert", "more experts than tokens", "huge logits"],
)
def test_no_nan(options, x):
    layer = make(**options)
    if x is None:
        layer.router[...], x = jnp.zeros_like(layer.router[...]), jnp.ones((G, S, M))
    result = value_and_gradients(layer, x)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(result))


def test_all_wrong_arguments_at_once():
    message = (
        "MoELayer: num_experts is 0; give at least 1; mlp is -1; give at least 1; "
        "slots_per_token is 0.0; give more than 0 (the paper's 2S/E is 2.0); "
        "eval_slots_per_token is -2; give more than 0 (the paper's 2S/E is 2.0); "
        "second_expert is 'rnd'; give one of 'random', 'always', 'never'; "
        "dispatch is 'sort'; give one of 'auto', 'einsum', 'gather', 'sorted'"
    )
    wrong = {"num_experts": 0, "mlp": -1, "slots_per_token": 0.0, "eval_slots_per_token": -2}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(**wrong, second_expert="rnd", dispatch="sort")


@pytest.mark.parametrize(
    ("x", "mask", "message"),
    [
        (jnp.ones((S, M)), None, "MoELayer: x has shape (12, 5); give [groups, tokens, 5]"),
        (jnp.ones((G, S, 4)), None, "MoELayer: x has shape (2, 12, 4); give [groups, tokens, 5]"),
        (
            jnp.ones((G, S, M)),
            jnp.ones((S, G)),
            "MoELayer: mask has shape (12, 2); give (2, 12); "
            "mask is float32; give bool, False for padding",
        ),
    ],
)
def test_wrong_inputs(x, mask, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()(x, mask, key=jax.random.key(0))


def test_training_without_a_key():
    message = (
        "MoELayer: second_expert='random' draws a number per token and needs key=; "
        "pass a key, or second_expert='always' or 'never'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()(jnp.ones((G, S, M)))


@nnx.split_rngs(splits=3)
@nnx.vmap(transform_metadata={nnx.PARTITION_NAME: "layer"})
def create_stack(rngs):
    return make(rngs=rngs)


def apply(layer, x, mask, key):
    y, output = layer(x, mask, key=key)
    return x + y, output


@pytest.fixture(scope="module")
def stacked(one_device):
    """Three layers, their inputs, and what they give one after the other."""
    layers = nnx.jit(create_stack)(nnx.Rngs(0))
    inputs = (*tokens(), jax.random.split(jax.random.key(7), 3))
    graph, state = nnx.split(layers)

    @jax.jit
    def one_after_the_other(state, x, mask, keys):
        losses = []
        for i in range(3):
            layer = nnx.merge(graph, jax.tree.map(lambda leaf, i=i: leaf[i], state))
            x, output = apply(layer, x, mask, keys[i])
            losses.append(output.balance_loss)
        return x, jnp.stack(losses)

    with rules_scope(DEFAULT_RULES, one_device):
        return layers, inputs, one_after_the_other(state, *inputs)


@pytest.mark.parametrize("how", ["nnx.scan", "nnx.scan of nnx.remat", "lax.scan", "checkpoint"])
def test_stacked_layers(stacked, how):
    layers, (x, mask, keys), (expected, losses) = stacked
    assert layers.wi.out_sharding == ("layer", "expert", "embed", "mlp")
    assert layers.router.out_sharding == ("layer", "embed", "router")
    if how.startswith("nnx"):
        body = nnx.remat(apply) if "remat" in how else apply
        scan = nnx.scan(
            body,
            in_axes=(0, nnx.Carry, None, 0),
            out_axes=(nnx.Carry, 0),
            transform_metadata={nnx.PARTITION_NAME: "layer"},
        )
        y, output = nnx.jit(scan)(layers, x, mask, keys)
    else:
        graph, state = nnx.split(layers)

        def step(x, layer_and_key):
            layer, key = layer_and_key
            return apply(nnx.merge(graph, layer), x, mask, key)

        step = jax.checkpoint(step) if how == "checkpoint" else step
        y, output = jax.jit(functools.partial(jax.lax.scan, step))(x, (state, keys))
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(output.balance_loss, losses, rtol=1e-5)
    assert output.statistics.load_E.shape == (3, E)
