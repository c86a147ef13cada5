"""Beam search, each sentence by itself.

A sentence's result does not depend on what else is in the batch, and the loop ends when no sentence
can improve. How keys and values follow the hypotheses is somebody else's matter (`Keeping`).
Axes: B batch, T source length, K hypotheses, L target length, V vocabulary.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_annotate import annotate
from gshard_train.decoding.hypotheses import (
    EOS_ID,
    IMPOSSIBLE,
    Translations,
    length_norm,
    pick,
    top,
)
from gshard_train.models.transformer import PAD_ID, DecodingState, EncoderDecoder


class Keeping(Protocol):
    """How the keys and values of past positions are kept for the hypotheses of a beam."""

    def start(
        self, model: EncoderDecoder, source_BT: Int[Array, "B T"], *, beams: int, length: int
    ) -> Any:
        """The state before the first position."""
        ...

    def step(
        self,
        model: EncoderDecoder,
        tokens_BK: Int[Array, "B K"],
        position: Int[Array, ""],
        state: Any,
        live_BK: Bool[Array, "B K"],
    ) -> tuple[Float[Array, "B K V"], Any]:
        """Logits for the next token of each hypothesis, and the state with this position."""
        ...

    def follow(self, state: Any, parent_BK: Int[Array, "B K"]) -> Any:
        """The state in which hypothesis k goes on from what was hypothesis `parent[k]`."""
        ...


class _Search(NamedTuple):
    position: Int[Array, ""]
    alive_BKL: Int[Array, "B K L"]
    alive_BK: Float[Array, "B K"]  # log probabilities
    done_BKL: Int[Array, "B K L"]
    done_BK: Float[Array, "B K"]  # normalised scores
    model: Any


def beam_search(
    model: EncoderDecoder,
    source_BT: Int[Array, "B T"],
    *,
    length: int,
    beams: int,
    alpha: float,
    keeping: Keeping,
) -> Translations:
    """The best translation of each sentence in at most `length` tokens, the end included.

    A row of padding alone ends at once. A sentence counts as truncated when a hypothesis that
    did not end is better than all that did.
    """
    live_B = (source_BT != PAD_ID).any(axis=1)

    def can_improve(state: _Search) -> Bool[Array, ""]:
        # Log probabilities only fall, so the best that a living hypothesis can still reach is
        # its present sum over the largest possible normaliser.
        best_B = state.alive_BK.max(axis=1) / length_norm(length, alpha)
        open_B = live_B & (best_B > state.done_BK[:, 0])
        return (state.position < length) & open_B.any()

    def advance(state: _Search) -> _Search:
        return _advance(model, state, live_B, alpha, keeping)

    kept = keeping.start(model, source_BT, beams=beams, length=length)
    start = _start(source_BT.shape[0], beams, length, kept)
    state = jax.lax.while_loop(can_improve, advance, start)
    living_B = state.alive_BK[:, 0] / length_norm(state.position, alpha)
    truncated_B = live_B & (living_B > state.done_BK[:, 0])
    return Translations(
        jnp.where(truncated_B[:, None], state.alive_BKL[:, 0], state.done_BKL[:, 0]),
        jnp.where(truncated_B, living_B, state.done_BK[:, 0]),
        truncated_B,
    )


def _start(batch: int, beams: int, length: int, kept: Any) -> _Search:
    tokens = annotate(jnp.zeros((batch, beams, length), jnp.int32), "batch", None, "target_length")
    nothing = annotate(jnp.full((batch, beams), IMPOSSIBLE, jnp.float32), "batch", None)
    return _Search(
        position=jnp.zeros((), jnp.int32),
        alive_BKL=tokens,
        # All hypotheses begin alike, so only one may live.
        alive_BK=nothing.at[:, 0].set(0.0),
        done_BKL=tokens,
        done_BK=nothing,
        model=kept,
    )


def _advance(
    model: EncoderDecoder,
    state: _Search,
    live_B: Bool[Array, " B"],
    alpha: float,
    keeping: Keeping,
) -> _Search:
    """One more token for every living hypothesis."""
    beams = state.alive_BK.shape[1]
    previous = jax.lax.dynamic_index_in_dim(
        state.alive_BKL, jnp.maximum(state.position - 1, 0), axis=2, keepdims=False
    )
    previous = jnp.where(state.position == 0, PAD_ID, previous)
    live_BK = jnp.broadcast_to(live_B[:, None], previous.shape)
    logits_BKV, kept = keeping.step(model, previous, state.position, state.model, live_BK)
    log_probs_BKV = jax.nn.log_softmax(logits_BKV) + state.alive_BK[..., None]

    ended_BK = log_probs_BKV[..., EOS_ID] / length_norm(state.position + 1, alpha)
    ended_BK = jnp.where(state.alive_BK > IMPOSSIBLE / 2, ended_BK, IMPOSSIBLE)
    done_BK, chosen = top(jnp.concatenate([state.done_BK, ended_BK], axis=1), beams)
    done_BKL = pick(jnp.concatenate([state.done_BKL, state.alive_BKL], axis=1), chosen)

    vocab = log_probs_BKV.shape[-1]
    forbidden = jnp.isin(jnp.arange(vocab), jnp.array([PAD_ID, EOS_ID]))
    continued = jnp.where(forbidden, IMPOSSIBLE, log_probs_BKV)
    alive_BK, chosen = top(continued.reshape(continued.shape[0], -1), beams)
    parent, token = chosen // vocab, chosen % vocab
    alive_BKL = jax.lax.dynamic_update_slice_in_dim(
        pick(state.alive_BKL, parent), token[..., None], state.position, axis=2
    )
    return _Search(
        state.position + 1,
        alive_BKL,
        alive_BK,
        done_BKL,
        done_BK,
        keeping.follow(kept, parent),
    )


class Reordered:
    """Each hypothesis has keys and values of its own, which are moved when it changes its place."""

    def start(
        self, model: EncoderDecoder, source_BT: Int[Array, "B T"], *, beams: int, length: int
    ) -> DecodingState:
        """Room for every hypothesis of every sentence."""
        return model.start_decoding(source_BT, beams=beams, length=length)

    def step(
        self,
        model: EncoderDecoder,
        tokens_BK: Int[Array, "B K"],
        position: Int[Array, ""],
        state: DecodingState,
        live_BK: Bool[Array, "B K"],
    ) -> tuple[Float[Array, "B K V"], DecodingState]:
        """The model's own step."""
        return model.decode_step(tokens_BK, position, state, live_BK)

    def follow(self, state: DecodingState, parent_BK: Int[Array, "B K"]) -> DecodingState:
        """Copies all that is kept, once a position."""
        batch, beams = parent_BK.shape

        def moved(kept: Float[Array, "pairs BK L N D"]) -> Float[Array, "pairs BK L N D"]:
            split = kept.reshape(kept.shape[0], batch, beams, *kept.shape[2:])
            return jax.vmap(pick, in_axes=(0, None))(split, parent_BK).reshape(kept.shape)

        return state._replace(kept=jax.tree.map(moved, state.kept))
