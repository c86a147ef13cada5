"""Tokens to the devices of their experts, through the experts, and back (Algorithm 2, lines 3-8).

Each change of a tensor's split from groups to experts or back is one all-to-all.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width; X parts
of experts, D units of groups, N blocks, R rows of a block.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from gshard_annotate import DEFAULT_RULES, annotate, mesh_split
from gshard_annotate.checks import axes_size, mesh_sizes
from gshard_annotate.placement import AnyMesh, find_mesh
from gshard_annotate.rules import Rules
from gshard_annotate.scope import current_scope
from gshard_moe import dispatch as dispatching
from gshard_moe.experts import Activation, Experts, batched, by_blocks, one_by_one
from gshard_moe.routing import ExpertRouting, Routing
from gshard_moe.sorting import (
    Sorted,
    combine_sorted,
    dispatch_sorted,
    rows_without_limit,
    sort,
)

# From 0.11 on the CPU compiler multiplies batches as fast as single matrices or faster (measured:
# forward 35 against 42 ms with 128 experts, 99 against 100 ms with 16); before, it was slower.
_BATCHES_ON_CPU = jax.__version_info__ >= (0, 11)

Dispatch = Literal["auto", "einsum", "gather", "sorted"]
ExpertLoop = Literal["auto", "batched", "one_by_one"]


@dataclasses.dataclass(frozen=True)
class Devices:
    """What the mesh around says to a layer.

    Attributes:
      mesh: The mesh; None on one device without any.
      rules: What logical names mean on it.
    """

    mesh: AnyMesh | None
    rules: Rules

    @classmethod
    def around(cls) -> "Devices":
        """Those of the innermost `rules_scope`, else of `jax.set_mesh`."""
        scope = current_scope()
        mesh = find_mesh("MoELayer", None, needed=False)
        return cls(mesh, scope.rules if scope else DEFAULT_RULES)

    def parts(self, name: str) -> int:
        """Into how many parts a dimension of this name is split."""
        if self.mesh is None:
            return 1
        return axes_size(self.rules.mesh_axes(name, self.mesh), mesh_sizes(self.mesh))

    def split(self, x: Array, names: dict[int, str]) -> Array:
        """`x` split by the rules of these names, which here may have sizes of their own."""
        if self.mesh is None:
            return x
        axes = [self.rules.mesh_axes(name, self.mesh) for name in names.values()]
        return mesh_split(x, list(names), axes, mesh=self.mesh)

    @property
    def one(self) -> bool:
        """Whether there is one device only."""
        return self.mesh is None or self.mesh.size == 1


def through_slots(
    x_GSM: Float[Array, "G S M"],
    routing: Routing | ExpertRouting,
    experts: Experts,
    activation: Activation,
    *,
    kind: Literal["einsum", "gather"],
    loop: ExpertLoop,
) -> Float[Array, "G S M"]:
    """The experts' weighted outputs, by padded slots: C of each expert for each group."""
    send, fetch = _PAIRS[kind]
    # Copied into slots where the tokens are, then sent to where the experts are.
    x_EGCM = annotate(send(x_GSM, routing), None, "group", "capacity", "act_embed")
    x_EGCM = annotate(x_EGCM, "expert", "dispatched_group", "capacity", "act_embed")
    x_EGCM = checkpoint_name(x_EGCM, "moe_dispatch")
    y_EGCM = _experts_of_slots(x_EGCM, experts, activation, loop)
    y_EGCM = annotate(y_EGCM, "expert", "dispatched_group", "capacity", "act_embed")
    y_EGCM = annotate(y_EGCM, None, "group", "capacity", "act_embed")
    y_EGCM = checkpoint_name(y_EGCM, "moe_combine")
    return fetch(y_EGCM, routing)


def through_rows(
    x_GSM: Float[Array, "G S M"],
    routing: Routing,
    experts: Experts,
    activation: Activation,
    *,
    slots_per_token: float | None,
    expert_parts: int | None,
) -> tuple[Float[Array, "G S M"], Routing]:
    """The experts' weighted outputs, by sorted rows, and the routing without what overflowed."""
    devices = Devices.around()
    order = _sort(routing, devices, slots_per_token, expert_parts)
    x_XDNRM = devices.split(dispatch_sorted(x_GSM, order), {1: "group"})
    x_XDNRM = devices.split(x_XDNRM, {0: "expert", 1: "dispatched_group"})
    x_XDNRM = checkpoint_name(x_XDNRM, "moe_dispatch")
    y_XDNRM = _experts_of_rows(x_XDNRM, order, experts, activation, devices)
    y_XDNRM = devices.split(y_XDNRM, {0: "expert", 1: "dispatched_group"})
    y_XDNRM = devices.split(y_XDNRM, {1: "group"})
    y_XDNRM = checkpoint_name(y_XDNRM, "moe_combine")
    return combine_sorted(y_XDNRM, order), order.routing


