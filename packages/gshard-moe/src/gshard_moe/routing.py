"""Where each token goes, in index form: what gating decides and dispatch carries out.

`Routing` lists by token and choice what tokens chose; `ExpertRouting` lists by expert and slot what
experts chose, since a token may then have any number of experts.

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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ExpertRouting:
    """Which token each expert takes, by expert and slot.

    Attributes:
      token_GEC: The token in each slot; in range also where the slot is free.
      weight_GEC: What the expert's output is multiplied with; 0 where the slot is free.
      kept_GEC: Whether a token is in the slot: False where fewer than C are no padding.
      num_tokens: Tokens per group, S.
    """

    token_GEC: Int[Array, "G E C"]
    weight_GEC: Float[Array, "G E C"]
    kept_GEC: Bool[Array, "G E C"]
    num_tokens: int = dataclasses.field(metadata={"static": True})

    @property
    def num_experts(self) -> int:
        """E."""
        return self.kept_GEC.shape[-2]

    @property
    def capacity(self) -> int:
        """Slots per group and expert, C."""
        return self.kept_GEC.shape[-1]
