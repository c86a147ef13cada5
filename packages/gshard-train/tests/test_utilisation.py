"""Floating-point operations, against a loop over layers."""

import dataclasses

import pytest

from gshard_train.monitoring.utilisation import step_flops

TOKENS = {"source_tokens": 7, "target_tokens": 5, "source_length": 3, "target_length": 2}


def naive(config, choices=None):
    """Sums over layers, each matrix multiplication by itself."""
    M, H, V = config.embed, config.mlp, config.target_vocab_size
    heads = config.num_heads * config.head_dim
    T, L, sources, targets = 3, 2, 7, 5
    total = targets * 2 * M * V
    for side, layers in (
        ("encoder", config.num_encoder_layers),
        ("decoder", config.num_decoder_layers),
    ):
        tokens, length = (sources, T) if side == "encoder" else (targets, L)
        for layer in range(layers):
            total += tokens * 4 * 2 * M * heads  # query, key, value, output
            total += tokens * 2 * 2 * length * heads  # scores, weighted values
            if side == "decoder":
                total += tokens * 2 * 2 * M * heads + sources * 2 * 2 * M * heads
                total += tokens * 2 * 2 * T * heads
            if config.num_experts and layer % 2 == 0:
                total += tokens * 2 * M * config.num_experts
                total += 0 if choices is not None else 2 * tokens * 2 * 2 * M * H
            else:
                total += tokens * 2 * 2 * M * H
    return 3 * (total + (choices or 0) * 2 * 2 * M * H)


@pytest.mark.parametrize("choices", [None, 0, 31])
def test_operations_are_those_of_every_matrix_multiplication(tiny, choices):
    assert step_flops(tiny, choices=choices, **TOKENS) == naive(tiny, choices)


def test_a_dense_model_has_a_feed_forward_in_every_layer(tiny):
    dense = dataclasses.replace(tiny, num_experts=0)
    assert step_flops(dense, **TOKENS) == naive(dense)


def test_without_a_second_expert_a_token_makes_one_choice(tiny):
    one = dataclasses.replace(tiny, second_expert="never")
    layer_tokens = (4 * 7 + 2 * 5) / 2
    assert step_flops(one, **TOKENS) == naive(one, layer_tokens)
