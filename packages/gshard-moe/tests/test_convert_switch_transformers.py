"""Switch Transformers' blocks: outputs of `transformers` 4.46.3, and where they differ."""

import functools
import json
import pathlib
import re

import jax
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, TopK, topk
from gshard_moe.converters import from_switch_transformers, to_switch_transformers

GOLDEN = np.load(pathlib.Path(__file__).parent / "goldens" / "switch_transformers.npz")
CONFIGS = json.loads(str(GOLDEN["configs"]))
X = GOLDEN["x"]
WEIGHTS = {name[8:]: GOLDEN[name] for name in GOLDEN if name.startswith("weights/")}
B, L, M = X.shape
E, H = 4, 10


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def convert(case, **options):
    return from_switch_transformers(WEIGHTS, CONFIGS[case], group_size=L, **options)


@nnx.jit(static_argnames="deterministic")
def run(layer, x, *, deterministic):
    return layer(x, key=jax.random.key(0), deterministic=deterministic)


@pytest.mark.parametrize("case", ["evaluation", "gelu_new", "training"])
def test_the_same_outputs(case):
    converted = convert(case)
    assert converted.report.evaluation == ()
    assert converted.report.training == () or case != "training"
    y, output = run(converted.layer(), X, deterministic=case != "training")
    np.testing.assert_allclose(y, GOLDEN[f"{case}/y"], atol=1e-5)
    assert output.statistics.dropped_K.sum() == 0


def test_a_token_of_a_full_expert_comes_back_times_its_probability():
    converted = convert("evaluation drops", accept_differences=True)
    y, output = run(converted.layer(), X, deterministic=True)
    route = jax.jit(functools.partial(topk, k=1, capacity=2))
    dropped = ~np.asarray(route(GOLDEN["evaluation drops/logits"]).kept_GSK)
    assert output.statistics.dropped_K.sum() == dropped.sum() > 0
    p = np.asarray(jax.nn.softmax(GOLDEN["evaluation drops/logits"])).max(-1, keepdims=True)
    theirs = np.where(dropped, p * X, y)
    np.testing.assert_allclose(theirs, GOLDEN["evaluation drops/y"], atol=1e-5)
    assert not np.asarray(y)[dropped[..., 0]].any()


def test_their_jitter_reaches_the_experts():
    seen, logits = GOLDEN["training with jitter/x_after"], GOLDEN["training with jitter/logits"]
    assert np.abs(seen - X).max() > 0.1
    np.testing.assert_allclose(
        logits, seen @ WEIGHTS["router.classifier.weight"].T, rtol=1e-5, atol=1e-5
    )
    y, _ = run(convert("training").layer(), seen, deterministic=False)
    np.testing.assert_allclose(y, GOLDEN["training with jitter/y"], atol=1e-5)


def test_settings_and_report():
    config = {"d_model": M, "d_ff": H, "num_experts": E}
    converted = from_switch_transformers(WEIGHTS, config, group_size=100, accept_differences=True)
    assert converted.settings == {
        "activation": jax.nn.relu,
        "embed": M,
        "eval_slots_per_token": 2.56,  # 64 slots of each of 4 experts for 100 tokens
        "jitter": 0.01,
        "mlp": H,
        "num_experts": E,
        "router": TopK(1),
        "slots_per_token": 2.56,
    }
    assert str(converted.report) == "\n".join(
        [
            "router f32[6,4]      <- router.classifier.weight, transposed",
            "wi f32[4,6,10]       <- experts.expert_{0..3}.wi.weight, each transposed",
            "wo f32[4,10,6]       <- experts.expert_{0..3}.wo.weight, each transposed",
            "evaluation: differs",
            "  - a token that finds its expert full (64 slots for 100 tokens) is returned there, "
            "times its probability; here as 0",
            "training: differs",
            "  - a token that finds its expert full (64 slots for 100 tokens) is returned there, "
            "times its probability; here as 0",
            "  - router_jitter_noise=0.01 reaches what experts see too; here the router's input "
            "alone",
            "  - dropout_rate=0.1: here is no dropout",
        ]
    )


def test_there_and_back():
    prefixes = ["encoder.block.1.layer.1.mlp.", "encoder.block.3.layer.1.mlp."]
    tensors = {prefixes[0] + name: tensor for name, tensor in WEIGHTS.items()}
    tensors |= {prefixes[1] + name: tensor + 1 for name, tensor in WEIGHTS.items()}
    options = {"group_size": L, "prefix": prefixes}
    converted = from_switch_transformers(tensors, CONFIGS["evaluation"], **options)
    back = to_switch_transformers(converted.parameters, CONFIGS["evaluation"], prefix=prefixes)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(back[name], tensor)
    one = {name: array[1] for name, array in converted.parameters.items()}
    back = to_switch_transformers(one, CONFIGS["evaluation"])
    np.testing.assert_array_equal(
        back["experts.expert_3.wo.weight"], WEIGHTS["experts.expert_3.wo.weight"] + 1
    )


def test_a_sequence_of_one_prefix_stacks_one_layer_there_and_back():
    tensors = {"a." + name: tensor for name, tensor in WEIGHTS.items()}
    config, options = CONFIGS["evaluation"], {"group_size": L, "prefix": ["a."]}
    converted = from_switch_transformers(tensors, config, **options)
    assert converted.parameters["wi"].shape == (1, E, M, H)
    assert converted.layer().wi.out_sharding == ("layer", "expert", "embed", "mlp")
    back = to_switch_transformers(converted.parameters, config, prefix=["a."])
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(back[name], tensor)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"d_model": M}, {}, "config has no d_ff, num_experts; give them as config.json does"),
        (
            {"d_model": M, "d_ff": H, "num_experts": E, "expert_capacity": None},
            {"group_size": -5, "prefix": []},
            "prefix is []; give one for each layer; group_size is -5; give a whole number of "
            "tokens, 1 or more; expert_capacity is None; give a whole number, 1 or more",
        ),
    ],
)
def test_sizes_that_are_none_are_refused_alone(config, options, message):
    options = {"group_size": L} | options
    with pytest.raises(ValueError, match=f"^{re.escape(f'from_switch_transformers: {message}')}$"):
        from_switch_transformers(WEIGHTS, config, **options)


def test_what_does_not_fit_is_refused():
    message = (
        "from_switch_transformers: evaluation would differ: expert_capacity=64 drops tokens of "
        "longer sequences, here nothing drops; give group_size for the same slots; or let that be "
        "with accept_differences=True"
    )
    config = {"d_model": M, "d_ff": H, "num_experts": E}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_switch_transformers(WEIGHTS, config)
    message = (
        "from_switch_transformers: missing experts.expert_4.wi.weight, "
        "experts.expert_4.wo.weight; router.classifier.weight has shape (4, 6), needed is (5, 6)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_switch_transformers(WEIGHTS, config | {"num_experts": 5}, group_size=L)
    gated = MoELayer(E, M, H, gated=True, use_bias=True, rngs=nnx.Rngs(0))
    message = "to_switch_transformers: surplus bg, bi, bo, gate"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        to_switch_transformers(nnx.state(gated), config)
