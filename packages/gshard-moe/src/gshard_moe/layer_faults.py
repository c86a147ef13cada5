"""What a layer refuses, before anything is traced.

Axes: G groups, S tokens per group, M model width.
"""

import math
import numbers
import warnings
from typing import TYPE_CHECKING, Any, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gshard_moe.capacity import capacity_factor_means
from gshard_moe.drawing import key_faults
from gshard_moe.exchange import Devices, Dispatch, ExpertLoop
from gshard_moe.routers import Router, Top2
from gshard_moe.routing import ExpertRouting, Routing

if TYPE_CHECKING:
    from gshard_moe.layer import MoELayer


def raise_all(who: str, faults: list[str]) -> None:
    """One ValueError with all faults in a line, or nothing when there are none."""
    if faults:
        raise ValueError(f"{who if isinstance(who, str) else 'MoELayer'}: {'; '.join(faults)}")


def argument_faults(
    layer: "MoELayer",
    router: Router | None,
    slots: tuple[Any, Any],
    capacity_factor: float | None,
    dtypes: tuple[Any, Any],
    rngs: Any,
) -> list[str]:
    """What is wrong with what a layer is made of, one sentence each."""
    faults = _size_faults(layer)
    for name, given in zip(("slots_per_token", "eval_slots_per_token"), slots, strict=True):
        faults += _slots_faults(name, given)
    is_router = isinstance(layer.routing, Router) and not isinstance(layer.routing, type)
    whole = _whole(layer.num_experts) and layer.num_experts >= 1
    if not is_router:
        faults.append(f"router is {layer.routing!r}; give Top2(), TopK(k) or another Router object")
    else:
        # How many experts there are only matters to a router when that number is one.
        faults += layer.routing.faults(layer.num_experts if whole else 2**31)
        faults += _router_faults(layer, router)
    faults += _choice_faults(layer)
    faults += _late_drop_faults(layer, slots)
    faults += _dtype_faults(dtypes)
    if not hasattr(rngs, "params"):
        faults.append(f"rngs is {rngs!r}; give nnx.Rngs(0), with a stream for params")
    if capacity_factor is not None:
        if is_router and _number(capacity_factor):
            what = capacity_factor_means(capacity_factor, float(layer.routing.choices))
        else:
            what = f"{capacity_factor!r}; give slots_per_token"
        faults.append(f"capacity_factor is {what}")
    return faults


def _whole(n: Any) -> bool:
    return isinstance(n, numbers.Integral) and not isinstance(n, bool)


def _number(n: Any) -> bool:
    return isinstance(n, numbers.Real) and not isinstance(n, bool)


def _size_faults(layer: "MoELayer") -> list[str]:
    sizes = ("num_experts", "embed", "mlp", "min_slots", "slots_multiple_of")
    fewest: dict[str, int] = dict.fromkeys(sizes, 1)
    if layer.eval_padded_slots is not None:
        fewest["eval_padded_slots"] = 0
    if layer.expert_parts is not None:
        fewest["expert_parts"] = 1
    faults = []
    for name, least in fewest.items():
        n = getattr(layer, name)
        if not _whole(n):
            faults.append(f"{name} is {n!r}; give a whole number")
        elif n < least:
            faults.append(f"{name} is {n}; give at least {least}")
    if layer.expert_parts is not None and layer.dispatch != "sorted":
        faults.append(
            f"expert_parts is {layer.expert_parts} and dispatch {layer.dispatch!r}; "
            "they are parts of sorted rows: give dispatch='sorted' or no expert_parts"
        )
    parts, experts = layer.expert_parts or 1, layer.num_experts
    if _whole(parts) and _whole(experts) and parts >= 1 and experts % parts:
        faults.append(f"expert_parts is {parts} for {experts} experts; give a divisor of {experts}")
    return faults


def _slots_faults(name: str, given: Any) -> list[str]:
    if given is None or given == "choices":
        return []
    if not _number(given) or not math.isfinite(given):
        return [f"{name} is {given!r}; give a number, 'choices', or None for no limit"]
    if not given > 0:
        return [f"{name} is {given}; give more than 0 (the paper's 2S/E is 2.0)"]
    return []


def _choice_faults(layer: "MoELayer") -> list[str]:
    faults = []
    choices = {"dispatch": get_args(Dispatch), "experts": get_args(ExpertLoop)}
    for name, allowed in choices.items():
        if (given := getattr(layer, name)) not in allowed:
            faults.append(f"{name} is {given!r}; give one of {', '.join(map(repr, allowed))}")
    for name in ("gated", "use_bias", "check_finite"):
        if not isinstance(given := getattr(layer, name), bool):
            faults.append(f"{name} is {given!r}; give True or False")
    if not callable(layer.activation):
        faults.append(f"activation is {layer.activation!r}; give a function such as jax.nn.relu")
    if not isinstance(layer.name, str):
        faults.append(f"name is {layer.name!r}; give a string")
    if not _number(layer.jitter) or not 0 <= layer.jitter < 1:
        faults.append(f"jitter is {layer.jitter!r}; give 0 to 1, such as 0.01")
    return faults


