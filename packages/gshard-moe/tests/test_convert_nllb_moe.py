"""NLLB-MoE's blocks: outputs that `transformers` 4.46.3 computed, and where they differ."""

import functools
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, capacity, group, top2, ungroup
from gshard_moe.converters import from_nllb_moe, to_nllb_moe

GOLDEN = np.load(pathlib.Path(__file__).parent / "goldens" / "nllb_moe.npz")
CONFIGS = json.loads(str(GOLDEN["configs"]))
X, MASK = GOLDEN["x"], ~GOLDEN["padding"]
WEIGHTS = {name[8:]: GOLDEN[name] for name in GOLDEN if name.startswith("weights/")}
B, L, M = X.shape
E, H = 4, 10
SAME = [
    "evaluation",
    "evaluation drops",
    "evaluation drops, then normalizes",
    "gelu",
    "padding routed",
    "training",
    "training without a capacity",
]


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def convert(case, **options):
    length = GOLDEN[f"{case}/y"].shape[1]
    return from_nllb_moe(WEIGHTS, CONFIGS[case], group_size=B * length, **options)


@nnx.jit(static_argnames="deterministic")
def run(layer, x, mask, *, deterministic):
    x, mask = group(x, mask, 1)
    y, output = layer(x, mask, key=jax.random.key(0), deterministic=deterministic)
    return ungroup(y, B), output


@pytest.mark.parametrize("case", SAME)
def test_the_same_outputs(case):
    converted, length = convert(case), GOLDEN[f"{case}/y"].shape[1]
    assert converted.report.evaluation == ()
    assert converted.report.training == () or not case.startswith("training")
    mask = None if case == "padding routed" else MASK[:, :length]
    deterministic = not case.startswith("training")
    y, output = run(converted.layer(), X[:, :length], mask, deterministic=deterministic)
    np.testing.assert_allclose(y, GOLDEN[f"{case}/y"], atol=1e-5)
    drops = case == "training" or case.startswith("evaluation drops")
    assert (output.statistics.dropped_K.sum() > 0) == drops


@pytest.mark.parametrize("case", sorted(CONFIGS.keys() - {"training after evaluation"}))
def test_the_same_number_of_slots(case):
    settings = convert(case, accept_differences=True).settings
    tokens = B * GOLDEN[f"{case}/y"].shape[1]
    name = "slots_per_token" if case.startswith("training") else "eval_slots_per_token"
    assert capacity(tokens, E, slots_per_token=settings[name]) == CONFIGS[case]["capacity"]


def test_after_an_evaluation_they_train_with_its_capacity():
    case = CONFIGS["training after evaluation"]
    assert case["expert_capacity"] == 5
    assert case["capacity"] == B * L
    settings = convert("training after evaluation").settings
    assert capacity(B * L, E, slots_per_token=settings["slots_per_token"]) == 5


def theirs_and_logits(case):
    """Their weights [tokens, experts] and the router's logits."""
    logits = X.reshape(B * L, M) @ WEIGHTS["router.classifier.weight"].T
    return GOLDEN[f"{case}/weights"], logits


@functools.partial(jax.jit, static_argnames=("slots", "normalize_after_dropping"))
def ours(logits, mask, slots, *, normalize_after_dropping=False):
    """Our weights [tokens, experts]."""
    logits, mask = logits[None], mask[None]
    routing = top2(
        logits,
        capacity=slots,
        mask_GS=mask,
        second="always",
        normalize_after_dropping=normalize_after_dropping,
    )
    one_hot = jax.nn.one_hot(routing.expert_GSK[0], E)
    return (one_hot * routing.weight_GSK[0][..., None]).sum(1)


def probabilities_of_two(logits):
    p = np.asarray(jax.nn.softmax(logits))
    order = np.argsort(-p, 1)
    return order[:, 0], order[:, 1], *np.take_along_axis(p, order[:, :2], 1).T


def test_normalizing_after_dropping_gives_the_other_expert_all_of_the_weight():
    weights, logits = theirs_and_logits("evaluation drops, then normalizes")
    keep = ours(logits, MASK.ravel(), 6)
    assert ((keep.sum(1) > 0) & (keep.sum(1) < 0.9)).any()
    after = ours(logits, MASK.ravel(), 6, normalize_after_dropping=True)
    np.testing.assert_allclose(weights, after, atol=1e-6)


def test_priority_gives_slots_to_the_surest_tokens():
    weights, logits = theirs_and_logits("evaluation drops by priority")
    order = np.argsort(-np.asarray(jax.nn.softmax(logits)).max(1))
    in_order = ours(logits[order], MASK.ravel()[order], 6)
    np.testing.assert_allclose(weights[order], in_order, atol=1e-6)
    assert np.abs(weights - ours(logits, MASK.ravel(), 6)).max() > 0.1


