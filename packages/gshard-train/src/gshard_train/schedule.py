"""Learning rates as functions of the step, in optax's sense."""

import jax.numpy as jnp
import optax


def inverse_sqrt(scale: float = 1.0, warmup_steps: int = 10_000) -> optax.Schedule:
    """Scale / sqrt(max(step, warmup_steps)): constant, then falling (GShard, A.2)."""
    return lambda step: scale / jnp.sqrt(jnp.maximum(step, warmup_steps))


def warmup_cosine(
    peak: float, warmup_steps: int, total_steps: int, final_share: float = 0.0
) -> optax.Schedule:
    """A straight rise to `peak`, then a half cosine down to `final_share` of it."""
    if not 0 < warmup_steps < total_steps:
        raise ValueError(
            f"warmup_cosine: warmup_steps={warmup_steps} must lie between 0 and "
            f"total_steps={total_steps}; train longer or warm up for fewer steps"
        )
    return optax.warmup_cosine_decay_schedule(
        0.0, peak, warmup_steps, total_steps, end_value=peak * final_share
    )
