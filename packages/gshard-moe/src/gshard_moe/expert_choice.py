"""Experts choose their tokens: every slot is used and no balance loss is needed.

A token is taken only if others of its group, later ones included, score lower: in a decoder that
would show it the future, and generation, which knows no later tokens, would route differently.

Axes: G groups, S tokens per group, E experts, C slots per expert and group.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gshard_moe.choosing import check_inputs, probabilities, valid
from gshard_moe.routing import ExpertRouting


def expert_choice(
    logits_GSE: Float[Array, "G S E"],
    *,
    capacity: int,
    mask_GS: Bool[Array, "G S"] | None = None,
) -> ExpertRouting:
    """Each expert's C best tokens of the group (Zhou et al., arXiv 2202.09368, section 3.2).

    Score and weight are the token's probabilities among experts. Of equal scores the earlier token
    goes first. A token may get any number of experts, none included.

    Args:
      logits_GSE: Router logits.
      capacity: Slots per group and expert, at most S.
      mask_GS: False for padding, which is never taken.

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """
    S = logits_GSE.shape[1] if logits_GSE.ndim == 3 else capacity
    faults = [f"capacity is {capacity} of {S} tokens; give at most {S}"] if capacity > S else []
    check_inputs("expert_choice", logits_GSE, mask_GS, capacity, faults)
    p_GES = probabilities(logits_GSE).swapaxes(1, 2)
    valid_G1S = valid(logits_GSE, mask_GS)[:, None]
    score_GES = jnp.where(valid_G1S, jax.lax.stop_gradient(p_GES), -1.0)
    token_GES = jnp.argsort(score_GES, axis=-1, stable=True, descending=True)
    token_GEC = token_GES[..., :capacity].astype(jnp.int32)
    kept_GEC = jnp.take_along_axis(jnp.broadcast_to(valid_G1S, p_GES.shape), token_GEC, axis=-1)
    weight_GEC = jnp.take_along_axis(p_GES, token_GEC, axis=-1)
    return ExpertRouting(token_GEC, jnp.where(kept_GEC, weight_GEC, 0.0), kept_GEC, S)
