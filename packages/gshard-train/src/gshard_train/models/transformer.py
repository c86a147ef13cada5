"""The encoder-decoder: embeddings, stacked pairs of layers, logits, and decoding step by step.

Axes: B batch, T source length, L target length, M model width, V target vocabulary, K hypotheses
of a beam. Layers are stacked: each parameter of a pair has a leading axis named "layer", and the
program holds one pair's code, run by a scan.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gshard_annotate import annotate
from gshard_moe import MoEOutput
from gshard_train.models.attention import KeysValues
from gshard_train.models.blocks import DecoderPair, EncoderPair, Source
from gshard_train.models.config import TransformerConfig as TransformerConfig
from gshard_train.models.context import Context, numbers
from gshard_train.models.initializers import kernel
from gshard_train.models.layers import Embedding, RMSScale, dropout
from gshard_train.models.packing import Packing
from gshard_train.models.stack import run, stack

PAD_ID = 0


class DecodingState(NamedTuple):
    """What stays between the steps of a decoder; a leading axis counts pairs of layers.

    The two entries of `kept` and `source` belong to the first and second layer of each pair.
    """

    kept: tuple[KeysValues, KeysValues]  # [pairs, B K, L, N, D]
    source: tuple[KeysValues, KeysValues]  # [pairs, B, T, N, D]
    source_mask_BT: Bool[Array, "B T"]


class EncoderDecoder(nnx.Module):
    """GShard's Transformer for translation, with separate source and target vocabularies."""

    def __init__(self, config: TransformerConfig, *, rngs: nnx.Rngs):
        dtype = jnp.dtype(config.dtype)
        self.config = config
        self.source_embedding = Embedding(
            config.source_vocab_size,
            config.max_length,
            config.embed,
            length="source_length",
            dtype=dtype,
            rngs=rngs,
        )
        self.encoder = stack(EncoderPair, config, config.num_encoder_layers // 2, rngs)
        self.encoder_norm = RMSScale(config.embed)
        self.target_embedding = Embedding(
            config.target_vocab_size,
            config.max_length,
            config.embed,
            length="target_length",
            dtype=dtype,
            rngs=rngs,
        )
        self.decoder = stack(DecoderPair, config, config.num_decoder_layers // 2, rngs)
        self.decoder_norm = RMSScale(config.embed)
        self.output = kernel(
            rngs.params(),
            (config.embed, config.target_vocab_size),
            ["embed", "vocab"],
            fan_in=config.embed,
        )

    def __call__(
        self,
        source_BT: Int[Array, "B T"],
        target_inputs_BL: Int[Array, "B L"],
        target_mask_BL: Bool[Array, "B L"],
        *,
        key: PRNGKeyArray | None = None,
        packing: Packing | None = None,
        microbatch: tuple[int | Int[Array, ""], int] = (0, 1),
        labels_B: Int[Array, " B"] | None = None,
        num_labels: int = 0,
    ) -> tuple[Float[Array, "B L V"], MoEOutput | None]:
        """Float32 logits for every target position, and what the experts of each layer report.

        Args:
          source_BT: source tokens, 0 where padded.
          target_inputs_BL: target tokens shifted right by one; the first is 0.
          target_mask_BL: True where the position predicts a token. Others take no expert slot.
          key: for dropout and the second expert's coin; None means evaluation, which has neither
            and drops no token.
          packing: where rows hold several examples, which do not look at each other.
          microbatch: (m, M): these rows are the m-th of M equal blocks of the global batch, and
            fall into num_groups / M groups. What is drawn depends on the number of a row or group
            in the global batch, so it is the same for any M.
          labels_B: a label of each row (its language), for `by_label` of the output.
          num_labels: how many labels there are.

        Returns:
          Logits, and a `MoEOutput` whose leading axis counts MoE layers, encoder first (None for
          a dense model).

        Raises:
          ValueError: the microbatches do not divide the groups.
        """
        packing = packing or Packing()
        encoder_key, decoder_key = (None, None) if key is None else jax.random.split(key)
        labels = {"label_B": labels_B, "num_labels": num_labels}
        source = dataclasses.replace(
            self.context(source_BT != PAD_ID, microbatch),
            key=encoder_key,
            segment_BL=packing.source_segments_BT,
            **labels,
        )
        target = dataclasses.replace(
            self.context(target_mask_BL, microbatch),
            key=decoder_key,
            segment_BL=packing.target_segments_BL,
            **labels,
        )
        encoded_BTM, of_encoder = self._encode(source_BT, packing.source_positions_BT, source)
        x_BLM = self._embed(
            self.target_embedding, target_inputs_BL, packing.target_positions_BL, target
        )
        seen = Source(encoded_BTM, source.mask_BL, source.segment_BL)
        x_BLM, of_decoder = run(self.decoder, x_BLM, target.fold(1), seen, self.config)
        outputs = jax.tree.map(lambda *layers: jnp.concatenate(layers), of_encoder, of_decoder)
        return self.logits(x_BLM), outputs

    def encode(self, source_BT: Int[Array, "B T"]) -> Float[Array, "B T M"]:
        """The encoder's output for each source token, when evaluating."""
        return self._encode(source_BT, None, self.context(source_BT != PAD_ID))[0]

    def context(
        self,
        mask_BL: Bool[Array, "B L"],
        microbatch: tuple[int | Int[Array, ""], int] = (0, 1),
    ) -> Context:
        """What layers need to know of rows with tokens here, when evaluating."""
        # A dense model has no groups that microbatches would have to divide.
        groups = self.config.num_groups if self.config.num_experts else 0
        row_B, group_G = numbers(mask_BL.shape[0], groups, microbatch)
        return Context(mask_BL=mask_BL, row_B=row_B, group_G=group_G)

    def _encode(self, source_BT, position_BT, context: Context):
        x_BTM = self._embed(self.source_embedding, source_BT, position_BT, context)
        x_BTM, output = run(self.encoder, x_BTM, context.fold(1), None, self.config)
        return self.encoder_norm(x_BTM), output

    @jax.named_scope("embedding")
    def _embed(self, embedding: Embedding, tokens_BL, position_BL, context: Context):
        if position_BL is None:
            position_BL = jnp.broadcast_to(jnp.arange(tokens_BL.shape[1]), tokens_BL.shape)
        x_BLM = embedding(tokens_BL, position_BL)
        return dropout(x_BLM, self.config.dropout_rate, context.row_keys(0))

    def start_decoding(
        self, source_BT: Int[Array, "B T"], *, beams: int, length: int
    ) -> DecodingState:
        """The encoder's keys and values, and empty room for `length` target positions."""
        encoded_BTM = self.encode(source_BT)
        graph, layers = nnx.split(self.decoder)

        def project(_, layer):
            pair = nnx.merge(graph, layer)
            parts = (pair.first.cross_attention, pair.second.cross_attention)
            return None, (parts[0].project(encoded_BTM), parts[1].project(encoded_BTM))

        _, source = jax.lax.scan(project, None, layers)
        heads = (self.config.num_heads, self.config.head_dim)
        shape = (self.config.num_decoder_layers // 2, source_BT.shape[0] * beams, length, *heads)
        empty = annotate(
            jnp.zeros(shape, encoded_BTM.dtype),
            "layer",
            "batch",
            "target_length",
            "act_heads",
            "head_dim",
        )
        kept = KeysValues(empty, empty)
        return DecodingState((kept, kept), source, source_BT != PAD_ID)

    def decode_step(
        self,
        tokens_BK: Int[Array, "B K"],
        index: Int[Array, ""],
        state: DecodingState,
        live_BK: Bool[Array, "B K"],
    ) -> tuple[Float[Array, "B K V"], DecodingState]:
        """Float32 logits for the token after position `index`, and the state with it added."""
        graph, layers = nnx.split(self.decoder)
        context = self.context(live_BK)

        def run_pair(x_BKM, inputs):
            layer, kept, source = inputs
            pair = nnx.merge(graph, layer)
            shared = (state.source_mask_BT, index, context)
            x_BKM, first = pair.first.step(x_BKM, kept[0], source[0], *shared)
            x_BKM, second = pair.second.step(x_BKM, kept[1], source[1], *shared)
            return x_BKM, (first, second)

        x_BKM = self.target_embedding(tokens_BK, jnp.full_like(tokens_BK, index))
        x_BKM, kept = jax.lax.scan(run_pair, x_BKM, (layers, state.kept, state.source))
        return self.logits(x_BKM), state._replace(kept=kept)

    @jax.named_scope("logits")
    def logits(self, x_BLM: Float[Array, "B L M"]) -> Float[Array, "B L V"]:
        """Float32 logits of what leaves the last layer."""
        x_BLM = self.decoder_norm(x_BLM)
        logits_BLV = jnp.einsum(
            "BLM,MV->BLV",
            x_BLM,
            self.output[...].astype(x_BLM.dtype),
            preferred_element_type=jnp.promote_types(x_BLM.dtype, jnp.float32),
        )
        return annotate(logits_BLV, "batch", "target_length", "vocab")
