"""The layer's options on one device: routers, kinds of experts, jitter, dropless, checks."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import (
    ExpertChoice,
    MoELayer,
    Top2,
    TopK,
    capacity,
    expert_choice,
    probabilities,
    topk,
)

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


@functools.partial(nnx.jit, static_argnames="deterministic")
def gradients(layer, x, mask, key, deterministic=False):
    def loss(layer, x):
        y, output = layer(x, mask, key=key, deterministic=deterministic)
        return (y**2).sum() + output.balance_loss + output.z_loss

    return nnx.grad(loss, argnums=(0, 1))(layer, x)


@nnx.jit
def output_and_gradients(layer, x, mask):
    """Both of one program, which is compiled in half the time of two."""

    def loss(layer, x):
        y, output = layer(x, mask)
        return (y**2).sum() + output.balance_loss + output.z_loss, y

    gradients, y = nnx.grad(loss, argnums=(0, 1), has_aux=True)(layer, x)
    return y, gradients


@nnx.jit
def value_and_gradients(layer, x):
    def loss(layer, x):
        y, output = layer(x)
        return y.sum() + output.balance_loss + output.z_loss, output

    return nnx.value_and_grad(loss, argnums=(0, 1), has_aux=True)(layer, x)


def tokens(seed=1):
    x = jax.random.normal(jax.random.key(seed), (G, S, M))
    return x, jax.random.uniform(jax.random.key(seed + 1), (G, S)) < 0.8


def logits_of(layer, x):
    return jnp.einsum("GSM,ME->GSE", x, layer.router[...])


def naive_expert(layer, e, x_M):
    """One token through one expert, by the layer's own parameters."""
    a = x_M @ layer.wi[e] + (layer.bi[e] if layer.use_bias else 0)
    if layer.gated:
        gate = x_M @ layer.gate[e] + (layer.bg[e] if layer.use_bias else 0)
        h = np.asarray(layer.activation(gate)) * a
    else:
        h = np.asarray(layer.activation(a))
    return h @ layer.wo[e] + (layer.bo[e] if layer.use_bias else 0)


@pytest.mark.parametrize("dispatch", ["einsum", "gather", "sorted"])
@pytest.mark.parametrize(
    "router", [TopK(1), TopK(3), TopK(2, "choose_then_softmax")], ids=["1", "3", "Mixtral"]
)
def test_topk_like_a_loop_over_tokens(router, dispatch):
    slots_per_token = None if dispatch == "sorted" else router.k / 2
    layer = make(router=router, dispatch=dispatch, slots_per_token=slots_per_token)
    x, mask = tokens()
    y, output = run(layer, x, mask)
    slots = capacity(S, E, slots_per_token=slots_per_token)
    options = {"k": router.k, "weights": router.weights, "mask_GS": mask}
    routing = topk(logits_of(layer, x), capacity=slots, **options)
    expected = np.zeros((G, S, M), np.float32)
    for g, s, k in np.argwhere(routing.kept_GSK):
        e = int(routing.expert_GSK[g, s, k])
        expected[g, s] += routing.weight_GSK[g, s, k] * naive_expert(layer, e, x[g, s])
    np.testing.assert_allclose(y, expected, atol=1e-5)
    assert output.statistics.load_E.sum() == routing.kept_GSK.sum()
    assert output.statistics.chosen_K.shape == (router.k,)


@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
def test_expert_choice_like_a_loop_over_experts(dispatch):
    layer = make(router=ExpertChoice(), causal=False, dispatch=dispatch)
    x, mask = tokens()
    y, output = run(layer, x, mask)
    routing = expert_choice(logits_of(layer, x), capacity=6, mask_GS=mask)
    expected = np.zeros((G, S, M), np.float32)
    for g, e, c in np.argwhere(routing.kept_GEC):
        s = routing.token_GEC[g, e, c]
        expected[g, s] += routing.weight_GEC[g, e, c] * naive_expert(layer, int(e), x[g, s])
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_array_equal(output.statistics.load_E, [2 * 6] * E)
    assert output.balance_loss == 1


@pytest.mark.parametrize("router", [TopK(1), ExpertChoice()], ids=["one choice", "expert choice"])
def test_router_learns_from_the_task_alone(router):
    layer = make(router=router, causal=False)
    x, _ = tokens()
    gradient = nnx.jit(nnx.grad(lambda layer: (layer(x)[0] ** 2).sum()))(layer)
    assert jnp.abs(gradient["router"][...]).max() > 1e-3


