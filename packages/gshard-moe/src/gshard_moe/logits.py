"""The router's matmul: exact forward, and backward as cheap as any other.

Axes: G groups, S tokens per group, E experts, M model width.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gshard_moe.choosing import at_least_float32
from gshard_moe.drawing import draw, fold_in


@jax.named_scope("gating")
def router_logits(
    x_GSM: Float[Array, "G S M"],
    router_ME: Float[Array, "M E"],
    mask_GS: Bool[Array, "G S"] | None = None,
    *,
    jitter: float = 0.0,
    key: jax.Array | None = None,
) -> Float[Array, "G S E"]:
    """The product with the router in full float32 or more; 0 for padding, whatever it holds.

    Args:
      x_GSM: Tokens.
      router_ME: The router's matrix.
      mask_GS: False for padding.
      jitter: Inputs are multiplied with noise from 1 - jitter to 1 + jitter.
      key: For jitter; one, or one for each group.
    """
    if jitter:
        assert key is not None
        # A key of its own, so that the second expert's coin is the same with jitter and without.
        key = fold_in(key, 1)
        evenly = functools.partial(jax.random.uniform, minval=1 - jitter, maxval=1 + jitter)
        noise = draw(evenly, key, x_GSM.shape)
        x_GSM = at_least_float32(x_GSM) * noise
    logits_GSE: Array = _product(x_GSM, at_least_float32(router_ME), mask_GS)
    return logits_GSE


def without_padding(x_GSX: Array, mask_GS: Array | None) -> Array:
    """0 where the mask is False."""
    return x_GSX if mask_GS is None else jnp.where(mask_GS[..., None], x_GSX, 0)


@jax.custom_vjp
def _product(x_GSM: Array, router_ME: Array, mask_GS: Array | None) -> Array:
    # On TPU and GPU the default precision rounds the factors, and near ties would go to other
    # experts. The gradient decides nothing: it has the precision of all others there.
    logits_GSE = jnp.einsum(
        "GSM,ME->GSE",
        at_least_float32(x_GSM),
        router_ME,
        precision=jax.lax.Precision.HIGHEST,
    )
    return without_padding(logits_GSE, mask_GS)


def _forward(
    x_GSM: Array, router_ME: Array, mask_GS: Array | None
) -> tuple[Array, tuple[Array, Array, Array | None]]:
    return _product(x_GSM, router_ME, mask_GS), (x_GSM, router_ME, mask_GS)


def _backward(saved: tuple[Array, Array, Array | None], d_GSE: Array) -> tuple[Array, Array, None]:
    x_GSM, router_ME, mask_GS = saved
    d_GSE = without_padding(d_GSE, mask_GS)
    dx_GSM = jnp.einsum("GSE,ME->GSM", d_GSE, router_ME).astype(x_GSM.dtype)
    if mask_GS is not None:
        # The CPU compiler would make x without padding in the forward pass and keep it. Told by
        # the gradient, which padding has none of, it is made when it is needed.
        x_GSM = jax.lax.platform_dependent(
            x_GSM,
            mask_GS,
            d_GSE,
            cpu=lambda x, _, d: without_padding(x, (d != 0).any(-1)),
            default=lambda x, mask, _: without_padding(x, mask),
        )
    drouter_ME = jnp.einsum("GSM,GSE->ME", at_least_float32(x_GSM), d_GSE)
    return dx_GSM, drouter_ME, None


_product.defvjp(_forward, _backward)
