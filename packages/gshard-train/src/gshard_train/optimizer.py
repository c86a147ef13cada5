"""Optimizers made of optax's parts, and where their state lives on the mesh."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import NamedSharding, PartitionSpec

# Makes an optimizer of the tree of names of each parameter's dimensions (`state.Model.names`).
OptimizerOfNames = Callable[[Any], optax.GradientTransformation]


def resolved(
    optimizer: optax.GradientTransformation | OptimizerOfNames, names: Any
) -> optax.GradientTransformation:
    """The optimizer for parameters whose dimensions have these names."""
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    return optimizer(names)


def adam(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: float = 1e-9,
    weight_decay: float = 0.0,
    clip_norm: float | None = 1.0,
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay, after clipping the gradient's global norm."""
    update = optax.adamw(learning_rate, b1, b2, epsilon, weight_decay=weight_decay)
    if clip_norm is None:
        return update
    return optax.chain(optax.clip_by_global_norm(clip_norm), update)


def state_shardings(
    optimizer: optax.GradientTransformation, params: Any, param_shardings: Any
) -> Any:
    """A sharding for each leaf of the optimizer's state.

    Leaves that mirror a parameter are sharded like it; counters and other scalars are replicated.

    Args:
      optimizer: the transformation.
      params: tree of arrays or `jax.ShapeDtypeStruct`.
      param_shardings: tree of `NamedSharding` of the same structure.
    """
    mesh = jax.tree.leaves(param_shardings)[0].mesh
    return optax.tree.map_params(
        optimizer,
        lambda _, sharding: sharding,
        jax.eval_shape(optimizer.init, params),
        param_shardings,
        transform_non_params=lambda _: NamedSharding(mesh, PartitionSpec()),
    )
