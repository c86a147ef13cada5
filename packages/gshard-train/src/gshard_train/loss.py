"""The training loss: cross-entropy of the target tokens, plus what keeps the experts balanced.

Axes: B batch, L target length, V vocabulary.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_train.errors import did_you_mean
from gshard_train.ranges import positive, raise_faults, shares

# T5X's names of what the loss is divided by.
NORMALIZERS = ("NUM_REAL_TARGET_TOKENS", "NUM_TOTAL_TARGET_TOKENS", "AVERAGE_PER_SEQUENCE")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig:
    """What is added up to the loss; the reported cross-entropy never contains the other terms.

    With the default normalisation the loss is the mean over the batch's target tokens of
    cross-entropy + z_weight * z, plus balance_weight and router_z_weight times theirs. Any other
    multiplies all of that by the same number, so each weight means the same under every one.

    Attributes:
      label_smoothing: share of the target distribution spread over the whole vocabulary.
      balance_weight: the paper's k, times the mean of the balance loss over MoE layers, which is
        1 when every expert gets the same share. The paper gives no value; 0.01 is that of its
        authors' released code.
      router_z_weight: times the mean over MoE layers of the squared log-sum of router logits.
      z_weight: times the squared log-sum of output logits; its authors' code has 1e-4.
      loss_normalizing_factor: T5X's LOSS_NORMALIZING_FACTOR. "NUM_REAL_TARGET_TOKENS" divides the
        weighted sum over target tokens by the sum of their weights, which is their number where
        these are 1; "NUM_TOTAL_TARGET_TOKENS" by the number of target positions, a number by that
        number, None by nothing; "AVERAGE_PER_SEQUENCE" takes the mean over sequences of each
        one's mean.
    """

    label_smoothing: float = 0.1
    balance_weight: float = 0.01
    router_z_weight: float = 0.0
    z_weight: float = 0.0
    loss_normalizing_factor: float | str | None = "NUM_REAL_TARGET_TOKENS"

    def __post_init__(self):
        weights = dataclasses.asdict(self)
        factor = weights.pop("loss_normalizing_factor")
        raise_faults("LossConfig", shares(**weights), _factor_faults(factor))


class CrossEntropy(NamedTuple):
    """For each target token."""

    smoothed_BL: Float[Array, "B L"]  # nats, against the smoothed target, less its entropy
    plain_BL: Float[Array, "B L"]  # nats, against the target alone
    correct_BL: Bool[Array, "B L"]  # the target has the highest logit
    log_z_BL: Float[Array, "B L"]  # log-sum of the logits


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
        return CrossEntropy(plain_BL, plain_BL, correct_BL, log_sum_BL)
    vocab = logits_BLV.shape[-1]
    low = label_smoothing / (vocab - 1)
    high = 1.0 - label_smoothing
    entropy = -(high * math.log(high) + (vocab - 1) * low * math.log(low))
    smoothed_BL = log_sum_BL - (high - low) * target_BL - low * logits_BLV.sum(axis=-1)
    return CrossEntropy(smoothed_BL - entropy, plain_BL, correct_BL, log_sum_BL)


def loss_shares(
    weight_BL: Float[Array, "B L"],
    factor: float | str | None,
    segment_BL: Int[Array, "B L"] | None = None,
) -> Float[Array, "B L"]:
    """How much of each token's loss counts in the loss of a whole global batch.

    Args:
      weight_BL: of target tokens, at least 0; 1 for a token that counts in full.
      factor: see `LossConfig.loss_normalizing_factor`.
      segment_BL: which sequence of its row a token belongs to; None for one sequence a row.
    """
    if factor is None:
        return weight_BL
    if not isinstance(factor, str):
        return weight_BL / factor
    if factor == "NUM_TOTAL_TARGET_TOKENS":
        return weight_BL / weight_BL.size
    if factor == "AVERAGE_PER_SEQUENCE":
        weight_BL /= divisor(_sequence_weights(weight_BL, segment_BL))
    # Of sequences it is their number up to rounding.
    return weight_BL / divisor(weight_BL.sum())


def divisor(sum_of_weights: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """Sums of weights to divide by: 1 where nothing counts."""
    return jnp.where(sum_of_weights > 0, sum_of_weights, 1.0)


def _sequence_weights(
    weight_BL: Float[Array, "B L"], segment_BL: Int[Array, "B L"] | None
) -> Float[Array, "B _"]:
    """The sum of the weights of each position's sequence."""
    if segment_BL is None:
        return weight_BL.sum(axis=1, keepdims=True)
    same_BLL = segment_BL[:, :, None] == segment_BL[:, None, :]
    return jnp.where(same_BLL, weight_BL[:, None, :], 0.0).sum(axis=2)


def _factor_faults(factor: Any) -> Iterator[str]:
    if isinstance(factor, str) and factor not in NORMALIZERS:
        yield (
            f"loss_normalizing_factor={factor!r} must be a number, None or one of "
            f"{', '.join(NORMALIZERS)}{did_you_mean(factor, NORMALIZERS)}"
        )
    elif factor is not None and not isinstance(factor, str):
        yield from positive(loss_normalizing_factor=factor)