LOWERINGS = [
    ("gather", "batched"),
    ("gather", "one_by_one"),
    ("sorted", "auto"),
    ("einsum", "auto"),
]
EXPERTS = LOWERINGS[:3]


@pytest.mark.parametrize(
    ("gated", "use_bias", "activation", "lowerings"),
    [
        (False, False, jax.nn.relu, LOWERINGS),
        (True, True, jax.nn.gelu, LOWERINGS),
        # How tokens reach the experts has no part in what these compute: without the einsums.
        pytest.param(False, True, jax.nn.relu, EXPERTS, marks=pytest.mark.slow),
        pytest.param(False, False, jax.nn.gelu, EXPERTS, marks=pytest.mark.slow),
        pytest.param(True, False, jax.nn.relu, EXPERTS, marks=pytest.mark.slow),
    ],
    ids=["relu", "gated gelu with biases", "relu with biases", "gelu", "gated relu"],
)
def test_experts_like_a_loop_in_every_lowering(gated, use_bias, activation, lowerings):
    x, mask = tokens()
    results = []
    for dispatch, experts in lowerings:
        layer = make(
            router=TopK(2),
            gated=gated,
            use_bias=use_bias,
            activation=activation,
            dispatch=dispatch,
            experts=experts,
            slots_per_token=None,
        )
        for name in ("bi", "bo", "bg") if use_bias else ():
            if hasattr(layer, name):
                shape = getattr(layer, name).shape
                getattr(layer, name)[...] = jax.random.normal(jax.random.key(7), shape)
        results.append(output_and_gradients(layer, x, mask))
    routing = topk(logits_of(layer, x), k=2, capacity=S, mask_GS=mask)
    expected = np.zeros((G, S, M), np.float32)
    for g, s, k in np.argwhere(routing.kept_GSK):
        e = int(routing.expert_GSK[g, s, k])
        expected[g, s] += routing.weight_GSK[g, s, k] * naive_expert(layer, e, x[g, s])
    np.testing.assert_allclose(results[0][0], expected, atol=1e-5)
    for other in results[1:]:
        for a, b in zip(*map(jax.tree.leaves, (other, results[0])), strict=True):
            assert jnp.abs(b).max() > 0
            np.testing.assert_allclose(a, b, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("options", [{"dispatch": "sorted"}, {"experts": "one_by_one"}])
def test_bfloat16_experts_behind_a_float32_router(options):
    x, mask = tokens()
    x = x.astype(jnp.bfloat16)
    options |= {"router": TopK(2), "gated": True, "slots_per_token": None}
    half, half_output = run(make(dtype=jnp.bfloat16, **options), x, mask)
    full, full_output = run(make(**options), x, mask)
    assert (half.dtype, full.dtype) == (jnp.bfloat16, jnp.float32)
    for a, b in zip(*map(jax.tree.leaves, (half_output, full_output)), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(half.astype(jnp.float32), full, atol=0.05)
    for gradient in jax.tree.leaves(gradients(make(dtype=jnp.bfloat16, **options), x, mask, None)):
        assert jnp.isfinite(gradient.astype(jnp.float32)).all()


def test_parameters_of_gated_experts_with_biases_carry_logical_names():
    layer = make(gated=True, use_bias=True)
    names = {"gate": ("expert", "embed", "mlp"), "bi": ("expert", "mlp")}
    names |= {"bo": ("expert", "embed"), "bg": ("expert", "mlp")}
    for name, expected in names.items():
        assert getattr(layer, name).out_sharding == expected
    assert not hasattr(make(), "gate")
    assert not hasattr(make(use_bias=True), "bg")


def test_a_router_object_is_the_three_arguments():
    x, mask = tokens()
    key = jax.random.key(3)
    one, _ = run(make(second_expert="random", burn_slots=True), x, mask, key=key)
    other, _ = run(make(router=Top2("random", burn_slots=True)), x, mask, key=key)
    np.testing.assert_array_equal(one, other)


def test_jitter_moves_training_only_and_leaves_the_coin_alone():
    x, mask = tokens()
    key = jax.random.key(5)
    plain, jittered = make(), make(jitter=0.3)
    y, output = run(plain, x, mask, key=key)
    z, other = run(jittered, x, mask, key=key)
    assert (y != z).any()
    assert output.z_loss != other.z_loss
    almost, _ = run(make(jitter=1e-7), x, mask, key=key)
    np.testing.assert_allclose(almost, y, atol=1e-5)
    for a, b in zip(
        jax.tree.leaves(run(plain, x, mask, deterministic=True)),
        jax.tree.leaves(run(jittered, x, mask, deterministic=True)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    message = "MoELayer: jitter=0.3 draws numbers and needs key=; pass a key"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(jitter=0.3, second_expert="always")(x, mask)


def test_evaluation_sorts_where_slots_do_not_fit_and_says_that_it_is_batch_independent():
    x, mask = tokens()
    slots, rows = make(), make(eval_padded_slots=E * S - 1)
    expected, output = run(slots, x, mask, deterministic=True)
    y, other = run(rows, x, mask, deterministic=True)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    for a, b in zip(*map(jax.tree.leaves, (output, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert output.batch_independent
    assert other.batch_independent
    alone, _ = run(rows, x[1:, 3:4], deterministic=True)
    whole, _ = run(rows, x, deterministic=True)
    np.testing.assert_allclose(alone[0, 0], whole[1, 3], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "deterministic", "independent"),
    [
        ({}, False, False),  # a limit, and a coin
        ({"eval_slots_per_token": 2.0}, True, False),
        ({"eval_second_expert": "random"}, True, False),
        ({"slots_per_token": None, "second_expert": "always"}, False, True),
        ({"dispatch": "sorted", "router": TopK(3)}, False, True),
        ({"dispatch": "sorted", "router": TopK(3), "slots_per_token": 1.0}, False, False),
        ({"router": ExpertChoice(), "causal": False}, True, False),
    ],
)
def test_what_is_called_batch_independent(options, deterministic, independent):
    _, output = run(
        make(**options), jnp.ones((G, S, M)), key=jax.random.key(0), deterministic=deterministic
    )
    assert output.batch_independent is independent


def test_a_full_buffer_is_counted():
    layer = make(router=TopK(2), dispatch="sorted", slots_per_token=0.5)
    # 200 tokens want the same two experts, and there are rows for 100.
    _, output = run(layer, jnp.ones((1, 200, M)))
    stats = output.statistics
    np.testing.assert_array_equal(stats.chosen_K, [200, 200])
    np.testing.assert_array_equal(stats.dropped_K, [100, 200])
    assert stats.load_E.sum() == (stats.chosen_K - stats.dropped_K).sum()


def failure(function, *arguments):
    """What the function says when it fails on the device; None when it does not."""
    try:
        jax.block_until_ready(function(*arguments))
        jax.effects_barrier()
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    return None


def test_nan_logits_name_the_layer():
    layer = make(check_finite=True, name="encoder/experts")
    x, mask = tokens()
    forward = jax.jit(lambda x: layer(x, mask, key=jax.random.key(0), layer_index=3)[0])
    assert failure(forward, x) is None
    assert failure(forward, jnp.where(mask[..., None], x, jnp.nan)) is None
    assert mask[1, 2]
    message = (
        "FloatingPointError: encoder/experts: layer 3: 4 of 96 router logits are NaN or infinite; "
        "look at what comes into this layer and at its router's weights"
    )
    assert message in str(failure(forward, x.at[1, 2, 0].set(jnp.nan)))
    run(make(), x.at[1, 2, 0].set(jnp.nan), mask, key=jax.random.key(0))


def test_nan_logits_are_found_through_scan_remat_and_grad():
    layer = make(check_finite=True, second_expert="always")
    graph, state = nnx.split(layer)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf.at[0].set(jnp.nan), leaf]), state)

    def loss(stacked, x):
        def step(x, each):
            state, index = each
            y, _ = nnx.merge(graph, state)(x, layer_index=index)
            return x + y, None

        x, _ = jax.lax.scan(jax.checkpoint(step), x, (stacked, jnp.arange(3)))
        return x.sum()

    message = "MoELayer: layer 1: 96 of 96 router logits are NaN"
    assert message in str(failure(jax.jit(jax.grad(loss)), stacked, tokens()[0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"router": TopK(5)},
            "MoELayer: k is 5 of 4 experts; give 1 to 4",
        ),
        (
            {"capacity_factor": 1.0, "name": "block_3"},
            "block_3: capacity_factor is 1, which in DeepSpeed, MaxText, Megatron-Core, Tutel, "
            "vmoe is slots_per_token=2 and in flaxformer, lingvo, praxis slots_per_token=1; "
            "give slots_per_token",
        ),
        (
            {"router": TopK(2), "second_expert": "always", "jitter": 1.5},
            "MoELayer: second_expert, eval_second_expert and burn_slots are those of Top2, and "
            "router is TopK(k=2, weights='softmax_then_choose'); give them to it, as "
            "router=Top2(...); jitter is 1.5; give 0 to 1, such as 0.01",
        ),
        (
            {"router": ExpertChoice(choices=5)},
            "MoELayer: choices is 5; give more than 0 and at most 4; router ExpertChoice looks at "
            "later tokens; say causal=False (an encoder) or take Top2 or TopK",
        ),
        (
            {"router": ExpertChoice(), "causal": True},
            "MoELayer: router ExpertChoice looks at later tokens, which a decoder (causal=True) "
            "does not have yet; take Top2 or TopK",
        ),
        (
            {"router": ExpertChoice(), "causal": False, "dispatch": "sorted"},
            "MoELayer: router ExpertChoice looks at later tokens and fills every slot; "
            "give dispatch 'einsum', 'gather' or 'auto'",
        ),
        (
            {"experts": "loop"},
            "MoELayer: experts is 'loop'; give one of 'auto', 'batched', 'one_by_one'",
        ),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"router": TopK(1)},
        {"router": TopK(1), "dispatch": "sorted"},
        {"router": ExpertChoice(choices=1), "causal": False},
        {"second_expert": "always", "dispatch": "sorted", "gated": True},
    ],
    ids=["top-1", "top-1 rows", "expert choice", "top-2 rows"],
)
@pytest.mark.parametrize(
    ("sizes", "x"),
    [
        ({}, None),
        ({}, jnp.ones((1, 1, M))),
        pytest.param({"num_experts": 1}, jnp.ones((G, S, M)), marks=pytest.mark.slow),
        pytest.param({"num_experts": 64}, jnp.ones((G, S, M)), marks=pytest.mark.slow),
        pytest.param({}, 1e4 * jnp.ones((G, S, M)), marks=pytest.mark.slow),
    ],
    ids=["zero router", "one token", "one expert", "more experts than tokens", "huge logits"],
)
def test_no_nan(options, sizes, x):
    layer = make(**options, **sizes)
    if x is None:
        layer.router[...], x = jnp.zeros_like(layer.router[...]), jnp.ones((G, S, M))
    result = value_and_gradients(layer, x)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(result))


