"""The training loss: cross-entropy of the target tokens, plus what keeps the experts balanced.

Axes: B batch, L target length, V vocabulary.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig:
    """What is added up to the loss; the reported cross-entropy never contains the other terms.

    Attributes:
      label_smoothing: share of the target distribution spread over the whole vocabulary.
      balance_weight: the paper's k, times the mean of the balance loss over MoE layers, which is
        1 when every expert gets the same share. The paper gives no value; 0.01 is that of its
        authors' released code.
      router_z_weight: times the mean over MoE layers of the squared log-sum of router logits.
    """

    label_smoothing: float = 0.1
    balance_weight: float = 0.01
    router_z_weight: float = 0.0

    def __post_init__(self):
        faults = [
            f"{name}={value} must be in [0, 1)"
            for name, value in dataclasses.asdict(self).items()
            if not 0.0 <= value < 1.0
        ]
        if faults:
            raise ValueError("LossConfig: " + "; ".join(faults))


class CrossEntropy(NamedTuple):
    """For each target token."""

    smoothed_BL: Float[Array, "B L"]  # nats, against the smoothed target, less its entropy
    plain_BL: Float[Array, "B L"]  # nats, against the target alone
    correct_BL: Bool[Array, "B L"]  # the target has the highest logit


def cross_entropy(
    logits_BLV: Float[Array, "B L V"], targets_BL: Int[Array, "B L"], label_smoothing: float
) -> CrossEntropy:
    """The cross-entropy of each target; a perfect model has 0, smoothed or not."""
    highest_BL = logits_BLV.max(axis=-1)
    log_sum_BL = jax.nn.logsumexp(logits_BLV, axis=-1)
    # A comparison instead of a gather: it vectorises, and stays local when V is split.
    is_target_BLV = targets_BL[..., None] == jnp.arange(logits_BLV.shape[-1])
    target_BL = jnp.where(is_target_BLV, logits_BLV, 0.0).sum(axis=-1)
    plain_BL = log_sum_BL - target_BL
    correct_BL = target_BL == highest_BL
    if label_smoothing == 0.0:
        return CrossEntropy(plain_BL, plain_BL, correct_BL)
    vocab = logits_BLV.shape[-1]
    low = label_smoothing / (vocab - 1)
    high = 1.0 - label_smoothing
    entropy = -(high * math.log(high) + (vocab - 1) * low * math.log(low))
    smoothed_BL = log_sum_BL - (high - low) * target_BL - low * logits_BLV.sum(axis=-1)
    return CrossEntropy(smoothed_BL - entropy, plain_BL, correct_BL)
