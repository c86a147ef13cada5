"""Other numbers of experts: splitting them along the hidden width, copying them, averaging them.

Each takes and returns a layer's parameters, as a pure dict or as an `nnx.State`, whose variables
keep their metadata; stacked layers have a leading axis. No function looks at the router's settings:
outputs stay the same under the conditions that each one states.

Axes: E experts, M model width, H hidden width, K choices per token.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gshard_moe.layer_faults import raise_all
from gshard_moe.parameters import AXES, arrays_of, in_tree_of, parameter_faults


def split_experts(parameters: Mapping[str, Any], parts: int) -> Any:
    """Each expert as `parts` experts of width H / parts: expert e becomes e * parts and following.

    Outputs stay the same with `parts` times the choices, `TopK(k * parts)` with either weights,
    while nothing drops: all parts of an expert are chosen together, each with an equal share of its
    weight, and wo is multiplied with `parts`. `Top2` becomes
    `TopK(2 * parts, "choose_then_softmax")`. Slots per expert stay as they are when
    `slots_per_token` is multiplied with `parts` too.

    Raises:
      ValueError: What is no layer, or H does not divide.
    """
    arrays, faults = _read(parameters)
    hidden = arrays["wi"].shape[-1] if not faults else 0
    if parts < 1 or hidden % parts:
        good = _divisors(hidden)
        faults.append(f"hidden width {hidden} does not fall into {parts} parts; give {good}")
    raise_all("split_experts", faults)

    def split(name: str) -> Array:
        array, axes = arrays[name], AXES[name]
        at = {axis: array.ndim - len(axes) + i for i, axis in enumerate(axes)}
        if "H" not in axes:  # each part has all of it
            return jnp.repeat(array, parts, at["E"])
        shape = list(array.shape)
        shape[at["H"] : at["H"] + 1] = [parts, hidden // parts]
        array = jnp.moveaxis(array.reshape(shape), at["H"], at["E"] + 1)
        array = _merge_axis(array, at["E"])
        return array * parts if name == "wo" else array

    return in_tree_of(parameters, {name: split(name) for name in arrays})


def merge_parts(parameters: Mapping[str, Any], parts: int) -> Any:
    """What `split_experts` split, whole again: `parts` neighbours as one expert.

    The inverse, up to rounding where `parts` is no power of two. Of parts that have been trained
    since, bo and router columns are averaged: outputs stay the same as long as all parts of an
    expert are chosen together with the same weight.

    Raises:
      ValueError: What is no layer, or E does not divide.
    """
    arrays, faults = _read(parameters)
    faults += _group_faults(arrays, parts, faults)
    raise_all("merge_parts", faults)

    def merge(name: str) -> Array:
        array, axes = arrays[name], AXES[name]
        at = {axis: array.ndim - len(axes) + i for i, axis in enumerate(axes)}
        shape = list(array.shape)
        shape[at["E"] : at["E"] + 1] = [shape[at["E"]] // parts, parts]
        array = array.reshape(shape)
        if "H" not in axes:
            return array.mean(at["E"] + 1)
        array = _merge_axis(jnp.moveaxis(array, at["E"] + 1, at["H"]), at["H"])
        return array / parts if name == "wo" else array

    return in_tree_of(parameters, {name: merge(name) for name in arrays})


def copy_experts(parameters: Mapping[str, Any], copies: int) -> Any:
    """Each expert `copies` times, router columns too: expert e becomes e * copies and following.

    Outputs stay the same with `copies` times the choices, `TopK(k * copies)` with either weights,
    while nothing drops: all copies of an expert are chosen together, each with an equal share of
    its weight. With the choices of before a token goes to copies of its first expert alone: of two
    copies `Top2` uses both with 1/2 each, `TopK(1)` the first one with 1/copies of the weight.
    Copies see the same tokens until `add_noise` parts them.

    Raises:
      ValueError: What is no layer, or fewer than one copy.
    """
    arrays, faults = _read(parameters)
    if copies < 1:
        faults.append(f"copies is {copies}; give at least 1")
    raise_all("copy_experts", faults)
    repeated = {
        name: jnp.repeat(array, copies, _expert_axis(name)) for name, array in arrays.items()
    }
    return in_tree_of(parameters, repeated)


def average_experts(
    parameters: Mapping[str, Any],
    groups: int | Sequence[Sequence[int]],
    *,
    weights: Sequence[float] | None = None,
) -> Any:
    """One expert for each group of experts: the mean of its members, router columns too.

    The inverse of `copy_experts`. Of experts that differ it is another function, to train on from.

    Args:
      parameters: Of a layer.
      groups: How many neighbours make a group, or the members of each group; experts that are in no
        group are left out, and one may be in several.
      weights: Of each of the E experts in the mean, such as their load; None for equal ones.

    Raises:
      ValueError: What is no layer; groups or weights that do not fit its experts.
    """
    arrays, faults = _read(parameters)
    size = groups if isinstance(groups, int) else 0
    if isinstance(groups, int):
        faults += _group_faults(arrays, groups, faults)
        E = 0 if faults else arrays["router"].shape[-1]
        groups = [range(e, e + groups) for e in range(0, E, groups)] if not faults else []
    elif not faults:
        faults += _member_faults(groups, arrays["router"].shape[-1])
    if weights is not None and not faults:
        faults += _weight_faults(weights, groups, arrays["router"].shape[-1])
    raise_all("average_experts", faults)
    if size and weights is None:  # with no sum over all experts, which may lie on many devices
        return in_tree_of(parameters, {name: _mean(arrays, name, size) for name in arrays})
    mean_FE = _means(groups, weights, arrays["router"].shape[-1])

    def average(name: str) -> Array:
        array, axis = arrays[name], _expert_axis(name)
        exact = jnp.promote_types(array.dtype, jnp.float32)
        mean = jnp.tensordot(jnp.moveaxis(array, axis, -1).astype(exact), mean_FE.T, 1)
        return jnp.moveaxis(mean, -1, axis).astype(array.dtype)

    return in_tree_of(parameters, {name: average(name) for name in arrays})


def _read(parameters: Mapping[str, Any]) -> tuple[dict[str, Array], list[str]]:
    arrays = {name: jnp.asarray(array) for name, array in arrays_of(parameters).items()}
    return arrays, parameter_faults(arrays)


def _expert_axis(name: str) -> int:
    return AXES[name].index("E") - len(AXES[name])


def _merge_axis(array: Array, axis: int) -> Array:
    """This axis and the next as one."""
    shape = array.shape
    return array.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def _mean(arrays: Mapping[str, Array], name: str, size: int) -> Array:
    """Of each `size` neighbours; added up in float32 at least."""
    array, axis = arrays[name], arrays[name].ndim + _expert_axis(name)
    shape = list(array.shape)
    shape[axis : axis + 1] = [shape[axis] // size, size]
    exact = jnp.promote_types(array.dtype, jnp.float32)
    return array.reshape(shape).mean(axis + 1, dtype=exact).astype(array.dtype)


def _group_faults(arrays: Mapping[str, Array], size: int, found: Sequence[str]) -> list[str]:
    if found:
        return []
    E = arrays["router"].shape[-1]
    if size >= 1 and E % size == 0:
        return []
    return [f"{E} experts do not fall into groups of {size}; give {_divisors(E)}"]


def _member_faults(groups: Sequence[Sequence[int]], E: int) -> list[str]:
    faults = ["there is no group; give one at least"] if not groups else []
    for number, members in enumerate(groups):
        if not members:
            faults.append(f"group {number} is empty; give it members or leave it out")
        if wrong := [e for e in members if not 0 <= e < E]:
            faults.append(f"group {number} has {wrong}; experts are 0 to {E - 1}")
    return faults


def _weight_faults(weights: Sequence[float], groups: Sequence[Sequence[int]], E: int) -> list[str]:
    if len(weights) != E or min(weights) < 0:
        return [f"weights are {list(weights)}; give {E} of 0 or more, one for each expert"]
    empty = [n for n, members in enumerate(groups) if sum(weights[e] for e in members) == 0]
    return [f"weights of groups {empty} are all 0; give one member more"] if empty else []


def _means(groups: Sequence[Sequence[int]], weights: Sequence[float] | None, E: int) -> np.ndarray:
    """What each expert counts in each new one; rows sum to 1."""
    rows = np.zeros((len(groups), E))
    for row, members in zip(rows, groups, strict=True):
        for e in members:
            row[e] += 1 if weights is None else weights[e]
    return (rows / rows.sum(1, keepdims=True)).astype(np.float32)


def _divisors(number: int) -> str:
    *most, last = [str(n) for n in range(1, number + 1) if number % n == 0] or ["1"]
    return f"{', '.join(most)} or {last}" if most else last
