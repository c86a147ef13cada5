"""One training step as a pure function of state and batch, compiled for a mesh.

Axes: B batch, L target length.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from gshard_annotate import Rules, rules_scope
from gshard_train import nonfinite
from gshard_train.accumulation import gradient_and_metrics
from gshard_train.batch_loss import Metrics as Metrics
from gshard_train.batch_loss import total_loss as total_loss
from gshard_train.loss import LossConfig
from gshard_train.parameter_groups import learning_rate_of
from gshard_train.state import Model, TrainState, shardings


class Step(Protocol):
    """A compiled step: new state and metrics of a state and a batch."""

    def __call__(
        self, state: TrainState, batch: Mapping[str, Array], /
    ) -> tuple[TrainState, Metrics]:
        """Makes the step."""
        ...

    def lower(self, state: Any, batch: Any, /) -> jax.stages.Lowered:
        """The program for arrays, or shapes, such as these."""
        ...


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

    Where loss or gradients are not finite, parameters and optimizer state stay as they were and
    only the step's number goes on; the metrics say so: `nonfinite`, and `nonfinite_tensors` and
    `nonfinite_parameters`, a flag for each of `nonfinite.pieces`, of gradients and parameters.

    Args:
      model: what is trained.
      optimizer: makes updates of gradients.
      loss: terms of the loss.
      rules: logical axis names to mesh axes.
      mesh: the devices.
      microbatches: equal blocks of the batch's rows that are computed one after the other; loss,
        metrics and gradients are those of the whole batch.
      offload_optimizer: whether the optimizer's state comes from and goes back to the memory of
        the devices' hosts.
    """
    if microbatches < 1:
        raise ValueError(f"make_step: microbatches={microbatches} must be at least 1")
    placed = shardings(model, optimizer, rules, mesh, offload_optimizer=offload_optimizer)
    on_device = shardings(model, optimizer, rules, mesh)
    rows = batch_sharding(rules, mesh)
    names = model.names()

    def step(state: TrainState, batch: Mapping[str, Array]) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        with rules_scope(rules, mesh):
            grads, metrics = gradient_and_metrics(
                state.params,
                model,
                loss,
                batch,
                key,
                microbatches=microbatches,
                batch_sharding=rows,
                param_shardings=on_device.params,
            )
        opt_state = state.opt_state
        if offload_optimizer:
            # Not before the gradients are there, when the activations' memory is free again.
            grads, opt_state = jax.lax.optimization_barrier((grads, opt_state))
            opt_state = jax.device_put(opt_state, on_device.opt_state)
        state = state._replace(opt_state=opt_state)
        return _updated(state, grads, metrics, optimizer, names)

    return jax.jit(
        step,
        in_shardings=(placed, rows),
        # Every host can read metrics that are whole on each device.
        out_shardings=(placed, NamedSharding(mesh, PartitionSpec())),
        donate_argnums=0,
    )


def batch_sharding(rules: Rules, mesh: Mesh) -> NamedSharding:
    """Where the arrays of a batch lie: [B, L], split over the batch."""
    return NamedSharding(mesh, rules.spec(("batch", "length"), mesh=mesh))


def whole_to_mesh(rows: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """The global array of rows that every process has all of."""
    return jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])


@jax.named_scope("optimizer")
def _updated(
    state: TrainState,
    grads: Any,
    metrics: Metrics,
    optimizer: optax.GradientTransformation,
    names: Any,
) -> tuple[TrainState, Metrics]:
    """The next state, with what `make_step` says of steps that are not finite, and all metrics."""
    updates, new_opt_state = optimizer.update(grads, state.opt_state, state.params)
    of_grads_P = nonfinite.sums_of_squares(grads, names)
    # Not the update: that would keep all of it in memory until the last part is known.
    bad = ~jnp.isfinite(metrics["total_loss"] + of_grads_P.sum())
    new_params = optax.apply_updates(state.params, updates)
    params = nonfinite.unless(bad, new_params, state.params)
    opt_state = nonfinite.unless(bad, new_opt_state, state.opt_state)
    of_params_P = nonfinite.sums_of_squares(params, names)
    metrics = metrics | {
        "gradient_norm": jnp.sqrt(of_grads_P.sum()),
        "update_norm": optax.tree.norm(updates),
        "parameter_norm": jnp.sqrt(of_params_P.sum()),
        "nonfinite": bad,
        "nonfinite_tensors": ~jnp.isfinite(of_grads_P),
        "nonfinite_parameters": ~jnp.isfinite(of_params_P),
    }
    if (rate := learning_rate_of(opt_state)) is not None:
        metrics["learning_rate"] = rate
    return TrainState(state.step + 1, params, opt_state, state.key), metrics
