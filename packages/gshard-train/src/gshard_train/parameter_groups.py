"""Numbers for groups of parameters, chosen by their names: weight decay, learning rates.

A parameter's name is its path in the model, joined by "/", such as `encoder/first/attention/wq`.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from gshard_train.errors import did_you_mean
from gshard_train.ranges import not_negative

ByName = Mapping[str, float] | None


class RateState(NamedTuple):
    """What the last step of `scale_by_rate` used, for whoever reports it."""

    step: Int[Array, ""]
    learning_rate: Float[Array, ""]


def learning_rate_of(opt_state: Any) -> Array | None:
    """The learning rate that made this state, the first of several; None where none is kept."""
    found = optax.tree_utils.tree_get_all_with_path(opt_state, "learning_rate")
    # Not what else may have that name, such as a label of `optax.multi_transform`.
    rates = (value for _, value in found if isinstance(value, jax.Array) and value.ndim == 0)
    return next(rates, None)


def scale_by_rate(
    learning_rate: optax.ScalarOrSchedule, scale_by_name: ByName = None
) -> optax.GradientTransformation:
    """Updates times the negative learning rate, and times a number by the parameter's name."""
    rate = learning_rate if callable(learning_rate) else optax.constant_schedule(learning_rate)

    def rate_at(step: Any) -> Array:
        try:
            return jnp.asarray(rate(step), jnp.float32)
        except (TypeError, ValueError) as error:
            name, why = getattr(rate, "__name__", type(rate).__name__), f"{error}".split("\n")[0]
            raise ValueError(
                f"learning_rate: {name} gives no number for a step ({why}); where it makes a "
                f"schedule, call it: in gin @{name}(), with brackets"
            ) from error

    def init(params: Any) -> RateState:
        _scales(params, scale_by_name)
        start = jnp.zeros((), jnp.int32)
        return RateState(start, rate_at(start))

    def update(updates: Any, state: Any, params: Any = None):
        del params
        now = rate_at(state.step)
        updates = jax.tree.map(
            lambda u, scale: (-now * scale).astype(u.dtype) * u,
            updates,
            _scales(updates, scale_by_name),
        )
        return updates, RateState(jnp.asarray(optax.safe_increment(state.step)), now)

    return optax.GradientTransformation(init, update)


def decay_weights(
    weight_decay: float, weight_decay_by_name: ByName = None
) -> optax.GradientTransformation:
    """Adds to each update a share of its parameter, chosen by the parameter's name."""

    def shares_of(params: Any) -> Any:
        return values_by_name("weight_decay_by_name", params, weight_decay_by_name, weight_decay)

    def init(params: Any) -> optax.EmptyState:
        shares_of(params)
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None):
        updates = jax.tree.map(
            lambda u, share, p: u + share * p if share else u, updates, shares_of(params), params
        )
        return updates, state

    return optax.GradientTransformation(init, update)


def values_by_name(who: str, params: Any, values: ByName, default: float) -> Any:
    """The number of each parameter: that of the first regular expression for its whole name.

    Args:
      who: what the numbers are, for messages.
      params: tree of arrays or shapes.
      values: numbers by regular expression; a parameter that none matches has the default.
      default: the number of all others.

    Raises:
      ValueError: an expression that is none, that matches no parameter, or that earlier ones
        always forestall; numbers below 0. All of them at once.
    """
    values = values or {}
    names = tree_names(params)
    found = {name: [each for each in values if _matches(each, name)] for name in names}
    faults = [*not_negative(**{f"{who}[{each!r}]": n for each, n in values.items()})]
    faults += _expression_faults(who, values, found)
    if faults:
        raise ValueError("; ".join(faults))
    numbers = [values[each[0]] if each else default for each in found.values()]
    return jax.tree.unflatten(jax.tree.structure(params), numbers)


def tree_names(params: Any) -> list[str]:
    """The name of each leaf of a tree, in the order of its leaves."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(params)
    ]


def _scales(params: Any, scale_by_name: ByName) -> Any:
    return values_by_name("learning_rate_scale_by_name", params, scale_by_name, 1.0)


def _matches(expression: str, name: str) -> bool:
    try:
        return re.fullmatch(expression, name) is not None
    except re.error:
        return False


def _expression_faults(
    who: str, values: Mapping[str, float], found: Mapping[str, list[str]]
) -> list[str]:
    faults = []
    for each in values:
        try:
            re.compile(each)
        except re.error as error:
            faults.append(f"{who}: {each!r} is no regular expression ({error})")
            continue
        matched = [expressions for expressions in found.values() if each in expressions]
        if not matched:
            last = [name.rpartition("/")[2] for name in found]
            near = did_you_mean(each, found) or did_you_mean(each.rpartition("/")[2], last)
            faults.append(
                f"{who}: {each!r} matches the whole name of no parameter{near} (names are such as "
                f"{next(iter(found), 'none')})"
            )
        elif all(expressions[0] != each for expressions in matched):
            faults.append(
                f"{who}: {each!r} never counts, since earlier expressions match the same "
                "parameters; put it first"
            )
    return faults
