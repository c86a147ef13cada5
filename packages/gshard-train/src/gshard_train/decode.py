"""Beam search with kept keys and values.

Every sentence is searched by itself: its result does not depend on what else is in the batch, and
the loop ends when no sentence can improve. Axes: B batch, T source length, K hypotheses, L target
length, V vocabulary.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_annotate import annotate
from gshard_train.models.transformer import PAD_ID, DecodingState, EncoderDecoder

EOS_ID = 1
IMPOSSIBLE = -1e9

# Logical names that vary, for `rules_scope`: whole sentences are encoded, then each position of
# every hypothesis is decoded by itself.
VARYING = ("batch", "target_length")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """How translations are searched for.

    Attributes:
      beams: hypotheses kept for each sentence; 1 is greedy search.
      alpha: scores are log probabilities over ((5 + length) / 6) ** alpha (GNMT's length
        normalisation, arXiv 1609.08144, equation 14; GShard's authors use 0.8).
    """

    beams: int = 4
    alpha: float = 0.8

    def __post_init__(self):
        if self.beams < 1:
            raise ValueError(f"BeamSearch: beams={self.beams} must be at least 1")
        if self.alpha < 0:
            raise ValueError(f"BeamSearch: alpha={self.alpha} must be at least 0")


class Translations(NamedTuple):
    """The best hypothesis of each sentence."""

    tokens_BL: Int[Array, "B L"]  # without the end of sentence, then 0
    score_B: Float[Array, " B"]
    truncated_B: Bool[Array, " B"]  # better than all that ended within L tokens, but cut at L


class _Search(NamedTuple):
    position: Int[Array, ""]
    alive_BKL: Int[Array, "B K L"]
    alive_BK: Float[Array, "B K"]  # log probabilities
    done_BKL: Int[Array, "B K L"]
    done_BK: Float[Array, "B K"]  # normalised scores
    model: DecodingState


def translate(
    model: EncoderDecoder,
    source_BT: Int[Array, "B T"],
    *,
    length: int,
    search: BeamSearch,
) -> Translations:
    """The best translation of each sentence in at most `length` tokens, the end included.

    A row of padding alone ends at once.
    """
    live_B = (source_BT != PAD_ID).any(axis=1)
    state = _start(model, source_BT, length, search)

    def can_improve(state: _Search) -> Bool[Array, ""]:
        # Log probabilities only fall, so the best that a living hypothesis can still reach is
        # its present sum over the largest possible normaliser.
        best_B = state.alive_BK.max(axis=1) / _length_norm(length, search.alpha)
        open_B = live_B & (best_B > state.done_BK[:, 0])
        return (state.position < length) & open_B.any()

    def advance(state: _Search) -> _Search:
        return _advance(model, state, live_B, search)

    state = jax.lax.while_loop(can_improve, advance, state)
    living_B = state.alive_BK[:, 0] / _length_norm(state.position, search.alpha)
    truncated_B = live_B & (living_B > state.done_BK[:, 0])
    return Translations(
        jnp.where(truncated_B[:, None], state.alive_BKL[:, 0], state.done_BKL[:, 0]),
        jnp.where(truncated_B, living_B, state.done_BK[:, 0]),
        truncated_B,
    )


def _start(
    model: EncoderDecoder, source_BT: Int[Array, "B T"], length: int, search: BeamSearch
) -> _Search:
    batch, beams = source_BT.shape[0], search.beams
    tokens = annotate(jnp.zeros((batch, beams, length), jnp.int32), "batch", None, "target_length")
    nothing = annotate(jnp.full((batch, beams), IMPOSSIBLE, jnp.float32), "batch", None)
    return _Search(
        position=jnp.zeros((), jnp.int32),
        alive_BKL=tokens,
        # All hypotheses begin alike, so only one may live.
        alive_BK=nothing.at[:, 0].set(0.0),
        done_BKL=tokens,
        done_BK=nothing,
        model=model.start_decoding(source_BT, beams=beams, length=length),
    )


def _advance(
    model: EncoderDecoder, state: _Search, live_B: Bool[Array, " B"], search: BeamSearch
) -> _Search:
    """One more token for every living hypothesis."""
    beams = search.beams
    previous = jax.lax.dynamic_index_in_dim(
        state.alive_BKL, jnp.maximum(state.position - 1, 0), axis=2, keepdims=False
    )
    previous = jnp.where(state.position == 0, PAD_ID, previous)
    live_BK = jnp.broadcast_to(live_B[:, None], previous.shape)
    logits_BKV, kept = model.decode_step(previous, state.position, state.model, live_BK)
    log_probs_BKV = jax.nn.log_softmax(logits_BKV) + state.alive_BK[..., None]

    ended_BK = log_probs_BKV[..., EOS_ID] / _length_norm(state.position + 1, search.alpha)
    ended_BK = jnp.where(state.alive_BK > IMPOSSIBLE / 2, ended_BK, IMPOSSIBLE)
    done_BK, chosen = _top(jnp.concatenate([state.done_BK, ended_BK], axis=1), beams)
    done_BKL = _pick(jnp.concatenate([state.done_BKL, state.alive_BKL], axis=1), chosen)

    vocab = log_probs_BKV.shape[-1]
    forbidden = jnp.isin(jnp.arange(vocab), jnp.array([PAD_ID, EOS_ID]))
    continued = jnp.where(forbidden, IMPOSSIBLE, log_probs_BKV)
    alive_BK, chosen = _top(continued.reshape(continued.shape[0], -1), beams)
    parent, token = chosen // vocab, chosen % vocab
    alive_BKL = jax.lax.dynamic_update_slice_in_dim(
        _pick(state.alive_BKL, parent), token[..., None], state.position, axis=2
    )
    return _Search(
        state.position + 1, alive_BKL, alive_BK, done_BKL, done_BK, _reorder(kept, parent)
    )


def _length_norm(length: Any, alpha: float) -> Float[Array, ""]:
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


def _top(
    values_BX: Float[Array, "B X"], count: int
) -> tuple[Float[Array, "B K"], Int[Array, "B K"]]:
    """The `count` largest values of each row and where they stand, ties to the lower index.

    Plain reductions, since a sort costs more than the model on CPU and `count` is small.
    """
    positions = jax.lax.broadcasted_iota(jnp.int32, values_BX.shape, 1)
    found, places = [], []
    for _ in range(count):
        best = values_BX.max(axis=1, keepdims=True)
        place = jnp.where(values_BX == best, positions, values_BX.shape[1]).min(axis=1)
        found.append(best[:, 0])
        places.append(place)
        values_BX = jnp.where(positions == place[:, None], -jnp.inf, values_BX)
    return jnp.stack(found, axis=1), jnp.stack(places, axis=1)


def _pick(rows: Array, chosen_BK: Int[Array, "B K"]) -> Array:
    """`rows[b, chosen[b, k]]` for each sentence and hypothesis."""
    return jax.vmap(lambda row, chosen: row[chosen])(rows, chosen_BK)


def _reorder(state: DecodingState, parent_BK: Int[Array, "B K"]) -> DecodingState:
    """The kept keys and values, following each hypothesis to its new place."""
    batch, beams = parent_BK.shape

    def follow(kept: Float[Array, "pairs BK L N D"]) -> Float[Array, "pairs BK L N D"]:
        split = kept.reshape(kept.shape[0], batch, beams, *kept.shape[2:])
        return jax.vmap(_pick, in_axes=(0, None))(split, parent_BK).reshape(kept.shape)

    return state._replace(kept=jax.tree.map(follow, state.kept))
