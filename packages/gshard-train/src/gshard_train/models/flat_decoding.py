"""A step of the decoder in which all hypotheses of a sentence are one sequence.

Axes: B batch, T source length, K hypotheses, P places of the sequence, M model width, V target
vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gshard_train.models.attention import KeysValues
from gshard_train.models.blocks import DecoderLayer
from gshard_train.models.context import Context
from gshard_train.models.transformer import DecodingState, EncoderDecoder


def flat_step(
    model: EncoderDecoder,
    tokens_BK: Int[Array, "B K"],
    index: Int[Array, ""],
    state: DecodingState,
    past_BKP: Bool[Array, "B K P"],
    live_BK: Bool[Array, "B K"],
) -> tuple[Float[Array, "B K V"], DecodingState]:
    """Float32 logits for the token after position `index`, and the state with it added.

    Args:
      model: what decodes.
      tokens_BK: the newest token of each hypothesis.
      index: its position in the sentence.
      state: as `start_decoding` makes it for one hypothesis of P positions.
      past_BKP: which places each hypothesis looks at, its own new one included.
      live_BK: True for hypotheses whose token may take an expert's slot.
    """
    graph, layers = nnx.split(model.decoder)
    context = model.context(live_BK)
    place = index * tokens_BK.shape[1]

    def run(x_BKM, inputs):
        layer, kept, source = inputs
        pair = nnx.merge(graph, layer)
        shared = (state.source_mask_BT, place, past_BKP, context)
        x_BKM, first = _layer_step(pair.first, x_BKM, kept[0], source[0], *shared)
        x_BKM, second = _layer_step(pair.second, x_BKM, kept[1], source[1], *shared)
        return x_BKM, (first, second)

    x_BKM = model.target_embedding(tokens_BK, jnp.full_like(tokens_BK, index))
    x_BKM, kept = jax.lax.scan(run, x_BKM, (layers, state.kept, state.source))
    return model.logits(x_BKM), state._replace(kept=kept)


def _layer_step(
    layer: DecoderLayer,
    x_BKM: Float[Array, "B K M"],
    kept: KeysValues,
    source: KeysValues,
    source_mask_BT: Bool[Array, "B T"],
    place: Int[Array, ""],
    past_BKP: Bool[Array, "B K P"],
    context: Context,
) -> tuple[Float[Array, "B K M"], KeysValues]:
    """One layer for the K hypotheses of each sentence, whose places begin at `place`."""
    h_BKM = layer.self_norm(x_BKM)
    new = layer.self_attention.project(h_BKM)
    update = jax.lax.dynamic_update_slice_in_dim
    kept = KeysValues(*(update(k, n, place, 1) for k, n in zip(kept, new, strict=True)))
    x_BKM = x_BKM + layer.self_attention.attend(h_BKM, kept, past_BKP)
    y_BKM = layer.cross_attention.attend(
        layer.cross_norm(x_BKM), source, source_mask_BT[:, None, :]
    )
    x_BKM, _ = layer.feed_forward(x_BKM + y_BKM, context)
    return x_BKM, kept
