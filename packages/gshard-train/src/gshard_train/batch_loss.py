"""The loss and the metrics of a global batch, whole or in parts that add up.

Target tokens are those that are no padding; how much each counts is its `decoder_loss_weights`.
Axes: B batch, L target length.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gshard_annotate import annotate
from gshard_moe import MoEOutput
from gshard_moe.statistics import Statistics, summary
from gshard_train.loss import CrossEntropy, LossConfig, cross_entropy, divisor, loss_shares
from gshard_train.models.packing import packing_of
from gshard_train.models.transformer import PAD_ID
from gshard_train.state import Model, Params

Metrics = dict[str, Array]
Batch = Mapping[str, Array]


class Totals(NamedTuple):
    """What the loss of a part needs to know of the whole batch."""

    share_BL: Float[Array, "B L"]  # how much of each target token's loss counts; of the part's rows
    scale: Float[Array, ""]  # the sum of all shares: 1 for a mean over tokens
    weight: Float[Array, ""]  # the sum of all weights, the number of target tokens if these are 1
    source_tokens: Int[Array, ""]
    target_tokens: Int[Array, ""]
    sequences: Int[Array, ""]  # with a target token; packed, several a row


class Sums(NamedTuple):
    """What adds up over the parts of a batch; `metrics_of` makes metrics of it."""

    total: Float[Array, ""]  # of the loss to minimise
    nats: Float[Array, ""]  # cross-entropy over target tokens, weighted as the next two are
    correct: Float[Array, ""]
    squared_log_z: Float[Array, ""]
    balance: Float[Array, " layers"] | None  # parts of the batch's means; None for a dense model
    router_z: Float[Array, " layers"] | None
    statistics: Statistics | None  # a leading axis counts layers


def total_loss(
    params: Params, model: Model, loss: LossConfig, batch: Batch, key: PRNGKeyArray | None
) -> tuple[Array, Metrics]:
    """The loss to minimise, and the metrics of the batch; without a key as in evaluation.

    The cross-entropy is a weighted mean over all target tokens of the global batch, and the balance
    loss a mean over groups and layers: neither changes with the number of devices.
    """
    totals = totals_of(batch, loss)
    total, sums = loss_of_part(params, model, loss, batch, totals, key)
    return total, metrics_of(sums, totals)


@jax.named_scope("loss")
def totals_of(batch: Batch, loss: LossConfig) -> Totals:
    """What the loss of any part of this global batch is measured by."""
    weight_BL, mask_BL = _weights(batch), batch["decoder_target_tokens"] != PAD_ID
    segment_BL = batch.get("decoder_segment_ids")
    share_BL = loss_shares(weight_BL, loss.loss_normalizing_factor, segment_BL)
    return Totals(
        share_BL=share_BL,
        scale=share_BL.sum(),
        weight=divisor(weight_BL.sum()),
        source_tokens=(batch["encoder_input_tokens"] != PAD_ID).sum(),
        target_tokens=jnp.maximum(mask_BL.sum(), 1),
        sequences=_sequences(mask_BL, segment_BL),
    )


def loss_of_part(
    params: Params,
    model: Model,
    loss: LossConfig,
    batch: Batch,
    totals: Totals,
    key: PRNGKeyArray | None,
    microbatch: tuple[Any, int] = (0, 1),
) -> tuple[Array, Sums]:
    """What some rows of a global batch add to its loss, and to the sums its metrics come from.

    Args:
      params: the parameters.
      model: the model they belong to.
      loss: terms of the loss.
      batch: the rows.
      totals: of the global batch, with the shares of these rows.
      key: of the step; None for evaluation.
      microbatch: (m, M): the rows are the m-th of M blocks of the batch.
    """
    mask_BL = annotate(batch["decoder_target_tokens"] != PAD_ID, "batch", "target_length")
    weight_BL = annotate(_weights(batch), "batch", "target_length")
    logits_BLV, output = model.merge(params)(
        batch["encoder_input_tokens"],
        batch["decoder_input_tokens"],
        mask_BL,
        key=key,
        packing=packing_of(batch),
        microbatch=microbatch,
    )
    with jax.named_scope("loss"):
        entropy = cross_entropy(logits_BLV, batch["decoder_target_tokens"], loss.label_smoothing)
        sums = _sums(
            entropy, weight_BL, None if output is None else _of_batch(output, model, totals)
        )
        per_token_BL = entropy.smoothed_BL + loss.z_weight * jnp.square(entropy.log_z_BL)
        total = jnp.where(weight_BL > 0, totals.share_BL * per_token_BL, 0.0).sum()
    if sums.balance is not None and sums.router_z is not None:
        auxiliary = loss.balance_weight * sums.balance + loss.router_z_weight * sums.router_z
        total += totals.scale * auxiliary.mean()
    return total, sums._replace(total=total)


@jax.named_scope("loss")
def metrics_of(sums: Sums, totals: Totals) -> Metrics:
    """The metrics of a global batch from the sums of its parts.

    `loss` is the cross-entropy in nats a target token, without smoothing and other terms; these
    are reported without their weights, and `total_loss` is what is minimised.
    """
    metrics = {
        "loss": sums.nats / totals.weight,
        "accuracy": sums.correct / totals.weight,
        "z_loss": sums.squared_log_z / totals.weight,
        "total_loss": sums.total,
        "source_tokens": totals.source_tokens,
        "target_tokens": totals.target_tokens,
        "sequences": totals.sequences,
    }
    if sums.balance is None or sums.router_z is None or sums.statistics is None:
        return metrics
    return metrics | {
        "balance_loss": sums.balance.mean(),
        "router_z_loss": sums.router_z.mean(),
        "expert_load": sums.statistics.load_E,
        **summary(jax.tree.map(lambda layers: layers.sum(axis=0), sums.statistics)),
    }


def _weights(batch: Batch) -> Float[Array, "B L"]:
    # JAX's float is float32, and float64 where that is switched on.
    return jnp.maximum(batch["decoder_loss_weights"], 0).astype(float)


def _sequences(mask_BL: Bool[Array, "B L"], segment_BL: Int[Array, "B L"] | None) -> Int[Array, ""]:
    """How many sequences have a target token."""
    if segment_BL is None:
        return mask_BL.any(axis=1).sum()
    # Sorted, the tokens of a segment lie beside each other; what is no target comes first.
    sorted_BL = jnp.sort(jnp.where(mask_BL, segment_BL, -1), axis=1)
    before_BL = jnp.pad(sorted_BL, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    return (sorted_BL != before_BL).sum()


def _sums(entropy: CrossEntropy, weight_BL: Array, output: MoEOutput | None) -> Sums:
    def over_tokens(values_BL: Array) -> Array:
        return jnp.where(weight_BL > 0, weight_BL * values_BL, 0.0).sum()

    return Sums(
        total=jnp.zeros(()),
        nats=over_tokens(entropy.plain_BL),
        correct=over_tokens(entropy.correct_BL),
        squared_log_z=over_tokens(jnp.square(entropy.log_z_BL)),
        balance=None if output is None else output.balance_loss,
        router_z=None if output is None else output.z_loss,
        statistics=None if output is None else output.statistics,
    )


def _of_batch(output: MoEOutput, model: Model, totals: Totals) -> MoEOutput:
    """The layers' report with losses that add up to the batch's means over its tokens."""
    layers = model.config.num_encoder_layers // 2, model.config.num_decoder_layers // 2
    tokens = jnp.repeat(
        jnp.stack([totals.source_tokens, totals.target_tokens]),
        jnp.array(layers),
        total_repeat_length=sum(layers),
    )
    part = output.statistics.tokens / jnp.maximum(tokens, 1)
    return dataclasses.replace(
        output, balance_loss=output.balance_loss * part, z_loss=output.z_loss * part
    )
