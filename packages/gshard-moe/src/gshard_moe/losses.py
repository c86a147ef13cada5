"""Losses that keep the router balanced and its logits small; padding never counts.

Axes: G groups, S tokens per group, E experts.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.choosing import at_least_float32
from gshard_moe.statistics import mask_faults


@jax.named_scope("gating")
def balance_loss(
    probabilities_GSE: Float[Array, "G S E"],
    first_expert_GS: Int[Array, "G S"],
    mask_GS: Bool[Array, "G S"] | None = None,
) -> Float[Array, ""]:
    """The paper's auxiliary loss, scaled so that a balanced router gives 1 and a collapsed one E.

    In each group E * sum over experts of (share of tokens whose first choice it is, before any is
    dropped) * (mean probability): Algorithm 1, line 13, times E squared. Groups count by their
    tokens without padding, so that padding changes nothing.

    Args:
      probabilities_GSE: Softmax of the router logits.
      first_expert_GS: First choice of each token.
      mask_GS: False for padding.

    Raises:
      ValueError: First choices or a mask that do not fit the probabilities, at once.
    """
    shape, first = probabilities_GSE.shape[:2], first_expert_GS
    faults = []
    if first.shape != shape or not jnp.issubdtype(first.dtype, jnp.integer):
        given = f"{first.dtype}{list(first.shape)}"
        faults.append(f"first expert is {given}; give int32{list(shape)}")
    _raise("balance_loss", faults + mask_faults(mask_GS, shape))
    E = probabilities_GSE.shape[-1]
    valid_GS1 = _weights(probabilities_GSE, mask_GS)[..., None]
    count_G = valid_GS1.sum((1, 2))
    first_GE = (jax.nn.one_hot(first_expert_GS, E) * valid_GS1).sum(1)
    importance_GE = jnp.where(valid_GS1 > 0, probabilities_GSE, 0.0).sum(1)
    loss_G = E * (first_GE * importance_GE).sum(-1) / jnp.maximum(count_G, 1)
    return loss_G.sum() / jnp.maximum(count_G.sum(), 1)


def router_z_loss(
    logits_GSE: Float[Array, "G S E"], mask_GS: Bool[Array, "G S"] | None = None
) -> Float[Array, ""]:
    """Mean over tokens of logsumexp(logits) squared (ST-MoE, arXiv 2202.08906, equation 5).

    Args:
      logits_GSE: Router logits.
      mask_GS: False for padding.

    Raises:
      ValueError: A mask that does not fit the logits.
    """
    _raise("router_z_loss", mask_faults(mask_GS, logits_GSE.shape[:2]))
    valid_GS = _weights(logits_GSE, mask_GS)
    # Before the logsumexp, so that its gradient is 0 too, whatever padding holds.
    logits_GSE = jnp.where(valid_GS[..., None] > 0, at_least_float32(logits_GSE), 0.0)
    return mean_square(jax.nn.logsumexp(logits_GSE, axis=-1), mask_GS)


@jax.named_scope("gating")
def mean_square(x_GS: Float[Array, "G S"], mask_GS: Bool[Array, "G S"] | None) -> Float[Array, ""]:
    """Over tokens that are no padding; of the logsumexp this is the router z-loss."""
    valid_GS = _weights(x_GS, mask_GS)
    return (x_GS**2 * valid_GS).sum() / jnp.maximum(valid_GS.sum(), 1)


def _weights(x_GSE: Array, mask_GS: Array | None) -> Float[Array, "G S"]:
    ones_GS = jnp.ones(x_GSE.shape[:2], jnp.float32)
    return ones_GS if mask_GS is None else mask_GS.astype(jnp.float32)


def _raise(who: str, faults: list[str]) -> None:
    if faults:
        raise ValueError(f"{who}: {'; '.join(faults)}")