@pytest.mark.parametrize("options", [{"router": TopK(2)}, {"dispatch": "sorted", "gated": True}])
def test_padding_reaches_nothing(options):
    layer = make(second_expert="random" if "router" in options else "always", **options)
    x, mask = tokens()
    outs = []
    for padding in (0.0, jnp.nan):
        padded = jnp.where(mask[..., None], x, padding)
        outs.append((run(layer, padded, mask), gradients(layer, padded, mask, None)))
    for a, b in zip(*map(jax.tree.leaves, outs), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(outs[0][0][0][~mask], 0)


@pytest.mark.parametrize("router", [TopK(3), ExpertChoice()], ids=["top-3", "expert choice"])
def test_permuted_groups_give_permuted_results(router):
    layer = make(router=router, causal=False, slots_per_token=1.0)
    x = jax.random.normal(jax.random.key(1), (3, S, M))
    order = jnp.array([2, 0, 1])
    np.testing.assert_array_equal(run(layer, x[order])[0], run(layer, x)[0][order])


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_and_weights_agree(seed):
    layer = make(router=TopK(E), slots_per_token=None)
    x, _ = tokens(seed)
    weights = topk(logits_of(layer, x), k=E, capacity=S).weight_GSK
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    p = probabilities(logits_of(layer, x))
    np.testing.assert_allclose(jnp.sort(weights, -1), jnp.sort(p, -1), rtol=1e-5)
