"""What a MoE layer did with its tokens, as sums that add up over layers and steps.

Axes: G groups, S tokens per group, E experts, K choices per token.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gshard_moe.routing import Routing


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Statistics:
    """Sums over tokens that are no padding; all float32. Add two of them with `+`.

    Attributes:
      tokens: How many tokens.
      load_E: Choices that got a slot, per expert.
      importance_E: Sum of probabilities, per expert.
      chosen_K: First choices and second choices that asked for a slot.
      dropped_K: Those that found their expert full.
      reached_J: Tokens that reached 0, 1 and 2 experts.
      entropy: Sum of the entropies of the probabilities, in nats.
      confidence: Sum of the highest probabilities.
    """

    tokens: Float[Array, ""]
    load_E: Float[Array, " E"]
    importance_E: Float[Array, " E"]
    chosen_K: Float[Array, " K"]
    dropped_K: Float[Array, " K"]
    reached_J: Float[Array, " J"]
    entropy: Float[Array, ""]
    confidence: Float[Array, ""]

    def __add__(self, other: "Statistics") -> "Statistics":
        return jax.tree.map(jnp.add, self, other)


def statistics(
    routing: Routing,
    probabilities_GSE: Float[Array, "G S E"],
    mask_GS: Bool[Array, "G S"] | None = None,
) -> Statistics:
    """What this routing did; no gradient flows through it."""
    p_GSE = jax.lax.stop_gradient(probabilities_GSE)
    G, S, E = p_GSE.shape
    K = routing.kept_GSK.shape[-1]
    valid_GS = jnp.ones((G, S), bool) if mask_GS is None else mask_GS
    kept_GSK = routing.kept_GSK.astype(jnp.float32)
    load_GSE = (jax.nn.one_hot(routing.expert_GSK, E) * kept_GSK[..., None]).sum(2)
    reached_GSJ = jax.nn.one_hot(routing.kept_GSK.sum(-1), K + 1)
    entropy_GS = -jnp.where(p_GSE > 0, p_GSE * jnp.log(jnp.maximum(p_GSE, 1e-38)), 0.0).sum(-1)
    # Side by side, so that devices add up once and not once per figure.
    parts = [
        jnp.ones((G, S, 1)),
        load_GSE,
        p_GSE,
        routing.chosen_GSK.astype(jnp.float32),
        (routing.chosen_GSK & ~routing.kept_GSK).astype(jnp.float32),
        reached_GSJ,
        entropy_GS[..., None],
        p_GSE.max(-1, keepdims=True),
    ]
    sums = jnp.where(valid_GS[..., None], jnp.concatenate(parts, -1), 0.0).sum((0, 1))
    tokens, load_E, importance_E, chosen_K, dropped_K, reached_J, entropy, confidence = (
        jax.lax.split(sums, [part.shape[-1] for part in parts])
    )
    return Statistics(
        tokens[0], load_E, importance_E, chosen_K, dropped_K, reached_J, entropy[0], confidence[0]
    )


def summary(total: Statistics) -> dict[str, Array]:
    """Shares and means of these sums, by the names under which they are logged.

    dropped_first and dropped_second are shares of the choices that asked for a slot; load and
    importance are shares of all experts' sum, so that a balanced router has 1/E everywhere.
    """
    tokens = jnp.maximum(total.tokens, 1)
    dropped_K = total.dropped_K / jnp.maximum(total.chosen_K, 1)
    names = ("first", "second")[: dropped_K.shape[-1]]
    return {
        "load": total.load_E / jnp.maximum(total.load_E.sum(), 1),
        "importance": total.importance_E / tokens,
        **{f"dropped_{name}": dropped_K[k] for k, name in enumerate(names)},
        "dropped": total.dropped_K.sum() / jnp.maximum(total.chosen_K.sum(), 1),
        **{f"tokens_with_{j}_experts": n / tokens for j, n in enumerate(total.reached_J)},
        "router_entropy": total.entropy / tokens,
        "router_confidence": total.confidence / tokens,
    }
