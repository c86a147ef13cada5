"""A dense block to experts: when the layer computes what the block did, and what otherwise."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, Top2, TopK, capacity, probabilities
from gshard_moe.upcycling import add_noise, upcycle

G, S, E, M, H = 2, 12, 4, 5, 7
KEY = jax.random.key(0)
SHAPES = {"wi": (M, H), "wo": (H, M), "gate": (M, H), "bi": (H,), "bo": (M,), "bg": (H,)}
NAMES = {
    "plain": ("wi", "wo"),
    "biased": ("wi", "wo", "bi", "bo"),
    "gated": ("wi", "wo", "gate"),
    "gated, biased": tuple(SHAPES),
}


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def dense_block(names=("wi", "wo", "bi", "bo"), layers=()):
    draw = np.random.default_rng(1).standard_normal
    return {name: jnp.asarray(draw((*layers, *SHAPES[name]), np.float32)) for name in names}


@jax.jit
def dense_output(dense, x):
    hidden = x @ dense["wi"] + dense.get("bi", 0)
    if "gate" in dense:
        hidden = jax.nn.relu(x @ dense["gate"] + dense.get("bg", 0)) * hidden
    else:
        hidden = jax.nn.relu(hidden)
    return hidden @ dense["wo"] + dense.get("bo", 0)


def layer_of(parameters, router, **options):
    gated, use_bias = "gate" in parameters, "bi" in parameters
    layer = MoELayer(
        E, M, H, router=router, gated=gated, use_bias=use_bias, rngs=nnx.Rngs(0), **options
    )
    nnx.update(layer, parameters)
    return layer


@nnx.jit(static_argnames="deterministic")
def run(layer, x, *, deterministic=False):
    return layer(x, key=jax.random.key(3), deterministic=deterministic)[0]


def tokens():
    return jax.random.normal(jax.random.key(2), (G, S, M))


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_weights_that_sum_to_one_give_the_dense_output(names):
    dense, x = dense_block(names), tokens()
    layer = layer_of(upcycle(dense, E, key=KEY), Top2("always"), slots_per_token=None)
    np.testing.assert_allclose(run(layer, x), dense_output(dense, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("router", [TopK(3, "choose_then_softmax"), Top2("random")], ids=str)
def test_and_so_at_evaluation(router):
    dense, x = dense_block(), tokens()
    layer = layer_of(upcycle(dense, E, key=KEY, router_std=1.0), router)
    y = run(layer, x, deterministic=True)
    np.testing.assert_allclose(y, dense_output(dense, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("router", [Top2("random"), Top2("never"), TopK(1), TopK(3)], ids=str)
def test_else_it_is_the_dense_output_times_the_sum_of_the_weights(router):
    dense, x = dense_block(), tokens()
    layer = layer_of(upcycle(dense, E, key=KEY, router_std=1.0), router, slots_per_token=1.0)

    @jax.jit
    def route(logits):
        slots = capacity(S, E, slots_per_token=1.0)
        options = {"mask_GS": None, "key": jax.random.key(3), "deterministic": False}
        return router.route(logits, capacity=slots, **options).weight_GSK.sum(-1)

    total = route(jnp.einsum("GSM,ME->GSE", x, layer.router[...], precision="highest"))
    assert total.min() == 0  # a token that was dropped
    expected = dense_output(dense, x) * total[..., None]
    np.testing.assert_allclose(run(layer, x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("router", "scale"), [(TopK(1), E), (TopK(2), E / 2), (Top2("never"), 2)], ids=str
)
def test_a_scale_makes_up_for_weights_that_are_nearly_equal(router, scale):
    dense, x = dense_block(), tokens()
    for router_std, tolerance in ((0.0, 1e-5), (1e-4, 1e-2)):
        options = {"router_std": router_std, "output_scale": scale}
        layer = layer_of(upcycle(dense, E, key=KEY, **options), router, slots_per_token=None)
        np.testing.assert_allclose(run(layer, x), dense_output(dense, x), rtol=tolerance, atol=1e-5)


def test_the_router_is_drawn_with_the_papers_deviation():
    dense = {"wi": jnp.zeros((200, 3)), "wo": jnp.zeros((3, 200))}
    router = upcycle(dense, 50, key=KEY)["router"]
    assert router.shape == (200, 50)
    np.testing.assert_allclose(router.std(), 0.02, rtol=0.02)
    p = probabilities(jnp.ones((1, 1, 200)) @ router)
    assert p.max() < 3 / 50


def test_noise_parts_the_experts_and_leaves_biases():
    dense = dense_block(tuple(SHAPES)) | {"wi": jnp.full((M, H), 2.0)}
    alike, noisy = upcycle(dense, E, key=KEY), upcycle(dense, E, key=KEY, noise=0.3)
    for name in ("wo", "gate"):
        difference = noisy[name] - alike[name]
        np.testing.assert_allclose(difference.std(), 0.3 * dense[name].std(), rtol=0.2)
        assert np.unique(np.asarray(difference).round(4), axis=0).shape[0] == E
    for name in ("wi", "bi", "bo", "bg", "router"):  # a constant matrix has no deviation
        np.testing.assert_array_equal(noisy[name], alike[name])


def test_noise_on_the_router_alone():
    parameters = upcycle(dense_block(), E, key=KEY)
    noisy = add_noise(nnx.state(layer_of(parameters, TopK(1))), KEY, router_noise=0.5)
    assert isinstance(noisy, nnx.State)
    assert noisy["wi"].out_sharding == ("expert", "embed", "mlp")
    assert noisy.keys() == parameters.keys()
    assert (np.asarray(noisy["router"][...]) != np.asarray(parameters["router"])).all()
    np.testing.assert_array_equal(noisy["wi"][...], parameters["wi"])


def test_noise_that_cannot_be_added():
    message = (
        "add_noise: surplus scale; a layer has router, wi, wo, gate, bi, bo, bg; "
        "noise is -1; give 0 or more"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        add_noise({"wi": jnp.ones((2, 3, 4)), "scale": jnp.ones(3)}, KEY, noise=-1)


def test_a_number_of_experts_that_is_not_whole_leaves_the_next_call_alone():
    message = "upcycle: num_experts is 3.0; give a whole number"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        upcycle(dense_block(), 3.0, key=KEY)  # pyright: ignore[reportArgumentType]
    assert upcycle(dense_block(), 3, key=KEY)["wi"].shape == (3, M, H)


def test_stacked_layers_are_upcycled_each_by_itself():
    dense = dense_block(tuple(SHAPES), layers=(3,))
    stacked = upcycle(dense, E, key=KEY, output_scale=2.0)
    single = upcycle({name: w[1] for name, w in dense.items()}, E, key=KEY, output_scale=2.0)
    for name, array in single.items():
        assert stacked[name].shape == (3, *array.shape)
        if name != "router":
            np.testing.assert_array_equal(stacked[name][1], array)

    @nnx.split_rngs(splits=3)
    @nnx.vmap(transform_metadata={nnx.PARTITION_NAME: "layer"})
    def create(rngs):
        return MoELayer(E, M, H, gated=True, use_bias=True, rngs=rngs)

    layers = create(nnx.Rngs(0))
    nnx.update(layers, stacked)
    np.testing.assert_array_equal(layers.wo[...], stacked["wo"])
    assert layers.wo.out_sharding == ("layer", "expert", "mlp", "embed")


def test_types_stay():
    dense = {name: array.astype(jnp.bfloat16) for name, array in dense_block().items()}
    parameters = upcycle(dense, E, key=KEY, noise=0.1, output_scale=2.0)
    assert {array.dtype for array in parameters.values()} == {jnp.dtype(jnp.bfloat16)}


def test_what_is_no_dense_block_is_refused():
    message = (
        "upcycle: wo has shape (5, 7), needed is (7, 5); bi has shape (4,), needed is (7,); "
        "num_experts is 0; give at least 1; noise is -1; give 0 or more; "
        "output_scale is 0; give more than 0"
    )
    dense = dense_block() | {"wo": jnp.zeros((M, H)), "bi": jnp.zeros(4)}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        upcycle(dense, 0, key=KEY, noise=-1, output_scale=0)
    message = "upcycle: missing bo, bg; surplus scale"
    dense = dense_block(("wi", "wo", "gate", "bi")) | {"scale": jnp.zeros(M)}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        upcycle(dense, E, key=KEY)
