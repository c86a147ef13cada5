"""How many floating-point operations a step needs, by the model and not by the program.

Counted are matrix multiplications of tokens that are no padding, forward and twice that backward
(PaLM, arXiv 2204.02311, appendix B). What a program adds is not: padding, recomputed activations,
the one-hot matmuls that send tokens to their slots.

A forward pass takes, in multiplications and additions, with M model width, H hidden width, N heads
of width D, E experts, V target pieces, T and L the rows' lengths:

    attention to itself     8 M N D + 4 T N D   a source token and encoder layer (L in the decoder)
    attention to the source 4 M N D + 4 T N D   a target token and decoder layer
                            4 M N D             a source token and decoder layer: keys and values
    dense feed-forward      4 M H               a token and dense layer
    experts                 4 M H               a choice that got a slot
    router                  2 M E               a token and layer with experts
    logits                  2 M V               a target token
"""

from gshard_train.models.config import TransformerConfig


def step_flops(
    config: TransformerConfig,
    *,
    source_tokens: float,
    target_tokens: float,
    source_length: int,
    target_length: int,
    choices: float | None = None,
) -> float:
    """Floating-point operations of a training step.

    Args:
      config: the model's.
      source_tokens: of the global batch, without padding.
      target_tokens: likewise.
      source_length: T, of the batch's rows.
      target_length: L.
      choices: of tokens that got a slot, over all MoE layers; None counts all that are made.
    """
    M, heads = config.embed, config.num_heads * config.head_dim
    encoders, decoders = config.num_encoder_layers, config.num_decoder_layers
    encoder_token = encoders * (8 * M * heads + 4 * source_length * heads)
    decoder_token = decoders * (12 * M * heads + 4 * (source_length + target_length) * heads)
    keys_values = decoders * 4 * M * heads
    total = source_tokens * (encoder_token + keys_values)
    total += target_tokens * (decoder_token + 2 * M * config.target_vocab_size)
    layer_tokens = encoders * source_tokens + decoders * target_tokens
    if not config.num_experts:
        return 3 * (total + layer_tokens * 4 * M * config.mlp)
    layer_tokens /= 2  # every other layer has experts
    if choices is None:
        choices = choices_per_token(config) * layer_tokens
    total += (layer_tokens * config.mlp + choices * config.expert_width) * 4 * M
    return 3 * (total + layer_tokens * 2 * M * config.num_experts)


def choices_per_token(config: TransformerConfig) -> int:
    """Experts that a token asks for in each MoE layer."""
    return 1 if config.second_expert == "never" else config.choices