def test_their_coin_is_thrown_with_the_probability_before_it_is_normalised():
    weights, logits = theirs_and_logits("random")
    e1, e2, p1, p2 = probabilities_of_two(logits)
    wins = 2 * p2 > GOLDEN["random/uniforms"]
    expected = np.zeros((B * L, E), np.float32)
    expected[np.arange(B * L), e1] = p1 / (p1 + p2)
    expected[np.arange(B * L), e2] = np.where(wins, p2, 0)
    np.testing.assert_allclose(weights, expected * MASK.reshape(-1, 1), atol=1e-6)
    # Algorithm 1's coin lets others win.
    assert ((2 * p2 / (p1 + p2) > GOLDEN["random/uniforms"]) != wins).any()


def test_sampling_draws_the_second_expert_with_noise():
    weights, logits = theirs_and_logits("sampling")
    p, tokens = np.asarray(jax.nn.softmax(logits)), np.arange(B * L)
    noisy, e1 = logits + GOLDEN["sampling/gumbel"], p.argmax(1)
    noisy[tokens, e1] = -np.inf
    e2 = noisy.argmax(1)
    expected = np.zeros((B * L, E), np.float32)
    expected[tokens, e1], expected[tokens, e2] = p[tokens, e1], p[tokens, e2]
    expected *= MASK.reshape(-1, 1) / expected.sum(1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert (e2 != np.argsort(-p, 1)[:, 1]).any()


def test_default_training_differences_are_reported():
    report = from_nllb_moe(WEIGHTS, {"d_model": M, "num_experts": E}).report
    assert str(report) == "\n".join(
        [
            "router f32[6,4]      <- router.classifier.weight, transposed",
            "wi f32[4,6,10]       <- experts.expert_{0..3}.fc1.weight, each transposed",
            "bi f32[4,10]         <- experts.expert_{0..3}.fc1.bias, stacked",
            "wo f32[4,10,6]       <- experts.expert_{0..3}.fc2.weight, each transposed, times 0.8 "
            "for moe_token_dropout",
            "bo f32[4,6]          <- experts.expert_{0..3}.fc2.bias, stacked, times 0.8 "
            "for moe_token_dropout",
            "evaluation: the same",
            "training: differs",
            "  - an expert has 64 (expert_capacity) slots, here 2S/E; give group_size for the same "
            "number",
            "  - moe_token_dropout=0.2: here is no dropout",
        ]
    )


def test_there_and_back():
    config = CONFIGS["gelu"]  # without a factor to divide out again
    prefix = "model.encoder.layers.3.ffn."
    tensors = {prefix + name: tensor for name, tensor in WEIGHTS.items()}
    tensors["model.shared.weight"] = np.zeros((3, M))
    back = to_nllb_moe(from_nllb_moe(tensors, config, prefix=prefix).parameters, config)
    assert back.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        np.testing.assert_array_equal(back[name], tensor)
        assert back[name].flags.c_contiguous


def test_the_factor_of_evaluation_is_divided_out_again():
    config = {"d_model": M, "num_experts": E, "moe_token_dropout": 0.5}
    parameters = from_nllb_moe(WEIGHTS, config).parameters
    np.testing.assert_array_equal(parameters["bo"][2], WEIGHTS["experts.expert_2.fc2.bias"] / 2)
    back = to_nllb_moe(parameters, config)
    for name, tensor in WEIGHTS.items():
        np.testing.assert_array_equal(back[name], tensor)


def test_layers_stack_there_and_back():
    config, prefixes = CONFIGS["gelu"], ["layers.3.ffn.", "layers.7.ffn."]
    tensors = {prefixes[0] + name: tensor for name, tensor in WEIGHTS.items()}
    tensors |= {prefixes[1] + name: tensor + 1 for name, tensor in WEIGHTS.items()}
    converted = from_nllb_moe(tensors, config, prefix=prefixes)
    single = from_nllb_moe(tensors, config, prefix=prefixes[1])
    for name, parameter in single.parameters.items():
        np.testing.assert_array_equal(converted.parameters[name][1], parameter)
    layer = converted.layer()
    assert layer.wi.out_sharding == ("layer", "expert", "embed", "mlp")
    back = to_nllb_moe(nnx.state(layer), config, prefix=prefixes)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(back[name], tensor)


def test_the_layer_has_the_logical_names_of_one_made_as_usual():
    layer = convert("evaluation").layer()
    usual = MoELayer(E, M, H, use_bias=True, rngs=nnx.Rngs(0))
    for name, parameter in nnx.state(usual).items():
        assert getattr(layer, name).out_sharding == parameter.out_sharding
        assert isinstance(getattr(layer, name)[...], jax.Array)


class Tensor:
    """As much of a torch tensor as is read; without detaching it refuses to be an array."""

    def __init__(self, values, dtype, state="requires grad"):
        self.values, self.dtype, self.state = values, dtype, state
        self.shape = values.shape

    def detach(self):
        return Tensor(self.values, self.dtype, "detached")

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.values, "torch.float32", self.state)

    def __array__(self, dtype=None, copy=None):
        assert self.state == "detached"
        assert self.dtype == "torch.float32"
        return self.values


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_tensors_of_torch_are_read(dtype):
    tensors = {name: Tensor(tensor, dtype) for name, tensor in WEIGHTS.items()}
    parameters = from_nllb_moe(tensors, CONFIGS["gelu"]).parameters
    expected = from_nllb_moe(WEIGHTS, CONFIGS["gelu"]).parameters
    for name, parameter in parameters.items():
        np.testing.assert_array_equal(parameter, expected[name])


