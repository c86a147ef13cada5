"""Translations drawn at random, each sentence with a key of its own; at temperature 0, greedily.

Axes: B batch, T source length, L target length, V vocabulary.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gshard_annotate import annotate
from gshard_train.decoding.hypotheses import EOS_ID, IMPOSSIBLE, Translations
from gshard_train.models.transformer import PAD_ID, EncoderDecoder


class _Drawn(NamedTuple):
    position: Int[Array, ""]
    tokens_BL: Int[Array, "B L"]
    previous_B: Int[Array, " B"]
    log_prob_B: Float[Array, " B"]
    open_B: Bool[Array, " B"]  # has not ended
    model: Any


def sample(
    model: EncoderDecoder,
    source_BT: Int[Array, "B T"],
    *,
    length: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    key_B: PRNGKeyArray | None,
) -> Translations:
    """One translation of each sentence in at most `length` tokens, the end included.

    Its score is its log probability under the model itself, whatever it was drawn from. The draw
    at a position depends on the sentence's key and the position alone.
    """

    def advance(state: _Drawn) -> _Drawn:
        logits_BV, kept = _logits(model, state)
        if temperature == 0:
            token_B = logits_BV.argmax(axis=-1)
        else:
            assert key_B is not None
            allowed_BV = restrict(logits_BV / temperature, top_k=top_k, top_p=top_p)
            token_B = _draw(allowed_BV, key_B, state.position)
        log_probs_BV = jax.nn.log_softmax(logits_BV)
        gained_B = jnp.take_along_axis(log_probs_BV, token_B[:, None], axis=1)[:, 0]
        return _appended(state, token_B, gained_B, kept)

    def goes_on(state: _Drawn) -> Bool[Array, ""]:
        return (state.position < length) & state.open_B.any()

    end = jax.lax.while_loop(goes_on, advance, _start(model, source_BT, length))
    return Translations(end.tokens_BL, end.log_prob_B, end.open_B)


def restrict(
    logits_BV: Float[Array, "B V"], *, top_k: int | None, top_p: float | None
) -> Float[Array, "B V"]:
    """The logits with everything outside the choice made impossible.

    Args:
      logits_BV: after the temperature.
      top_k: keep the k likeliest tokens, and those as likely as the last of them.
      top_p: then keep the likeliest tokens that together reach this probability among those kept,
        at least one (nucleus sampling, arXiv 1904.09751).
    """
    if top_k is not None and top_k < logits_BV.shape[-1]:
        least_B1 = jax.lax.top_k(logits_BV, top_k)[0][:, -1:]
        logits_BV = jnp.where(logits_BV < least_B1, IMPOSSIBLE, logits_BV)
    if top_p is not None and top_p < 1:
        sorted_BV = jnp.sort(logits_BV, axis=-1, descending=True)
        probability_BV = jax.nn.softmax(sorted_BV)
        before_BV = jnp.cumsum(probability_BV, axis=-1) - probability_BV
        # The least of the tokens that those likelier than it do not yet reach `top_p` without.
        least_B1 = jnp.where(before_BV < top_p, sorted_BV, jnp.inf).min(axis=-1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least_B1, IMPOSSIBLE, logits_BV)
    return logits_BV


def _start(model: EncoderDecoder, source_BT: Int[Array, "B T"], length: int) -> _Drawn:
    batch = source_BT.shape[0]
    tokens_BL = annotate(jnp.zeros((batch, length), jnp.int32), "batch", "target_length")
    return _Drawn(
        position=jnp.zeros((), jnp.int32),
        tokens_BL=tokens_BL,
        previous_B=annotate(jnp.full((batch,), PAD_ID, jnp.int32), "batch"),
        log_prob_B=annotate(jnp.zeros((batch,), jnp.float32), "batch"),
        open_B=(source_BT != PAD_ID).any(axis=1),
        model=model.start_decoding(source_BT, beams=1, length=length),
    )


def _logits(model: EncoderDecoder, state: _Drawn) -> tuple[Float[Array, "B V"], Any]:
    """Logits of the next token, without padding, which is none."""
    logits_B1V, kept = model.decode_step(
        state.previous_B[:, None], state.position, state.model, state.open_B[:, None]
    )
    logits_BV = logits_B1V[:, 0].astype(jnp.float32)
    return jnp.where(jnp.arange(logits_BV.shape[1]) == PAD_ID, IMPOSSIBLE, logits_BV), kept


def _draw(
    logits_BV: Float[Array, "B V"], key_B: PRNGKeyArray, position: Int[Array, ""]
) -> Int[Array, " B"]:
    def one(logits_V: Float[Array, " V"], key: PRNGKeyArray) -> Int[Array, ""]:
        return jax.random.categorical(jax.random.fold_in(key, position), logits_V)

    return jax.vmap(one)(logits_BV, key_B)


def _appended(
    state: _Drawn, token_B: Int[Array, " B"], gained_B: Float[Array, " B"], kept: Any
) -> _Drawn:
    """The state after these tokens; sentences that ended before stay as they are."""
    ends_B = token_B == EOS_ID
    written_B = jnp.where(state.open_B & ~ends_B, token_B, PAD_ID).astype(jnp.int32)
    tokens_BL = jax.lax.dynamic_update_slice_in_dim(
        state.tokens_BL, written_B[:, None], state.position, axis=1
    )
    return _Drawn(
        state.position + 1,
        tokens_BL,
        written_B,
        state.log_prob_B + jnp.where(state.open_B, gained_B, 0.0),
        state.open_B & ~ends_B,
        kept,
    )