def _late_drop_faults(layer: "MoELayer", slots: tuple[Any, Any]) -> list[str]:
    router = layer.routing
    after = isinstance(router, Top2) and router.normalize_after_dropping is True
    limited = any(_number(given) for given in slots)
    if not (after and limited and layer.dispatch == "sorted"):
        return []
    return [
        "normalize_after_dropping=True knows slots, and sorted rows with a limit drop later; give "
        "dispatch 'einsum' or 'gather', or no limit (None)"
    ]


def _dtype_faults(dtypes: tuple[Any, Any]) -> list[str]:
    faults = []
    for name, given in zip(("dtype", "param_dtype"), dtypes, strict=True):
        try:
            right = jnp.issubdtype(jnp.dtype(given), jnp.floating)
        except TypeError:
            right = False
        if not right:
            given = getattr(given, "__name__", repr(given))
            faults.append(f"{name} is {given}; give a floating-point type such as jnp.bfloat16")
    return faults


def _router_faults(layer: "MoELayer", router: Router | None) -> list[str]:
    given = (layer.second_expert, layer.eval_second_expert, layer.burn_slots)
    faults = []
    if router is not None and given != ("random", "always", False):
        faults.append(
            "second_expert, eval_second_expert and burn_slots are those of Top2, and router is "
            f"{layer.routing}; give them to it, as router=Top2(...)"
        )
    if not layer.routing.sees_later_tokens:
        return faults
    who = f"router {type(layer.routing).__name__} looks at later tokens"
    if layer.causal is None:
        faults.append(f"{who}; say causal=False (an encoder) or take Top2 or TopK")
    elif layer.causal:
        faults.append(f"{who}, which a decoder (causal=True) does not have yet; take Top2 or TopK")
    if layer.dispatch == "sorted":
        faults.append(f"{who} and fills every slot; give dispatch 'einsum', 'gather' or 'auto'")
    return faults


def warn_of_few_slots(layer: "MoELayer") -> None:
    """One warning where even a balanced router would drop: most often a factor of another unit."""
    choices = float(layer.routing.choices)
    if layer.routing.sees_later_tokens:  # then slots decide how many choices there are
        return
    slots = {name: getattr(layer, name) for name in ("slots_per_token", "eval_slots_per_token")}
    few = {name: given for name, given in slots.items() if given is not None and given < choices}
    if few:
        given = " and ".join(f"{name}={value:g}" for name, value in few.items())
        warnings.warn(
            f"{layer.name}: {given} for {choices:g} choices per token: even a balanced router "
            f"drops. What DeepSpeed, MaxText, Megatron-Core, Tutel and vmoe call capacity factor 1 "
            f"is {choices:g} here, or 'choices'; if dropping is meant, filter this warning",
            UserWarning,
            # Above this function: the layer's __init__, and three of Flax that call it.
            stacklevel=6,
        )


def input_faults(
    layer: "MoELayer",
    x_GSM: Array,
    mask_GS: Array | None,
    key: jax.Array | None,
    deterministic: bool,
) -> list[str]:
    """What is wrong with what a layer is applied to, one sentence each."""
    faults = []
    if x_GSM.ndim != 3 or x_GSM.shape[-1] != layer.embed:
        faults.append(f"x has shape {x_GSM.shape}; give [groups, tokens, {layer.embed}]")
    if mask_GS is not None and mask_GS.shape != x_GSM.shape[:2]:
        faults.append(f"mask has shape {mask_GS.shape}; give {x_GSM.shape[:2]}")
    if mask_GS is not None and mask_GS.dtype != jnp.bool_:
        faults.append(f"mask is {mask_GS.dtype}; give bool, False for padding")
    if key is None:
        faults += _key_faults(layer, deterministic)
    faults += key_faults(key, x_GSM.shape[:1])
    if layer.check_finite and not (devices := Devices.around()).one:
        count = devices.mesh.size if devices.mesh else 1
        faults.append(
            f"check_finite=True stops one device and the mesh has {count}, whose others would wait "
            "for it; give check_finite=False, and the output of each step to raise_if_not_finite"
        )
    return faults


def _key_faults(layer: "MoELayer", deterministic: bool) -> list[str]:
    faults = []
    if layer.jitter and not deterministic:
        faults.append(f"jitter={layer.jitter} draws numbers and needs key=; pass a key")
    router = layer.routing
    if isinstance(router, Top2):
        name = "eval_second_expert" if deterministic else "second_expert"
        if (router.eval_second if deterministic else router.second) == "random":
            faults.append(
                f"{name}='random' draws a number per token and needs key=; pass a key, or "
                f"{name}='always' or 'never'"
            )
    return faults


def routing_faults(router: Router, routing: object, kind: str) -> list[str]:
    """What is wrong with what a router, perhaps somebody's own, has returned."""
    who = f"router {type(router).__name__}"
    if not isinstance(routing, Routing | ExpertRouting):
        return [f"{who} returned {type(routing).__name__}; return a Routing or an ExpertRouting"]
    if kind == "sorted" and isinstance(routing, ExpertRouting):
        return [
            f"{who} says sees_later_tokens=False and returned an ExpertRouting, and sorted rows "
            "need a Routing; say True, or return a Routing"
        ]
    return []