def test_all_wrong_tensors_and_settings_are_named_at_once():
    tensors = dict(WEIGHTS)
    for e in (1, 2):
        del tensors[f"experts.expert_{e}.fc1.bias"]
    tensors["experts.expert_0.fc2.weight"] = np.zeros((H, M))
    tensors |= {"experts.expert_4.fc1.bias": np.zeros(H), "norm.weight": np.zeros(M)}
    config = {
        "d_model": M,
        "num_experts": E,
        "activation_function": "mish",
        "moe_token_dropout": 1,
        "router_bias": True,
        "router_dtype": "bfloat16",
        "second_expert_policy": "none",
    }
    message = (
        "from_nllb_moe: "
        "missing router.classifier.bias, experts.expert_{1..2}.fc1.bias; "
        "surplus norm.weight, experts.expert_4.fc1.bias; "
        "experts.expert_0.fc2.weight has shape (10, 6), needed is (6, 10); "
        "activation 'mish' is not known here; known are 'gelu', 'gelu_new', 'gelu_pytorch_tanh', "
        "'relu', 'silu', 'swish'; "
        "router_bias=True, and MoELayer's router has no bias; it cannot be converted; "
        "second_expert_policy is 'none'; known are 'all', 'random', 'sampling'; "
        "moe_token_dropout is 1; give 0 or more and less than 1; "
        "evaluation would differ: router_dtype='bfloat16': near ties may go to other experts; here "
        "it is float32; or let that be with accept_differences=True"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_nllb_moe(tensors, config)


def test_differences_of_evaluation_are_refused_unless_accepted():
    message = (
        "from_nllb_moe: evaluation would differ: an expert has 64 (expert_capacity) slots, here "
        "2S/E; give group_size for the same number; or let that be with accept_differences=True"
    )
    config = {"d_model": M, "num_experts": E, "moe_eval_capacity_token_fraction": 0}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_nllb_moe(WEIGHTS, config)
    report = from_nllb_moe(WEIGHTS, config, accept_differences=True).report
    assert len(report.evaluation) == 1


def test_a_prefix_without_tensors_says_where_the_blocks_are():
    tensors = {f"encoder.3.ffn.{name}": tensor for name, tensor in WEIGHTS.items()}
    message = (
        "from_nllb_moe: config has no num_experts; give them as config.json does; "
        "no tensor starts with 'encoder.4.ffn.'; sparse blocks start with 'encoder.3.ffn.'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_nllb_moe(tensors, {"d_model": M}, prefix="encoder.4.ffn.")
    message = (
        "from_nllb_moe: no tensor starts with 'ffn.'; and none ends with "
        "'router.classifier.weight': there is no sparse block"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_nllb_moe({"a": X}, CONFIGS["gelu"], prefix="ffn.")


def test_parameters_that_do_not_fit_the_block_are_refused():
    parameters = nnx.to_pure_dict(nnx.state(MoELayer(E, M, H, rngs=nnx.Rngs(0))))
    config = {"d_model": M, "num_experts": E}
    message = "to_nllb_moe: missing bi, bo"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        to_nllb_moe(parameters, config)
    parameters |= {"bi": jnp.zeros((E, M)), "bo": jnp.zeros((E, M))}
    message = (
        "to_nllb_moe: router has shape (6, 4), needed is (6, 5); "
        "wi has shape (4, 6, 10), needed is (5, 6, 10); "
        "wo has shape (4, 10, 6), needed is (5, 10, 6); "
        "bi has shape (4, 6), needed is (5, 10); bo has shape (4, 6), needed is (5, 6)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        to_nllb_moe(parameters, config | {"num_experts": 5})
