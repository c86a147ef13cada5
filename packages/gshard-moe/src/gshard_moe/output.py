"""What a layer returns beside its output, and what a loss makes of it."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from gshard_moe.statistics import LabelStatistics, Statistics

Aggregation = Literal["mean", "sum"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MoEOutput:
    """What a layer returns beside its output, unweighted.

    Attributes:
      balance_loss: 1 for a balanced router; the authors' code weighs it with 0.01.
      z_loss: Mean squared logsumexp of the router logits; ST-MoE weighs it with 0.001.
      statistics: Sums that add up over layers and steps.
      batch_independent: Whether the layer's settings make a token's output a function of that
        token alone: nothing can be dropped, no coin, noise or comparison looks at others, and
        tokens are not sent by einsums, where NaN times 0 reaches the whole group.
      non_finite: How many router logits were NaN or infinite: for `raise_if_not_finite`.
      by_label: The table label x expert, where the layer was called with labels.
    """

    balance_loss: Float[Array, "*layers"]
    z_loss: Float[Array, "*layers"]
    statistics: Statistics
    batch_independent: bool = dataclasses.field(default=False, metadata={"static": True})
    non_finite: Float[Array, "*layers"] = dataclasses.field(default_factory=lambda: jnp.zeros(()))
    by_label: LabelStatistics | None = None


def auxiliary_loss(
    outputs: MoEOutput | Sequence[MoEOutput],
    *,
    aggregation: Aggregation,
    balance_weight: float = 0.01,
    z_weight: float = 0.001,
) -> Float[Array, ""]:
    """The weighted balance and z-losses of several layers, to add to a task's mean loss.

    Args:
      outputs: One per layer, or one whose arrays `scan` stacked over layers.
      aggregation: "mean" over layers (T5X, MegaBlocks), so that weights do not depend on depth, or
        "sum" (lingvo, Mesh TensorFlow): with 18 layers 18 times as much.
      balance_weight: 0.01 in the authors' code.
      z_weight: 0.001 in ST-MoE; the authors' code has none.

    Raises:
      ValueError: No such aggregation.
    """
    if aggregation not in get_args(Aggregation):
        raise ValueError(f"auxiliary_loss: aggregation is {aggregation!r}; give 'mean' or 'sum'")
    outputs = [outputs] if isinstance(outputs, MoEOutput) else outputs
    layers = [
        balance_weight * output.balance_loss.ravel() + z_weight * output.z_loss.ravel()
        for output in outputs
    ]
    total = jnp.concatenate(layers) if layers else jnp.zeros((0,))
    return total.mean() if aggregation == "mean" and layers else total.sum()
