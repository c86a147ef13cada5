"""What a MoE layer did with its tokens, as sums that add up over layers and steps.

Axes: G groups, S tokens per group, E experts, K choices per token.
"""

import dataclasses
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.routing import ExpertRouting, Routing

# Experts of a token that are counted apart when experts choose, and a token may have any number.
_MOST_COUNTED = 4

_Sums = TypeVar("_Sums", "Statistics", "LabelStatistics")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Statistics:
    """Sums over tokens that are no padding; all float32. Add two of them with `+`.

    Attributes:
      tokens: How many tokens.
      load_E: Choices that got a slot, per expert.
      importance_E: Sum of probabilities, per expert.
      chosen_K: First choices, second choices and so on that asked for a slot.
      dropped_K: Those that found their expert full.
      reached_J: Tokens that reached 0, 1, ... K experts. Where experts choose, K is 1, nothing is
        ever dropped, and the last of 0 to 4 counts tokens with 4 and more.
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
        return _added(self, other)


@jax.named_scope("gating")
def statistics(
    routing: Routing | ExpertRouting,
    probabilities_GSE: Float[Array, "G S E"],
    mask_GS: Bool[Array, "G S"] | None = None,
) -> Statistics:
    """What this routing did; no gradient flows through it.

    Args:
      routing: What the layer's router decided.
      probabilities_GSE: Softmax of the router logits.
      mask_GS: False for padding.

    Raises:
      ValueError: Probabilities or a mask that do not fit the routing, at once.
    """
    faults = []
    if probabilities_GSE.shape != (shape := (*_tokens(routing), routing.num_experts)):
        faults.append(f"probabilities have shape {probabilities_GSE.shape}; give {shape}")
    faults += mask_faults(mask_GS, _tokens(routing))
    if faults:
        raise ValueError(f"statistics: {'; '.join(faults)}")
    p_GSE = jax.lax.stop_gradient(probabilities_GSE)
    valid_GS = jnp.ones(p_GSE.shape[:2], bool) if mask_GS is None else mask_GS
    entropy_GS = -jnp.where(p_GSE > 0, p_GSE * jnp.log(jnp.maximum(p_GSE, 1e-38)), 0.0).sum(-1)
    parts = [
        jnp.ones((*valid_GS.shape, 1)),
        *_counts(routing, p_GSE.shape[-1]),
        p_GSE,
        entropy_GS[..., None],
        p_GSE.max(-1, keepdims=True),
    ]
    # Sums of groups side by side, so that devices add up once and not once per figure.
    of_groups = [jnp.where(valid_GS[..., None], part, 0.0).sum(1) for part in parts]
    sums = jnp.concatenate(of_groups, -1).sum(0)
    tokens, load_E, chosen_K, dropped_K, reached_J, importance_E, entropy, confidence = (
        jax.lax.split(sums, [part.shape[-1] for part in parts])
    )
    return Statistics(
        tokens[0], load_E, importance_E, chosen_K, dropped_K, reached_J, entropy[0], confidence[0]
    )


def load_per_token(routing: Routing | ExpertRouting) -> Float[Array, "G S E"]:
    """1 where the token reached the expert, otherwise 0."""
    if isinstance(routing, Routing):
        # Choice by choice: as a sum over a dimension the compiler would write [G,S,E] to memory.
        choices = range(routing.kept_GSK.shape[-1])
        experts_E = jnp.arange(routing.num_experts)
        reached = (
            (routing.expert_GSK[..., k, None] == experts_E) & routing.kept_GSK[..., k, None]
            for k in choices
        )
        return sum((one.astype(jnp.float32) for one in reached), start=jnp.zeros(()))

    def taken(token_C: Array, kept_C: Array) -> Array:
        return jnp.zeros(routing.num_tokens).at[token_C].max(kept_C.astype(jnp.float32))

    return jax.vmap(jax.vmap(taken))(routing.token_GEC, routing.kept_GEC).swapaxes(1, 2)


def mask_faults(mask_GS: Array | None, shape: tuple[int, ...]) -> list[str]:
    """What is wrong with a mask for tokens of this shape."""
    if mask_GS is None or (mask_GS.shape == shape and mask_GS.dtype == jnp.bool_):
        return []
    return [f"mask is {mask_GS.dtype}{list(mask_GS.shape)}; give bool{list(shape)}"]


def _tokens(routing: Routing | ExpertRouting) -> tuple[int, int]:
    """G and S."""
    if isinstance(routing, Routing):
        G, S, _ = routing.expert_GSK.shape
        return G, S
    return routing.token_GEC.shape[0], routing.num_tokens


def _added(one: _Sums, other: _Sums) -> _Sums:
    if type(one) is not type(other):
        return NotImplemented
    shapes = {
        field.name: tuple(getattr(x, field.name).shape for x in (one, other))
        for field in dataclasses.fields(one)
    }
    if faults := [f"{name} has {a} and {b}" for name, (a, b) in shapes.items() if a != b]:
        raise ValueError(
            f"{type(one).__name__}: shapes differ: {'; '.join(faults)}; add up those of layers "
            "with as many experts and choices, and keep others apart"
        )
    return jax.tree.map(jnp.add, one, other)


def _counts(routing: Routing | ExpertRouting, num_experts: int) -> list[Array]:
    """Load, chosen, dropped and reached of each token, each [G, S, ...]."""
    load_GSE = load_per_token(routing)
    if isinstance(routing, Routing):
        chosen_GSK = routing.chosen_GSK.astype(jnp.float32)
        dropped_GSK = (routing.chosen_GSK & ~routing.kept_GSK).astype(jnp.float32)
        reached_GS, most = routing.kept_GSK.sum(-1), routing.kept_GSK.shape[-1]
    else:
        chosen_GSK = load_GSE.sum(-1, keepdims=True)
        dropped_GSK = jnp.zeros_like(chosen_GSK)
        most = min(num_experts, _MOST_COUNTED)
        reached_GS = jnp.minimum(load_GSE.sum(-1), most).astype(jnp.int32)
    return [load_GSE, chosen_GSK, dropped_GSK, jax.nn.one_hot(reached_GS, most + 1)]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LabelStatistics:
    """Sums per label (a language, a task) over tokens that are no padding. Add with `+`.

    Attributes:
      tokens_N: How many tokens have the label.
      load_NE: Choices of such tokens that got a slot, per expert.
      chosen_N: Choices of such tokens that asked for a slot.
      dropped_N: Those that found their expert full.
    """

    tokens_N: Float[Array, " N"]
    load_NE: Float[Array, "N E"]
    chosen_N: Float[Array, " N"]
    dropped_N: Float[Array, " N"]

    def __add__(self, other: "LabelStatistics") -> "LabelStatistics":
        return _added(self, other)

    @property
    def shares_NE(self) -> Float[Array, "N E"]:
        """Which experts the tokens of a label went to: rows sum to 1, or are 0 without tokens."""
        return self.load_NE / jnp.maximum(self.load_NE.sum(-1, keepdims=True), 1)


@jax.named_scope("gating")
def statistics_by_label(
    routing: Routing | ExpertRouting,
    labels_GS: Int[Array, "G S"],
    num_labels: int,
    mask_GS: Bool[Array, "G S"] | None = None,
) -> LabelStatistics:
    """The table label x expert of this routing; no gradient flows through it.

    Args:
      routing: What the layer's router decided.
      labels_GS: Label of each token, 0 to `num_labels` - 1; others, such as -1, count nowhere.
      num_labels: Rows of the table, N.
      mask_GS: False for padding.

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """
    load_GSE, chosen_GSK, dropped_GSK, _ = _counts(routing, routing.num_experts)
    _check_labels(labels_GS, num_labels, mask_GS, load_GSE.shape[:2])
    label_GSN = labels_GS[..., None] == jnp.arange(num_labels)
    if mask_GS is not None:
        label_GSN &= mask_GS[..., None]
    parts = [
        jnp.ones((*labels_GS.shape, 1)),
        load_GSE,
        chosen_GSK.sum(-1, keepdims=True),
        dropped_GSK.sum(-1, keepdims=True),
    ]
    # One matmul of 0s, 1s and small counts: exact whatever the precision it is done in.
    table_NJ = jnp.einsum("GSN,GSJ->NJ", label_GSN.astype(jnp.float32), jnp.concatenate(parts, -1))
    tokens_N1, load_NE, chosen_N1, dropped_N1 = jax.lax.split(
        table_NJ, [part.shape[-1] for part in parts], axis=1
    )
    return LabelStatistics(tokens_N1[:, 0], load_NE, chosen_N1[:, 0], dropped_N1[:, 0])


def _check_labels(
    labels_GS: Array, num_labels: int, mask_GS: Array | None, shape: tuple[int, ...]
) -> None:
    faults = [] if num_labels >= 1 else [f"num_labels is {num_labels}; give at least 1"]
    if labels_GS.shape != shape:
        faults.append(f"labels have shape {labels_GS.shape}; give {shape}")
    if not jnp.issubdtype(labels_GS.dtype, jnp.integer):
        faults.append(f"labels are {labels_GS.dtype}; give integers")
    faults += mask_faults(mask_GS, shape)
    if faults:
        raise ValueError(f"statistics_by_label: {'; '.join(faults)}")


def summary(total: Statistics) -> dict[str, Array]:
    """Shares and means of these sums, by the names under which they are logged.

    dropped_first, dropped_second, dropped_choice_3 and so on are shares of the choices that asked
    for a slot; load and importance are shares of all experts' sum, so that a balanced router has
    1/E everywhere.
    """
    tokens = jnp.maximum(total.tokens, 1)
    dropped_K = total.dropped_K / jnp.maximum(total.chosen_K, 1)
    choices = dropped_K.shape[-1]
    names = ("first", "second", *(f"choice_{k + 1}" for k in range(2, choices)))[:choices]
    return {
        "load": total.load_E / jnp.maximum(total.load_E.sum(), 1),
        "importance": total.importance_E / tokens,
        **{f"dropped_{name}": dropped_K[k] for k, name in enumerate(names)},
        "dropped": total.dropped_K.sum() / jnp.maximum(total.chosen_K.sum(), 1),
        **{f"tokens_with_{j}_experts": n / tokens for j, n in enumerate(total.reached_J)},
        "router_entropy": total.entropy / tokens,
        "router_confidence": total.confidence / tokens,
    }
