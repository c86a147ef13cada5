"""The paper's flat beam (arXiv 2006.16668, A.1): keys and values are never moved.

All hypotheses of a sentence lie in one sequence, position after position, K places each. A 0/1 mask
says which places are a hypothesis's own past; when hypotheses change places, the mask's rows do.
Attention is K times longer for it. Axes: B batch, T source length, K hypotheses, L target length,
P = K L places, V vocabulary.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_train.decoding.hypotheses import pick
from gshard_train.models.flat_decoding import flat_step
from gshard_train.models.transformer import DecodingState, EncoderDecoder


class FlatState(NamedTuple):
    """Keys and values in order of time, [pairs, B, P, N, D], and whose past they are."""

    model: DecodingState
    past_BKP: Bool[Array, "B K P"]


class Flat:
    """One sequence of keys and values for all hypotheses of a sentence."""

    def start(
        self, model: EncoderDecoder, source_BT: Int[Array, "B T"], *, beams: int, length: int
    ) -> FlatState:
        """Room for every place, none of which is anybody's past."""
        state = model.start_decoding(source_BT, beams=1, length=beams * length)
        past_BKP = jnp.zeros((source_BT.shape[0], beams, beams * length), bool)
        return FlatState(state, past_BKP)

    def step(
        self,
        model: EncoderDecoder,
        tokens_BK: Int[Array, "B K"],
        position: Int[Array, ""],
        state: FlatState,
        live_BK: Bool[Array, "B K"],
    ) -> tuple[Float[Array, "B K V"], FlatState]:
        """Writes this position's K places and lets each hypothesis look at its own past."""
        beams = tokens_BK.shape[1]
        place_K = position * beams + jnp.arange(beams)
        own_KP = jnp.arange(state.past_BKP.shape[2]) == place_K[:, None]
        past_BKP = state.past_BKP | own_KP
        logits_BKV, kept = flat_step(model, tokens_BK, position, state.model, past_BKP, live_BK)
        return logits_BKV, FlatState(kept, past_BKP)

    def follow(self, state: FlatState, parent_BK: Int[Array, "B K"]) -> FlatState:
        """Moves rows of the mask and nothing else."""
        return state._replace(past_BKP=pick(state.past_BKP, parent_BK))