def rows_are_faster(groups: int, group_size: int, num_experts: int, choices: int) -> bool:
    """Whether sorted rows without a limit beat S slots of each expert.

    On CPU rows took as long as slots where slots were 1 to 1.6 times as many, and a half at 3 times
    (2 to 64 experts, 1 and 2 choices).
    """
    devices = Devices.around()
    units, parts = devices.parts("group"), devices.parts("expert")
    if groups % units or num_experts % parts:
        return False
    tokens = groups // units * group_size
    return tokens * num_experts > 2 * rows_without_limit(tokens, choices, num_experts, parts)


_PAIRS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "einsum": (dispatching.dispatch_einsum, dispatching.combine_einsum),
    "gather": (dispatching.dispatch_gather, dispatching.combine_gather),
}


@jax.named_scope("experts")
def _experts_of_slots(
    x_EGCM: Array, experts: Experts, activation: Activation, loop: ExpertLoop
) -> Array:
    def all_at_once(x_EGCM: Array, experts: Experts) -> Array:
        return batched(x_EGCM, experts, activation, _annotate_hidden)

    def each(x_EGCM: Array, experts: Experts) -> Array:
        return one_by_one(x_EGCM, experts, activation)

    devices = Devices.around()
    if loop == "one_by_one" and not devices.one:
        raise ValueError(
            f"MoELayer: experts='one_by_one' is for one device, and the mesh has "
            f"{devices.mesh.size if devices.mesh else 1}; give 'auto' or 'batched'"
        )
    if loop == "auto" and devices.one and not _BATCHES_ON_CPU:
        return jax.lax.platform_dependent(x_EGCM, experts, cpu=each, default=all_at_once)
    return (each if loop == "one_by_one" else all_at_once)(x_EGCM, experts)


def _annotate_hidden(h_EGCH: Array) -> Array:
    return annotate(h_EGCH, "expert", "dispatched_group", "capacity", "act_mlp")


def _sort(
    routing: Routing, devices: Devices, slots_per_token: float | None, expert_parts: int | None
) -> Sorted:
    """The order of the rows: of units and parts as devices need them, where that changes nothing.

    What overflows a limited buffer depends on its parts and units; those are then one per group and
    the caller's, so that routing does not depend on devices.
    """
    G, _, K = routing.kept_GSK.shape
    parts = devices.parts("expert")
    limited = slots_per_token is not None and (slots_per_token < K or (expert_parts or parts) > 1)
    if limited and (expert_parts or 1) % parts:
        raise ValueError(
            f"MoELayer: slots_per_token={slots_per_token:g} limits the rows of each part of the "
            f"experts, and experts are split over {parts} devices; give expert_parts={parts} or a "
            "multiple, the same on any number of devices, or slots_per_token=None for no limit"
        )
    return sort(
        routing,
        expert_parts=expert_parts or (1 if limited else parts),
        group_units=G if limited else devices.parts("group"),
        slots_per_token=slots_per_token if limited else None,
    )


@jax.named_scope("experts")
def _experts_of_rows(
    x_XDNRM: Array, order: Sorted, experts: Experts, activation: Activation, devices: Devices
) -> Array:
    """All units that a device has are one: their blocks lie behind one another."""
    X, D, N, R, M = x_XDNRM.shape
    if X == experts.wi_EMH.shape[0] > 1:
        # One expert in each part: all its blocks are one matmul, instead of one after the other,
        # each of which would read the matrices again.
        x_EGCM = x_XDNRM.reshape(X, D, N * R, M)
        return batched(x_EGCM, experts, activation, _annotate_hidden).reshape(x_XDNRM.shape)
    merged = devices.parts("dispatched_group")
    y = by_blocks(
        x_XDNRM.reshape(X, merged, D // merged * N, R, M),
        experts,
        activation,
        order.expert_XDN.reshape(X, merged, -1),
        order.used_XDN.reshape(X, merged, -1),
        ascending=merged == D,
    )
    return y.reshape(X, D, N, R, M)
