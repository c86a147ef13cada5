"""Learning rates as functions of the step, in optax's sense; step 0 is the first update."""

import math
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import optax

from gshard_train.errors import did_you_mean
from gshard_train.ranges import counts, not_negative, positive, raise_faults, shares


def constant(value: float) -> optax.Schedule:
    """The same rate at every step."""
    raise_faults("constant", not_negative(value=value))
    return optax.constant_schedule(value)


def inverse_sqrt(
    scale: float = 1.0, warmup_steps: int = 10_000, linear_warmup: bool = False
) -> optax.Schedule:
    """Scale / sqrt(max(step, warmup_steps)): constant, then falling (GShard, A.2).

    Args:
      scale: the rate times the square root of the step.
      warmup_steps: where it starts to fall.
      linear_warmup: whether it rises from 0 in a straight line until then, as with T5X's factors
        "constant * linear_warmup * rsqrt_decay"; the paper's is flat.
    """
    raise_faults("inverse_sqrt", not_negative(scale=scale), counts(warmup_steps=warmup_steps))

    def rate(step: Any) -> Any:
        flat = scale / jnp.sqrt(jnp.maximum(step, warmup_steps))
        return flat * jnp.minimum(1.0, step / warmup_steps) if linear_warmup else flat

    return rate


def warmup_cosine(
    peak: float, total_steps: int, warmup_share: float = 0.1, final_share: float = 0.0
) -> optax.Schedule:
    """A straight rise to `peak`, then a half cosine down to `final_share` of it.

    Args:
      peak: the highest rate.
      total_steps: where the cosine ends.
      warmup_share: share of the steps that the rise takes.
      final_share: share of the peak that is left at the end.
    """
    _check("warmup_cosine", peak, total_steps, warmup_share, final_share)
    return optax.warmup_cosine_decay_schedule(
        0.0, peak, round(warmup_share * total_steps), total_steps, end_value=peak * final_share
    )


def warmup_linear(
    peak: float, total_steps: int, warmup_share: float = 0.1, final_share: float = 0.0
) -> optax.Schedule:
    """A straight rise to `peak`, then a straight fall to `final_share` of it; see warmup_cosine."""
    _check("warmup_linear", peak, total_steps, warmup_share, final_share)
    warmup = round(warmup_share * total_steps)
    rise = optax.linear_schedule(0.0, peak, warmup)
    fall = optax.linear_schedule(peak, peak * final_share, total_steps - warmup)
    return optax.join_schedules([rise, fall], [warmup])


def create_learning_rate_scheduler(
    factors: str = "constant * linear_warmup * rsqrt_decay",
    base_learning_rate: float = 0.5,
    warmup_steps: int = 1000,
    decay_factor: float = 0.5,
    steps_per_decay: int = 20_000,
    steps_per_cycle: int = 100_000,
    step_offset: int = 0,
    min_learning_rate: float = 1e-8,
) -> optax.Schedule:
    """The product of factors by T5X's names and defaults (t5x/utils.py, the function so named).

    Args:
      factors: names joined by "*". constant: `base_learning_rate`. linear_warmup: a straight rise
        to 1 at `warmup_steps`. linear_decay: the base rate rising so, then falling by
        `decay_factor` a step; stands for constant and linear_warmup too. rsqrt_decay: 1 /
        sqrt(max(step, warmup_steps)). rsqrt_normalized_decay: the same, 1 at `warmup_steps`.
        decay_every: `decay_factor` to the number of whole `steps_per_decay`. cosine_decay: half
        cosines of `steps_per_cycle` after the warm-up, again and again.
      base_learning_rate: see constant.
      warmup_steps: see linear_warmup.
      decay_factor: see linear_decay and decay_every.
      steps_per_decay: see decay_every.
      steps_per_cycle: see cosine_decay.
      step_offset: the step that counts as 0.
      min_learning_rate: the rate is never below this.
    """
    raise_faults(
        "create_learning_rate_scheduler",
        not_negative(base_learning_rate=base_learning_rate, min_learning_rate=min_learning_rate),
        positive(decay_factor=decay_factor),
        counts(
            warmup_steps=warmup_steps,
            steps_per_decay=steps_per_decay,
            steps_per_cycle=steps_per_cycle,
        ),
        _unknown_factors(factors),
    )
    rates = _factors(
        base_learning_rate, warmup_steps, decay_factor, steps_per_decay, steps_per_cycle
    )
    chosen = [rates[name.strip()] for name in factors.split("*")]

    def rate(step: Any) -> Any:
        since = jnp.maximum(step - step_offset, 0)
        product = math.prod([one(since) for one in chosen], start=jnp.ones((), jnp.float32))
        return jnp.maximum(product, min_learning_rate)

    return rate


_FACTORS = (
    "constant",
    "linear_warmup",
    "linear_decay",
    "rsqrt_decay",
    "rsqrt_normalized_decay",
    "decay_every",
    "cosine_decay",
)


def _factors(
    base: float, warmup: int, decay_factor: float, decay_steps: int, cycle: int
) -> dict[str, optax.Schedule]:
    """Each factor as a function of the step."""

    def falling(step: Any) -> Any:
        return 1 / jnp.sqrt(jnp.maximum(step, warmup))

    def cosine(step: Any) -> Any:
        part = jnp.maximum(step - warmup, 0) / cycle % 1.0
        return 0.5 * (1 + jnp.cos(jnp.pi * part))

    functions: tuple[optax.Schedule, ...] = (
        lambda step: base,
        lambda step: jnp.minimum(step / warmup, 1.0),
        lambda step: base * jnp.minimum(step / warmup, 1 - decay_factor * (step - warmup)),
        falling,
        lambda step: falling(step) * math.sqrt(warmup),
        lambda step: decay_factor ** jnp.floor_divide(step, decay_steps),
        cosine,
    )
    return dict(zip(_FACTORS, functions, strict=True))


def _unknown_factors(factors: str) -> Iterator[str]:
    for name in (each.strip() for each in factors.split("*")):
        if name not in _FACTORS:
            yield (
                f"factors={factors!r} has {name!r}{did_you_mean(name, _FACTORS)} "
                f"(there are {', '.join(_FACTORS)})"
            )


def _check(who: str, peak: float, total_steps: int, warmup: float, final: float) -> None:
    raise_faults(
        who,
        shares(warmup_share=warmup, final_share=final),
        not_negative(peak=peak),
        counts(total_steps=total_steps),
    )
