"""Learning rates as functions of the step, in optax's sense."""

import jax.numpy as jnp
import optax


def inverse_sqrt(scale: float = 1.0, warmup_steps: int = 10_000) -> optax.Schedule:
    """Scale / sqrt(max(step, warmup_steps)): constant, then falling (GShard, A.2)."""
    return lambda step: scale / jnp.sqrt(jnp.maximum(step, warmup_steps))


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
    shares = {"warmup_share": warmup_share, "final_share": final_share}
    faults = [
        f"{name}={value} must be in [0, 1)" for name, value in shares.items() if not 0 <= value < 1
    ]
    if total_steps < 1:
        faults.append(f"total_steps={total_steps} must be at least 1")
    if faults:
        raise ValueError("warmup_cosine: " + "; ".join(faults))
    return optax.warmup_cosine_decay_schedule(
        0.0, peak, round(warmup_share * total_steps), total_steps, end_value=peak * final_share
    )
