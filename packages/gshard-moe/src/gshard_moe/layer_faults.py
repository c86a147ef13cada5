"""What a layer refuses, before anything is traced.

Axes: G groups, S tokens per group, M model width.
"""

from typing import TYPE_CHECKING, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from gshard_moe.capacity import capacity_factor_means
from gshard_moe.exchange import Dispatch, ExpertLoop
from gshard_moe.routers import Router

if TYPE_CHECKING:
    from gshard_moe.layer import MoELayer


def raise_all(who: str, faults: list[str]) -> None:
    """One ValueError with all faults in a line, or nothing when there are none."""
    if faults:
        raise ValueError(f"{who}: {'; '.join(faults)}")


def argument_faults(
    layer: "MoELayer", router: Router | None, capacity_factor: float | None
) -> list[str]:
    """What is wrong with what a layer is made of, one sentence each."""
    sizes = {name: getattr(layer, name) for name in ("num_experts", "embed", "mlp")}
    faults = [f"{name} is {n}; give at least 1" for name, n in sizes.items() if n < 1]
    for name in ("slots_per_token", "eval_slots_per_token"):
        slots = getattr(layer, name)
        if slots is not None and not slots > 0:
            faults.append(f"{name} is {slots}; give more than 0 (the paper's 2S/E is 2.0)")
    faults += layer.routing.faults(layer.num_experts)
    faults += _router_faults(layer, router)
    choices = {"dispatch": get_args(Dispatch), "experts": get_args(ExpertLoop)}
    for name, allowed in choices.items():
        if (given := getattr(layer, name)) not in allowed:
            faults.append(f"{name} is {given!r}; give one of {', '.join(map(repr, allowed))}")
    if not 0 <= layer.jitter < 1:
        faults.append(f"jitter is {layer.jitter}; give 0 to 1, such as 0.01")
    if capacity_factor is not None:
        what = capacity_factor_means(capacity_factor, float(layer.routing.choices))
        faults.append(f"capacity_factor is {what}")
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


def input_faults(
    layer: "MoELayer",
    x_GSM: Array,
    mask_GS: Array | None,
    key: jax.Array | None,
    jitter: float,
) -> list[str]:
    """What is wrong with what a layer is applied to, one sentence each."""
    faults = []
    if x_GSM.ndim != 3 or x_GSM.shape[-1] != layer.embed:
        faults.append(f"x has shape {x_GSM.shape}; give [groups, tokens, {layer.embed}]")
    if mask_GS is not None and mask_GS.shape != x_GSM.shape[:2]:
        faults.append(f"mask has shape {mask_GS.shape}; give {x_GSM.shape[:2]}")
    if mask_GS is not None and mask_GS.dtype != jnp.bool_:
        faults.append(f"mask is {mask_GS.dtype}; give bool, False for padding")
    if jitter and key is None:
        faults.append(f"jitter={jitter} draws numbers and needs key=; pass a key")
    return faults
