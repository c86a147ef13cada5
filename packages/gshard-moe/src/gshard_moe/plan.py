"""How a layer dispatches one call: the kind, and the slots or rows it has for it."""

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

from gshard_moe.capacity import capacity
from gshard_moe.exchange import rows_are_faster

if TYPE_CHECKING:
    from gshard_moe.layer import MoELayer

# Slots of a group that an evaluation pads up to where slots were asked for.
_PADDED_SLOTS = 2**15


class Plan(NamedTuple):
    """Kind of dispatch, slots of an expert and group, and slots or rows per token (None: all)."""

    kind: Literal["einsum", "gather", "sorted"]
    capacity: int
    rows_per_token: float | None

    @property
    def unlimited(self) -> bool:
        """Whether nothing can be dropped."""
        return self.rows_per_token is None


def plan_of(layer: "MoELayer", groups: int, group_size: int, *, deterministic: bool) -> Plan:
    """What the layer does with so many groups of so many tokens."""
    slots = layer.eval_slots_per_token if deterministic else layer.slots_per_token
    if slots is None and layer.routing.sees_later_tokens:
        # It fills every slot there is: more of them drop nothing less and are another model.
        slots = layer.slots_per_token
    # Gathers are the fastest on CPU and GPU, and by the compiler's estimate on TPU.
    kind = "gather" if layer.dispatch == "auto" else layer.dispatch
    unlimited = slots is None and not layer.routing.sees_later_tokens
    if deterministic and unlimited and _sorts(layer, groups, group_size):
        kind = "sorted"
    if kind == "sorted":
        return Plan(kind, group_size, slots)
    slots_of_each = capacity(
        group_size,
        layer.num_experts,
        slots_per_token=slots,
        minimum=layer.min_slots,
        multiple_of=layer.slots_multiple_of,
    )
    return Plan(kind, slots_of_each, slots)


def _sorts(layer: "MoELayer", groups: int, group_size: int) -> bool:
    """Whether an evaluation without limit sorts."""
    if layer.eval_padded_slots is None and layer.dispatch == "auto":
        choices = math.ceil(layer.routing.choices)
        return rows_are_faster(groups, group_size, layer.num_experts, choices)
    most = _PADDED_SLOTS if layer.eval_padded_slots is None else layer.eval_padded_slots
    return layer.num_experts * group_size > most
