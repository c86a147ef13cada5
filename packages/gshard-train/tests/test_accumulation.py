"""A batch in microbatches: the numbers of the whole batch, whatever is drawn at random."""

import functools

import jax
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train import state
from gshard_train.accumulation import gradient_and_metrics
from gshard_train.batch_loss import totals_of
from gshard_train.data import shift_right
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import sgd
from gshard_train.step import batch_sharding

# With dropout and a random second expert; one layer pair each, since it is compiled often.
CONFIG = TransformerConfig(
    source_vocab_size=23,
    target_vocab_size=19,
    max_length=9,
    embed=12,
    mlp=20,
    num_heads=2,
    head_dim=5,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_experts=4,
    num_groups=8,
    dropout_rate=0.3,
)
LOSS = LossConfig(balance_weight=0.5, router_z_weight=0.1, z_weight=0.01)


def batch() -> dict[str, np.ndarray]:
    """Rows of very different lengths, so that microbatches differ in tokens."""
    rng = np.random.default_rng(2)
    source, target = (rng.integers(2, size, (16, 6), dtype=np.int32) for size in (23, 19))
    for row in range(16):
        source[row, 1 + row // 3 :] = 0
        target[row, 6 - row // 4 :] = 0
    target[5] = 0
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": shift_right(target),
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target != 0).astype(np.int32),
    }


@pytest.fixture(scope="module")
def run(one_device, random_params):
    model = state.abstract_model(CONFIG)
    params = random_params(CONFIG)

    @functools.cache
    def run(microbatches: int):
        @jax.jit
        def compute(params, batch):
            with rules_scope(DEFAULT_RULES, one_device):
                return gradient_and_metrics(
                    params,
                    model,
                    LOSS,
                    batch,
                    jax.random.key(5),
                    microbatches=microbatches,
                    batch_sharding=batch_sharding(DEFAULT_RULES, one_device),
                    param_shardings=state.shardings(
                        model, sgd(1.0), DEFAULT_RULES, one_device
                    ).params,
                )

        return jax.device_get(compute(params, batch()))

    return run


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5), a, b)


@pytest.mark.slow
def test_gradients_and_metrics_are_those_of_the_whole_batch(run):
    close(run(4), run(1))


def test_metrics_count_what_is_there(run):
    _, metrics = run(1)
    rows = batch()
    assert metrics["target_tokens"] == (rows["decoder_target_tokens"] != 0).sum()
    assert metrics["source_tokens"] == (rows["encoder_input_tokens"] != 0).sum()
    assert metrics["sequences"] == 15
    assert metrics["expert_load"].shape == (2, 4)
    # Every token finds its first expert or is counted as dropped.
    assert metrics["expert_load"].sum() <= 2 * (metrics["source_tokens"] + metrics["target_tokens"])
    assert metrics["expert_load"].sum() > 0


@pytest.mark.parametrize("factor", [None, 7.0, "NUM_TOTAL_TARGET_TOKENS", "AVERAGE_PER_SEQUENCE"])
def test_the_other_terms_are_scaled_like_the_tokens(factor):
    loss = LossConfig(loss_normalizing_factor=factor)
    totals, mean = totals_of(batch(), loss), totals_of(batch(), LossConfig())
    np.testing.assert_allclose(mean.scale, 1.0, rtol=1e-6)
    np.testing.assert_allclose(totals.scale, totals.share_BL.sum(), rtol=1e-6)
    tokens = (batch()["decoder_target_tokens"] != 0).sum()
    expected = {None: tokens, 7.0: tokens / 7, "NUM_TOTAL_TARGET_TOKENS": tokens / 96}
    np.testing.assert_allclose(totals.scale, expected.get(factor, 1.0), rtol=1e-6)
