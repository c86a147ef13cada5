"""The gradient of a batch, whole or block by block with room for one block's activations.

Axes: X microbatches, B batch, L length.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from gshard_train.batch_loss import Batch, Metrics, loss_of_part, metrics_of, total_loss, totals_of
from gshard_train.loss import LossConfig
from gshard_train.state import Model, Params


def gradient_and_metrics(
    params: Params,
    model: Model,
    loss: LossConfig,
    batch: Batch,
    key: PRNGKeyArray,
    *,
    microbatches: int,
    batch_sharding: NamedSharding,
    param_shardings: Any,
) -> tuple[Params, Metrics]:
    """The gradient of the loss of a global batch, and the batch's metrics.

    Microbatch m of M is the m-th block of rows, so that groups stay whole and the numbers do not
    depend on the mesh. Each block is spread over all devices again: token ids cross between them,
    four bytes each, before anything is computed.

    Args:
      params: the parameters.
      model: the model they belong to.
      loss: terms of the loss.
      batch: the global batch, [B, L] each.
      key: of the step.
      microbatches: M; 1 computes the batch as a whole.
      batch_sharding: where the rows of a batch lie.
      param_shardings: where the parameters lie; the sum of gradients lies there too.
    """
    if microbatches == 1:
        return jax.grad(total_loss, has_aux=True)(params, model, loss, batch, key)
    totals = totals_of(batch, loss)
    blocks = jax.tree.map(
        lambda rows: _blocks(rows, microbatches, batch_sharding), (dict(batch), totals.share_BL)
    )

    def add(summed: Params, inputs: Any):
        number, (rows, share_BL) = inputs
        of_block = totals._replace(share_BL=share_BL)
        grads, sums = jax.grad(loss_of_part, has_aux=True)(
            params, model, loss, rows, of_block, key, (number, microbatches)
        )
        with jax.named_scope("optimizer"):
            summed = jax.tree.map(lambda so_far, g: so_far + g.astype(so_far.dtype), summed, grads)
        return jax.lax.with_sharding_constraint(summed, param_shardings), sums

    zeros = jax.tree.map(
        lambda p: jnp.zeros(p.shape, jnp.promote_types(p.dtype, jnp.float32)), params
    )
    zeros = jax.lax.with_sharding_constraint(zeros, param_shardings)
    grads, sums = jax.lax.scan(add, zeros, (jnp.arange(microbatches), blocks))
    sums = jax.tree.map(lambda parts: parts.sum(axis=0), sums)
    return grads, metrics_of(sums, totals)


def _blocks(rows_BL: Array, count: int, sharding: NamedSharding) -> Array:
    """Rows as [X, B / X, L], each block on all devices."""
    rows_XBL = rows_BL.reshape(count, -1, *rows_BL.shape[1:])
    spec = PartitionSpec(None, *sharding.spec)
    return jax.lax.with_sharding_constraint(rows_XBL, NamedSharding(sharding.mesh, spec))
