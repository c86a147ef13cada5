"""Looking for the layer whose router logits are NaN or infinite: in the program, or after it.

Axes: G groups, S tokens per group, E experts.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gshard_moe.output import MoEOutput

_LOOK = "look at what comes into this layer and at its router's weights"


@jax.named_scope("gating")
def count_not_finite(logits_GSE: Float[Array, "G S E"]) -> Float[Array, ""]:
    """How many logits are NaN or infinite, over all devices."""
    return (~jnp.isfinite(jax.lax.stop_gradient(logits_GSE))).sum(dtype=jnp.float32)


def stop_if_not_finite(who: str, count: Array, of: int, layer_index: Array | int) -> None:
    """Stops the program on the device; on one device only, since the others would wait for it."""

    # Not checkify: JAX loses its checks in the gradient of a scan, and cannot differentiate
    # custom gradients that went through it.
    def stop(wrong: Array, layer: Array) -> None:
        if wrong:
            raise FloatingPointError(
                f"{who}: layer {layer}: {int(wrong)} of {of} router logits are NaN or infinite; "
                f"{_LOOK}"
            )

    jax.debug.callback(stop, count, jnp.asarray(layer_index))


def raise_if_not_finite(
    outputs: MoEOutput | Sequence[MoEOutput], name: str | Sequence[str] = "MoELayer"
) -> None:
    """Waits for a step and fails if router logits were NaN or infinite; on any number of devices.

    Call it with what a compiled step returned. All devices have the same count, so that all
    processes fail alike, and none waits for another.

    Args:
      outputs: One per layer, or one whose arrays `scan` stacked over layers.
      name: What the layers are called: one name for all, or one for each of `outputs`.

    Raises:
      FloatingPointError: Naming each layer with such logits, and its place in `outputs`.
      ValueError: Not as many names as outputs.
    """
    outputs = [outputs] if isinstance(outputs, MoEOutput) else list(outputs)
    names = [name] * len(outputs) if isinstance(name, str) else list(name)
    if len(names) != len(outputs):
        raise ValueError(
            f"raise_if_not_finite: {len(names)} names for {len(outputs)} outputs; give one name, "
            "or one for each"
        )
    counts = [np.ravel(np.asarray(output.non_finite)) for output in outputs]
    layers = [(who, n) for who, each in zip(names, counts, strict=True) for n in each]
    wrong = [f"{who}: layer {i}: {int(n)}" for i, (who, n) in enumerate(layers) if n]
    if wrong:
        raise FloatingPointError(f"{'; '.join(wrong)} router logits are NaN or infinite; {_LOOK}")
