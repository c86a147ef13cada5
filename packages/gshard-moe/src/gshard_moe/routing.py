"""Where each token goes, in index form: what gating decides and dispatch carries out.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, K choices per token.
"""

import dataclasses

import jax
from jaxtyping import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Routing:
    """Where each token goes, by token and choice.

    Attributes:
      expert_GSK: The expert of each choice. Of padding it means nothing.
      slot_GSK: Its slot in that expert and group; `capacity` where the choice has none.
      weight_GSK: What the expert's output is multiplied with; 0 where the choice has no slot.
      chosen_GSK: Whether the choice asked for a slot: no padding, and its coin was won.
      kept_GSK: Whether it got one.
      capacity: Slots per group and expert, C.
      num_experts: E.
    """

    expert_GSK: Int[Array, "G S K"]
    slot_GSK: Int[Array, "G S K"]
    weight_GSK: Float[Array, "G S K"]
    chosen_GSK: Bool[Array, "G S K"]
    kept_GSK: Bool[Array, "G S K"]
    capacity: int = dataclasses.field(metadata={"static": True})
    num_experts: int = dataclasses.field(metadata={"static": True})
