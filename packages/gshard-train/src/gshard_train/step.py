"""One training step as a pure function of state and batch, compiled for a mesh.

Axes: B batch, L target length.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, PRNGKeyArray

from gshard_annotate import Rules, annotate, rules_scope
from gshard_moe import MoEOutput
from gshard_moe.statistics import summary
from gshard_train.loss import LossConfig, cross_entropy
from gshard_train.models.packing import packing_of
from gshard_train.state import Model, Params, TrainState, shardings

Metrics = dict[str, Array]
Step = Callable[[TrainState, Mapping[str, Array]], tuple[TrainState, Metrics]]


def make_step(
    model: Model,
    optimizer: optax.GradientTransformation,
    loss: LossConfig,
    rules: Rules,
    mesh: Mesh,
    *,
    microbatches: int = 1,
    offload_optimizer: bool = False,
) -> Step:
    """The compiled training step; the state it is given is consumed (donated).

    The step's random key is derived from the run's key and the step number alone, so a resumed run
    draws what the uninterrupted one would have drawn.
    """
    if microbatches != 1 or offload_optimizer:
        raise ValueError(
            f"make_step: microbatches={microbatches} and offload_optimizer={offload_optimizer} "
            "must be 1 and False"
        )

    def step(state: TrainState, batch: Mapping[str, Array]) -> tuple[TrainState, Metrics]:
        with rules_scope(rules, mesh):
            key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
            gradient = jax.value_and_grad(total_loss, has_aux=True)
            (_, metrics), grads = gradient(state.params, model, loss, batch, key)
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            metrics |= {
                "gradient_norm": optax.tree.norm(grads),
                "update_norm": optax.tree.norm(updates),
            }
            return TrainState(state.step + 1, params, opt_state, state.key), metrics

    state = shardings(model, optimizer, rules, mesh)
    return jax.jit(
        step,
        in_shardings=(state, batch_sharding(rules, mesh)),
        out_shardings=(state, None),
        donate_argnums=0,
    )


def batch_sharding(rules: Rules, mesh: Mesh) -> NamedSharding:
    """Where the arrays of a batch lie: [B, L], split over the batch."""
    return NamedSharding(mesh, rules.spec(("batch", "length"), mesh=mesh))


def total_loss(
    params: Params,
    model: Model,
    loss: LossConfig,
    batch: Mapping[str, Array],
    key: PRNGKeyArray | None,
) -> tuple[Array, Metrics]:
    """The loss to minimise, and the metrics of the batch.

    The cross-entropy is a mean over all target tokens of the global batch, and the balance loss a
    mean over groups and layers: neither changes with the number of devices.
    """
    weights_BL = annotate(batch["decoder_loss_weights"] > 0, "batch", "target_length")
    logits_BLV, output = model.merge(params)(
        batch["encoder_input_tokens"],
        batch["decoder_input_tokens"],
        weights_BL,
        key=key,
        packing=packing_of(batch),
    )
    targets_BL = batch["decoder_target_tokens"]
    entropy = cross_entropy(logits_BLV, targets_BL, loss.label_smoothing)
    count = jnp.maximum(weights_BL.sum(), 1)

    def mean(values_BL: Array) -> Array:
        """Over the target tokens of the global batch."""
        return jnp.where(weights_BL, values_BL, 0.0).sum() / count

    total = mean(entropy.smoothed_BL)
    metrics = {
        "loss": mean(entropy.plain_BL),
        "accuracy": mean(entropy.correct_BL),
        "target_tokens": count,
        "source_tokens": (batch["encoder_input_tokens"] != 0).sum(),
    }
    if output is not None:
        total += loss.balance_weight * output.balance_loss.mean()
        total += loss.router_z_weight * output.z_loss.mean()
        metrics |= expert_metrics(output)
    return total, metrics | {"total_loss": total}


def expert_metrics(output: MoEOutput) -> Metrics:
    """What the MoE layers report, all layers together: losses, drops, load, entropy."""
    total = jax.tree.map(lambda layers: layers.sum(axis=0), output.statistics)
    return {
        "balance_loss": output.balance_loss.mean(),
        "router_z_loss": output.z_loss.mean(),
        **summary(total),
    }
