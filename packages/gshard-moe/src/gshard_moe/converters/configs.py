"""Reading a block's configuration, and what both libraries' settings mean here."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from gshard_moe.experts import Activation

# By the names that `transformers` uses. Its "gelu" is the exact one, JAX's default is not.
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "swish": jax.nn.silu,
}


def with_defaults(
    config: Mapping[str, Any], needed: Sequence[str], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The values that a block depends on, and a sentence on those that are missing."""
    missing = [name for name in needed if name not in config]
    faults = [f"config has no {', '.join(missing)}; give them as config.json does"]
    values = dict.fromkeys(missing, 1) | {name: config[name] for name in needed if name in config}
    values |= {name: config.get(name, default) for name, default in defaults.items()}
    return values, faults if missing else []


def activation_of(name: str) -> tuple[Activation, list[str]]:
    """The function that `transformers` calls so, and a sentence when it is not known."""
    if name in _ACTIVATIONS:
        return _ACTIVATIONS[name], []
    known = ", ".join(map(repr, _ACTIVATIONS))
    return jax.nn.relu, [f"activation {name!r} is not known here; known are {known}"]


def size_faults(group_size: int | None, capacity: int | None, *, fixed: bool) -> list[str]:
    """Sizes that are no numbers of tokens; without `fixed` capacity may be None."""
    faults = []
    if group_size is not None and not _at_least_1(group_size):
        faults.append(f"group_size is {group_size!r}; give a whole number of tokens, 1 or more")
    if (fixed or capacity is not None) and not _at_least_1(capacity):
        or_none = "" if fixed else ", or None"
        faults.append(f"expert_capacity is {capacity!r}; give a whole number, 1 or more{or_none}")
    return faults


def _at_least_1(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and int(value) >= 1


def slots_for(capacity: int, num_experts: int, group_size: int) -> float | None:
    """`slots_per_token` that gives an expert so many slots; None where that drops nothing."""
    return None if capacity >= group_size else capacity * num_experts / group_size


def bias_faults(router_bias: bool) -> list[str]:
    """A router's bias has no place in a MoELayer."""
    fault = "router_bias=True, and MoELayer's router has no bias; it cannot be converted"
    return [fault] if router_bias else []


def dtype_differences(router_dtype: str) -> list[str]:
    """Here the router computes in float32 in any case."""
    if router_dtype == "float32":
        return []
    return [f"router_dtype={router_dtype!r}: near ties may go to other experts; here it is float32"]


def refused(differences: Sequence[str], *, accepted: bool) -> list[str]:
    """Differences of evaluation as a fault, unless they are accepted."""
    if accepted or not differences:
        return []
    what = "; ".join(differences)
    return [f"evaluation would differ: {what}; or let that be with accept_differences=True"]
