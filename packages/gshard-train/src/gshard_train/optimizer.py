"""Optimizers made of optax's parts: a direction, weight decay, a learning rate.

Every one of them takes `weight_decay` and `clip_norm`, and numbers by a regular expression for
the names of parameters (`parameter_groups`): `weight_decay_by_name`, and
`learning_rate_scale_by_name`, which is times the learning rate.
"""

from collections.abc import Callable, Mapping
from typing import Any

import optax

from gshard_train.adafactor import scale_by_adafactor
from gshard_train.parameter_groups import ByName, decay_weights, scale_by_rate
from gshard_train.ranges import counts, not_negative, positive, raise_faults, shares

# Makes an optimizer of the tree of names of each parameter's dimensions (`state.Model.names`).
OptimizerOfNames = Callable[[Any], optax.GradientTransformation]


def resolved(
    optimizer: optax.GradientTransformation | OptimizerOfNames, names: Any
) -> optax.GradientTransformation:
    """The optimizer for parameters whose dimensions have these names."""
    if isinstance(optimizer, optax.GradientTransformation):
        return optimizer
    return optimizer(names)


def adafactor(
    learning_rate: optax.ScalarOrSchedule,
    decay_rate: float = 0.8,
    clipping_threshold: float | None = 1.0,
    multiply_by_parameter_scale: bool = True,
    min_dim_size_to_factor: int = 128,
    epsilon1: float = 1e-30,
    epsilon2: float = 1e-3,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    weight_decay_by_name: ByName = None,
    learning_rate_scale_by_name: ByName = None,
) -> OptimizerOfNames:
    """Adafactor as in the paper (A.2), without momentum; each layer and expert by itself.

    The arguments have T5X's names and `adafactor.scale_by_adafactor` says what they are. The
    paper's rate goes with it: `schedule.inverse_sqrt()`, times each matrix's own size.
    """
    optional = {"clipping_threshold": clipping_threshold} if clipping_threshold is not None else {}
    raise_faults(
        "adafactor",
        positive(decay_rate=decay_rate, epsilon1=epsilon1, epsilon2=epsilon2, **optional),
        counts(min_dim_size_to_factor=min_dim_size_to_factor),
        _common_faults(learning_rate, weight_decay, clip_norm),
    )

    def of_names(names: Any) -> optax.GradientTransformation:
        direction = scale_by_adafactor(
            names,
            decay_rate=decay_rate,
            clipping_threshold=clipping_threshold,
            multiply_by_parameter_scale=multiply_by_parameter_scale,
            min_dim_size_to_factor=min_dim_size_to_factor,
            epsilon1=epsilon1,
            epsilon2=epsilon2,
        )
        return _assembled(
            direction,
            learning_rate,
            weight_decay,
            clip_norm,
            weight_decay_by_name,
            learning_rate_scale_by_name,
        )

    return of_names


def adam(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.98,
    epsilon: float = 1e-9,
    weight_decay: float = 0.0,
    clip_norm: float | None = 1.0,
    weight_decay_by_name: ByName = None,
    learning_rate_scale_by_name: ByName = None,
) -> optax.GradientTransformation:
    """Adam with decoupled weight decay, after clipping the gradient's global norm."""
    raise_faults(
        "adam",
        shares(b1=b1, b2=b2),
        not_negative(epsilon=epsilon),
        _common_faults(learning_rate, weight_decay, clip_norm),
    )
    return _assembled(
        optax.scale_by_adam(b1, b2, epsilon),
        learning_rate,
        weight_decay,
        clip_norm,
        weight_decay_by_name,
        learning_rate_scale_by_name,
    )


def sgd(
    learning_rate: optax.ScalarOrSchedule,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    weight_decay_by_name: ByName = None,
    learning_rate_scale_by_name: ByName = None,
) -> optax.GradientTransformation:
    """The gradient, or its sum that fades by `momentum` a step."""
    raise_faults(
        "sgd",
        shares(momentum=momentum),
        _common_faults(learning_rate, weight_decay, clip_norm),
    )
    return _assembled(
        optax.trace(momentum, nesterov) if momentum else optax.identity(),
        learning_rate,
        weight_decay,
        clip_norm,
        weight_decay_by_name,
        learning_rate_scale_by_name,
    )


def lion(
    learning_rate: optax.ScalarOrSchedule,
    b1: float = 0.9,
    b2: float = 0.99,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    weight_decay_by_name: ByName = None,
    learning_rate_scale_by_name: ByName = None,
) -> optax.GradientTransformation:
    """Lion (arXiv 2302.06675): the sign of a fading mean; half of Adam's state."""
    raise_faults(
        "lion", shares(b1=b1, b2=b2), _common_faults(learning_rate, weight_decay, clip_norm)
    )
    return _assembled(
        optax.scale_by_lion(b1, b2),
        learning_rate,
        weight_decay,
        clip_norm,
        weight_decay_by_name,
        learning_rate_scale_by_name,
    )


def _assembled(
    direction: optax.GradientTransformation,
    learning_rate: optax.ScalarOrSchedule,
    weight_decay: float,
    clip_norm: float | None,
    weight_decay_by_name: ByName,
    learning_rate_scale_by_name: ByName,
) -> optax.GradientTransformation:
    clip = [] if clip_norm is None else [optax.clip_by_global_norm(clip_norm)]
    return optax.chain(
        *clip,
        direction,
        decay_weights(weight_decay, weight_decay_by_name),
        scale_by_rate(learning_rate, learning_rate_scale_by_name),
    )


def _common_faults(learning_rate: Any, weight_decay: float, clip_norm: float | None):
    if isinstance(learning_rate, Mapping):
        yield (
            "learning_rate is a tree of names, so the optimizer itself was called with them; call "
            "it with its own arguments: in gin with brackets, such as OPTIMIZER = @adam()"
        )
    elif not callable(learning_rate):
        yield from not_negative(learning_rate=learning_rate)
    yield from not_negative(weight_decay=weight_decay)
    if clip_norm is not None:
        yield from positive(clip_norm=clip_norm)
