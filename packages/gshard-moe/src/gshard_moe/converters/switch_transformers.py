"""The sparse block of Switch Transformers (`transformers` 4.46.3) and MoELayer.

The block is `SwitchTransformersSparseMLP`. Its linear layers hold [out, in] and compute x W^T,
without biases; here matrices are [in, out], experts stacked in front. So `wi.weight` [H,M] becomes
wi[e] [M,H], `wo.weight` [M,H] wo[e] [H,M] and `router.classifier.weight` [E,M] router [M,E], each
by a transposition.

Its groups are the sequences of a batch as they come, [batch, length, M], without a mask: padding
competes for slots there. An expert has `expert_capacity` slots for each sequence, in training and
at evaluation.

Axes: E experts, M model width, H hidden width, S tokens per group.
"""

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
from gshard_moe.layer_faults import raise_all
from gshard_moe.parameters import arrays_of, parameter_faults
from gshard_moe.routers import TopK

_NEEDED = ("d_model", "d_ff", "num_experts")
# Those of `SwitchTransformersConfig`.
_DEFAULTS = {
    "dense_act_fn": "relu",
    "dropout_rate": 0.1,
    "expert_capacity": 64,
    "router_bias": False,
    "router_dtype": "float32",
    "router_jitter_noise": 0.01,
}


def from_switch_transformers(
    tensors: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    prefix: str | Sequence[str] = "",
    group_size: int | None = None,
    accept_differences: bool = False,
) -> Converted:
    """The block as a MoELayer with the same outputs when deterministic, while no expert is full.

    Args:
      tensors: A state dict: arrays, or tensors of torch.
      config: Values of `config.json`: d_model, d_ff and num_experts, others where they are not
        defaults.
      prefix: What the block's names start with, as "encoder.block.1.layer.1.mlp."; a sequence, also
        of one, for parameters with a leading axis of layers.
      group_size: Tokens of a sequence, padding included: expert_capacity is a number of tokens.
      accept_differences: Whether settings without an equal are taken all the same, and reported.

    Raises:
      ValueError: Missing, surplus and wrongly shaped tensors, settings without an equal; at once.
    """
    values, faults = with_defaults(config, _NEEDED, _DEFAULTS)
    prefixes = as_prefixes(prefix)
    E, M, H = values["num_experts"], values["d_model"], values["d_ff"]
    # Without sizes there are no shapes to compare with.
    shapes = None if faults else _shapes(E, M, H, router_bias=values["router_bias"])
    for one in prefixes:
        faults += block_faults(tensors, one, shapes)
    faults += prefix_faults(prefix)
    settings, more, evaluation, training = _settings(values, group_size)
    faults += more + refused(evaluation, accepted=accept_differences)
    raise_all("from_switch_transformers", faults)

    parameters, entries = {}, []
    parameters["router"] = np.swapaxes(read(tensors, prefix, "router.classifier.weight"), -1, -2)
    names = [one + "router.classifier.weight" for one in prefixes]
    entries.append(mapped("router", parameters["router"], names, "transposed"))
    for parameter in ("wi", "wo"):
        each = [read(tensors, prefix, f"experts.expert_{e}.{parameter}.weight") for e in range(E)]
        parameters[parameter] = np.stack([np.swapaxes(w, -1, -2) for w in each], -3)
        names = [
            f"{one}experts.expert_{e}.{parameter}.weight" for one in prefixes for e in range(E)
        ]
        entries.append(mapped(parameter, parameters[parameter], names, "each transposed"))
    settings |= {"num_experts": E, "embed": M, "mlp": H}
    return Converted(
        parameters, settings, ConversionReport(tuple(entries), tuple(evaluation), tuple(training))
    )


def to_switch_transformers(
    parameters: Mapping[str, Any], config: Mapping[str, Any], *, prefix: str | Sequence[str] = ""
) -> dict[str, np.ndarray]:
    """The state dict of a block that `from_switch_transformers` makes these parameters of.

    Args:
      parameters: Of a MoELayer without biases and gate: pure dict or `nnx.State`.
      config: As for `from_switch_transformers`.
      prefix: What names start with; one for each layer where parameters have a leading axis.

    Raises:
      ValueError: What does not fit the block, at once.
    """
    values, faults = with_defaults(config, _NEEDED, _DEFAULTS)
    prefixes, needed = as_prefixes(prefix), {"router", "wi", "wo"}
    sizes = {"E": values["num_experts"], "M": values["d_model"], "H": values["d_ff"]}
    layers = 0 if isinstance(prefix, str) else len(prefixes)
    arrays = {name: np.asarray(array) for name, array in arrays_of(parameters).items()}
    faults += prefix_faults(prefix)
    if not faults:
        faults += parameter_faults(arrays, needed=needed, sizes=sizes, layers=layers)
    faults += bias_faults(values["router_bias"])
    raise_all("to_switch_transformers", faults)
    tensors = {}
    for index, one in enumerate(prefixes):
        layer = {name: w[index] for name, w in arrays.items()} if layers else arrays
        tensors[one + "router.classifier.weight"] = np.ascontiguousarray(layer["router"].T)
        for e in range(sizes["E"]):
            for parameter in ("wi", "wo"):
                name = f"{one}experts.expert_{e}.{parameter}.weight"
                tensors[name] = np.ascontiguousarray(layer[parameter][e].T)
    return tensors


def _shapes(E: int, M: int, H: int, *, router_bias: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"router.classifier.weight": (E, M)}
    if router_bias:
        shapes["router.classifier.bias"] = (E,)
    for e in range(E):
        expert = f"experts.expert_{e}."
        shapes |= {expert + "wi.weight": (H, M), expert + "wo.weight": (M, H)}
    return shapes


def _settings(
    values: Mapping[str, Any], group_size: int | None
) -> tuple[dict[str, Any], list[str], list[str], list[str]]:
    """Arguments of MoELayer, faults, and differences of evaluation and of training."""
    activation, faults = activation_of(values["dense_act_fn"])
    faults += bias_faults(values["router_bias"])
    capacity, slots, differences = values["expert_capacity"], None, []
    wrong = size_faults(group_size, capacity, fixed=True)
    faults += wrong
    if wrong:
        differences = []
    elif group_size is None:
        differences = [
            f"expert_capacity={capacity} drops tokens of longer sequences, here nothing drops; "
            "give group_size for the same slots"
        ]
    elif (slots := slots_for(capacity, values["num_experts"], group_size)) is not None:
        differences = [
            f"a token that finds its expert full ({capacity} slots for {group_size} tokens) is "
            "returned there, times its probability; here as 0"
        ]
    differences += dtype_differences(values["router_dtype"])
    training = list(differences)
    if values["router_jitter_noise"]:
        training.append(
            f"router_jitter_noise={values['router_jitter_noise']} reaches what experts see too; "
            "here the router's input alone"
        )
    if values["dropout_rate"]:
        training.append(f"dropout_rate={values['dropout_rate']}: here is no dropout")
    settings = {
        "activation": activation,
        "eval_slots_per_token": slots,
        "jitter": values["router_jitter_noise"],
        "router": TopK(1),
        "slots_per_token": slots,
    }
    return settings, faults, differences, training
