"""The sparse block of NLLB-MoE (`NllbMoeSparseMLP` of `transformers` 4.46.3) and MoELayer.

Its linear layers hold [out, in] and compute x W^T + b; here matrices are [in, out], experts stacked
in front. So `fc1.weight` [H,M] becomes wi[e] [M,H], `fc2.weight` [M,H] wo[e] [H,M], each by a
transposition, `router.classifier.weight` [E,M] router [M,E], and biases are stacked as they are. At
evaluation the block multiplies what its experts return with 1 - moe_token_dropout: wo and bo take
this factor in.

Its group is the whole batch in row order, padding in it: `group(x, mask, num_groups=1)`. The mask
is that of attention, and None when `router_ignore_padding_tokens` is true: padding is then routed,
against the name.

Axes: E experts, M model width, H hidden width, S tokens per group.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gshard_moe.converters.configs import (
    activation_of,
    bias_faults,
    dtype_differences,
    refused,
    size_faults,
    slots_for,
    with_defaults,
)
from gshard_moe.converters.converted import ConversionReport, Converted, mapped
from gshard_moe.converters.tensors import as_prefixes, block_faults, prefix_faults, read
from gshard_moe.gating import SecondExpert
from gshard_moe.layer_faults import raise_all
from gshard_moe.parameters import arrays_of, parameter_faults
from gshard_moe.routers import Top2

_NEEDED = ("d_model", "num_experts")
# Those of `NllbMoeConfig`.
_DEFAULTS = {
    "activation_dropout": 0.0,
    "activation_function": "relu",
    "batch_prioritized_routing": False,
    "expert_capacity": 64,
    "moe_eval_capacity_token_fraction": 1.0,
    "moe_token_dropout": 0.2,
    "normalize_router_prob_before_dropping": False,
    "router_bias": False,
    "router_dtype": "float32",
    "second_expert_policy": "all",
}
_POLICIES: dict[str, SecondExpert] = {"all": "always", "random": "random", "sampling": "always"}
_EXPERT = {"fc1.weight": "wi", "fc1.bias": "bi", "fc2.weight": "wo", "fc2.bias": "bo"}


def from_nllb_moe(
    tensors: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    prefix: str | Sequence[str] = "",
    group_size: int | None = None,
    accept_differences: bool = False,
) -> Converted:
    """The block as a MoELayer with the same outputs when deterministic.

    Args:
      tensors: A state dict: arrays, or tensors of torch.
      config: Values of `config.json`: d_model and num_experts, others where they are not defaults.
      prefix: What the block's names start with, as "model.encoder.layers.3.ffn."; a sequence, also
        of one, for parameters with a leading axis of layers.
      group_size: Tokens of a batch, where expert_capacity counts: it is a number of tokens there.
      accept_differences: Whether settings without an equal are taken all the same, and reported.

    Raises:
      ValueError: Missing, surplus and wrongly shaped tensors, settings without an equal; at once.
    """
    values, faults = with_defaults(config, _NEEDED, _DEFAULTS)
    prefixes = as_prefixes(prefix)
    E, M, H = values["num_experts"], values["d_model"], _hidden_width(tensors, prefixes)
    # Without sizes there are no shapes to compare with.
    shapes = None if faults else _shapes(E, M, H, router_bias=values["router_bias"])
    for one in prefixes:
        faults += block_faults(tensors, one, shapes)
    faults += prefix_faults(prefix)
    settings, more, evaluation, training = _settings(values, group_size)
    faults += more + refused(evaluation, accepted=accept_differences)
    raise_all("from_nllb_moe", faults)

    scale, parameters, entries = 1 - values["moe_token_dropout"], {}, []
    parameters["router"] = np.swapaxes(read(tensors, prefix, "router.classifier.weight"), -1, -2)
    names = [one + "router.classifier.weight" for one in prefixes]
    entries.append(mapped("router", parameters["router"], names, "transposed"))
    for name, parameter in _EXPERT.items():
        ours, change = _stack(tensors, prefix, E, name, scale)
        parameters[parameter] = ours
        names = [f"{one}experts.expert_{e}.{name}" for one in prefixes for e in range(E)]
        entries.append(mapped(parameter, ours, names, change))
    settings |= {"num_experts": E, "embed": M, "mlp": H, "use_bias": True}
    return Converted(
        parameters, settings, ConversionReport(tuple(entries), tuple(evaluation), tuple(training))
    )


def to_nllb_moe(
    parameters: Mapping[str, Any], config: Mapping[str, Any], *, prefix: str | Sequence[str] = ""
) -> dict[str, np.ndarray]:
    """The state dict of a block that `from_nllb_moe` makes these parameters of.

    Args:
      parameters: Of a MoELayer with biases: pure dict or `nnx.State`.
      config: As for `from_nllb_moe`; its moe_token_dropout is divided out again.
      prefix: What names start with; one for each layer where parameters have a leading axis.

    Raises:
      ValueError: What does not fit the block, at once.
    """
    values, faults = with_defaults(config, _NEEDED, _DEFAULTS)
    prefixes, needed = as_prefixes(prefix), {"router", *_EXPERT.values()}
    sizes = {"E": values["num_experts"], "M": values["d_model"]}
    layers = 0 if isinstance(prefix, str) else len(prefixes)
    arrays = {name: np.asarray(array) for name, array in arrays_of(parameters).items()}
    faults += prefix_faults(prefix)
    if not faults:
        faults += parameter_faults(arrays, needed=needed, sizes=sizes, layers=layers)
    faults += bias_faults(values["router_bias"])
    raise_all("to_nllb_moe", faults)
    scale, tensors = 1 - values["moe_token_dropout"], {}
    for index, one in enumerate(prefixes):
        layer = {name: w[index] for name, w in arrays.items()} if layers else arrays
        tensors[one + "router.classifier.weight"] = np.ascontiguousarray(layer["router"].T)
        for e in range(sizes["E"]):
            for name, parameter in _EXPERT.items():
                tensor = layer[parameter][e] / (scale if name.startswith("fc2") else 1)
                tensors[f"{one}experts.expert_{e}.{name}"] = np.ascontiguousarray(tensor.T)
    return tensors


def _hidden_width(tensors: Mapping[str, Any], prefixes: Sequence[str]) -> int:
    """That of the first expert: encoder and decoder have one each in the configuration."""
    first = tensors.get(f"{''.join(prefixes[:1])}experts.expert_0.fc1.weight")
    return 1 if first is None else first.shape[0]


def _shapes(E: int, M: int, H: int, *, router_bias: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"router.classifier.weight": (E, M)}
    if router_bias:
        shapes["router.classifier.bias"] = (E,)
    for e in range(E):
        expert = f"experts.expert_{e}."
        shapes |= {expert + "fc1.weight": (H, M), expert + "fc1.bias": (H,)}
        shapes |= {expert + "fc2.weight": (M, H), expert + "fc2.bias": (M,)}
    return shapes


def _stack(
    tensors: Mapping[str, Any], prefix: str | Sequence[str], E: int, name: str, scale: float
) -> tuple[np.ndarray, str]:
    """One parameter of all experts, and what was done to its tensors."""
    each = [read(tensors, prefix, f"experts.expert_{e}.{name}") for e in range(E)]
    if name.endswith("weight"):
        stacked, change = np.stack([np.swapaxes(w, -1, -2) for w in each], -3), "each transposed"
    else:
        stacked, change = np.stack(each, -2), "stacked"
    if name.startswith("fc2") and scale != 1:
        stacked = stacked * np.asarray(scale, stacked.dtype)
        change += f", times {scale:g} for moe_token_dropout"
    return stacked, change


def _settings(
    values: Mapping[str, Any], group_size: int | None
) -> tuple[dict[str, Any], list[str], list[str], list[str]]:
    """Arguments of MoELayer, faults, and differences of evaluation and of training."""
    activation, faults = activation_of(values["activation_function"])
    policy, dropout = values["second_expert_policy"], values["moe_token_dropout"]
    faults += bias_faults(values["router_bias"])
    if policy not in _POLICIES:
        faults.append(f"second_expert_policy is {policy!r}; known are 'all', 'random', 'sampling'")
    if not 0 <= dropout < 1:
        faults.append(f"moe_token_dropout is {dropout}; give 0 or more and less than 1")
    faults += (wrong := size_faults(group_size, values["expert_capacity"], fixed=False))
    slots, of_capacity = (None, []) if wrong else _training_slots(values, group_size)
    fraction, eval_slots, of_evaluation = values["moe_eval_capacity_token_fraction"], None, []
    if fraction <= 0:
        eval_slots, of_evaluation = slots, of_capacity
    elif fraction < 1:
        eval_slots = fraction * values["num_experts"]
        if group_size is not None and not wrong:  # which decides the rounding
            capacity = math.ceil(fraction * group_size)
            eval_slots = slots_for(capacity, values["num_experts"], group_size)
    always = dtype_differences(values["router_dtype"]) + _policy_differences(policy)
    evaluation = always + of_evaluation
    evaluation += [] if eval_slots is None else _drop_differences(values)
    training = always + of_capacity + ([] if slots is None else _drop_differences(values))
    for name in ("activation_dropout", "moe_token_dropout"):
        training += [f"{name}={values[name]}: here is no dropout"] if values[name] else []
    second = _POLICIES.get(policy, "always")
    settings = {
        "activation": activation,
        "eval_slots_per_token": eval_slots,
        "router": Top2(
            second,
            second,
            normalize_after_dropping=not values["normalize_router_prob_before_dropping"],
        ),
        "slots_per_token": slots,
    }
    return settings, faults, evaluation, training


def _training_slots(
    values: Mapping[str, Any], group_size: int | None
) -> tuple[float | None, list[str]]:
    E, capacity = values["num_experts"], values["expert_capacity"]
    if group_size is not None:
        capacity = 2 * math.ceil(group_size / E) if capacity is None else capacity
        return slots_for(capacity, E, group_size), []
    theirs = "2 * ceil(S / E)" if capacity is None else f"{capacity} (expert_capacity)"
    text = f"an expert has {theirs} slots, here 2S/E; give group_size for the same number"
    return 2.0, [text]


def _policy_differences(policy: str) -> list[str]:
    differences = {
        "random": "second_expert_policy='random' throws its coin with the second probability "
        "before it is normalised and weighs with it; here both are the normalised gate's",
        "sampling": "second_expert_policy='sampling' draws the second expert with Gumbel noise; "
        "here it is the second best",
    }
    return [differences[policy]] if policy in differences else []


def _drop_differences(values: Mapping[str, Any]) -> list[str]:
    """Those that need a full expert."""
    differences = []
    if values["batch_prioritized_routing"]:
        differences.append(
            "batch_prioritized_routing=True gives slots to the surest tokens first; here to the "
            "first ones"
        )
    return differences
