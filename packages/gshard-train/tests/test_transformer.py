"""The encoder-decoder: padding, causality, decoding step by step, rematerialisation, sizes."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train import state
from gshard_train.decode import VARYING
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam

SOURCE_BT = np.array([[3, 4, 5, 6, 1, 0], [7, 8, 1, 0, 0, 0]] * 4, np.int32)
INPUTS_BL = np.array([[0, 3, 4, 5, 6], [0, 9, 2, 0, 0]] * 4, np.int32)
MASK_BL = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]] * 4, bool)


def run(model, source, inputs, mask, key=None, mesh=None):
    abstract, params = model

    @jax.jit
    def forward(params, source, inputs, mask):
        with rules_scope(DEFAULT_RULES, mesh):
            return abstract.merge(params)(source, inputs, mask, key=key)

    return forward(params, source, inputs, mask)


def test_logits_have_one_row_a_target_position(model, one_device):
    logits, output = run(model, SOURCE_BT, INPUTS_BL, MASK_BL, mesh=one_device)
    assert logits.shape == (8, 5, 19)
    assert logits.dtype == jnp.float32
    assert output.balance_loss.shape == (3,)  # two MoE layers of the encoder, one of the decoder


def test_more_padding_changes_no_logit_and_no_statistic(model, one_device):
    logits, output = run(model, SOURCE_BT, INPUTS_BL, MASK_BL, mesh=one_device)
    source = np.pad(SOURCE_BT, ((0, 0), (0, 2)))
    inputs, mask = (np.pad(x, ((0, 0), (0, 3))) for x in (INPUTS_BL, MASK_BL))
    padded, padded_output = run(model, source, inputs, mask, mesh=one_device)
    np.testing.assert_allclose(padded[:, :5][MASK_BL], logits[MASK_BL], atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), padded_output, output)


def test_a_target_token_changes_no_earlier_logit(model, one_device):
    logits, _ = run(model, SOURCE_BT, INPUTS_BL, MASK_BL, mesh=one_device)
    changed = INPUTS_BL.copy()
    changed[:, 3] = 11
    others, _ = run(model, SOURCE_BT, changed, MASK_BL, mesh=one_device)
    np.testing.assert_allclose(others[:, :3], logits[:, :3], atol=1e-6)
    assert np.abs(others[0, 3] - logits[0, 3]).max() > 1e-3


def test_decoding_step_by_step_gives_the_logits_of_the_whole_sequence(model, one_device):
    abstract, params = model
    logits, _ = run(model, SOURCE_BT, INPUTS_BL, MASK_BL, mesh=one_device)

    @jax.jit
    def stepwise(params, source):
        with rules_scope(DEFAULT_RULES, one_device, varying=VARYING):
            module = abstract.merge(params)
            decoding = module.start_decoding(source, beams=3, length=5)
            live = jnp.ones((8, 3), bool)
            steps = []
            for i in range(5):
                tokens = jnp.broadcast_to(INPUTS_BL[:, i : i + 1], (8, 3))
                step, decoding = module.decode_step(tokens, jnp.int32(i), decoding, live)
                steps.append(step)
            return jnp.stack(steps, axis=1)

    found = stepwise(params, SOURCE_BT)
    for beam in range(3):
        np.testing.assert_allclose(found[:, :, beam][MASK_BL], logits[MASK_BL], atol=1e-5)


def test_dropout_and_coin_depend_on_the_key_and_only_in_training(model, one_device):
    arguments = (model, SOURCE_BT, INPUTS_BL, MASK_BL)
    first, again, other = (
        run(*arguments, key=jax.random.key(seed), mesh=one_device)[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    evaluated = [run(*arguments, mesh=one_device)[0] for _ in range(2)]
    np.testing.assert_array_equal(*evaluated)


@pytest.mark.parametrize("remat", ["full", "save_dispatch"])
def test_rematerialisation_changes_no_gradient(tiny, model, one_device, remat):
    params = model[1]
    key = jax.random.key(3)

    def gradient(config: TransformerConfig):
        again = state.abstract_model(config)

        @jax.jit
        @jax.grad
        def run_backward(params, source, inputs, mask):
            with rules_scope(DEFAULT_RULES, one_device):
                logits, _ = again.merge(params)(source, inputs, mask, key=key)
                return (logits**2).sum()

        return run_backward(params, SOURCE_BT, INPUTS_BL, MASK_BL)

    plain = gradient(tiny)
    kept = gradient(dataclasses.replace(tiny, remat=remat))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), kept, plain)


def test_bfloat16_activations_keep_float32_logits_and_parameters(tiny, one_device):
    config = dataclasses.replace(tiny, dtype=jnp.bfloat16)
    abstract = state.abstract_model(config)
    made = state.create(abstract, adam(1e-3), DEFAULT_RULES, one_device, seed=0)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(made.params)} == {"float32"}
    logits, output = run((abstract, made.params), SOURCE_BT, INPUTS_BL, MASK_BL, mesh=one_device)
    assert logits.dtype == jnp.float32
    assert output.balance_loss.dtype == jnp.float32


def test_a_model_without_experts_reports_nothing(tiny, one_device):
    abstract = state.abstract_model(dataclasses.replace(tiny, num_experts=0))
    made = state.create(abstract, adam(1e-3), DEFAULT_RULES, one_device, seed=0)
    _, output = run((abstract, made.params), SOURCE_BT, INPUTS_BL, MASK_BL, mesh=one_device)
    assert output is None


def test_paper_model_has_the_paper_s_size():
    config = TransformerConfig(source_vocab_size=64_000, target_vocab_size=32_000)
    sizes = {
        name: sum(leaf.size for leaf in jax.tree.leaves(part))
        for name, part in state.abstract_model(config).shapes().items()
    }
    experts = 18 * 2048 * 2 * 1024 * 8192
    assert experts < sum(sizes.values()) < experts + 1.0e9  # 618.5 billion and 0.9 billion
    assert sizes["encoder"] > sizes["decoder"] * 0.99


def test_faults_of_a_config_come_together():
    expected = (
        "TransformerConfig: source_vocab_size=0 must be an integer of at least 1; "
        "num_encoder_layers=3 must be even: layers come in pairs, one with experts and one dense; "
        "dropout_rate=1.0 must be a number in [0, 1); "
        "remat='some' must be one of none, full, save_dispatch"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        TransformerConfig(
            source_vocab_size=0,
            target_vocab_size=5,
            num_encoder_layers=3,
            dropout_rate=1.0,
            remat="some",  # pyright: ignore[reportArgumentType]
        )


def test_layers_are_stacked_under_a_name():
    config = TransformerConfig(source_vocab_size=5, target_vocab_size=5)
    names = state.abstract_model(config).names()
    assert names["encoder"]["first"]["feed_forward"]["layer"]["wi"] == (
        "layer",
        "expert",
        "embed",
        "mlp",
    )
