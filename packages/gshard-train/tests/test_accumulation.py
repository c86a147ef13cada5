"""A batch in microbatches: the numbers of the whole batch, whatever is drawn at random."""

import functools

import jax
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train import state
from gshard_train.accumulation import gradient_and_metrics
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
def run(one_device):
    model = state.abstract_model(CONFIG)
    params = state.create(model, sgd(1.0), DEFAULT_RULES, one_device, seed=0).params

    @functools.cache
    def run(microbatches: int, factor=LOSS.loss_normalizing_factor):
        @jax.jit
        def compute(params, batch):
            with rules_scope(DEFAULT_RULES, one_device):
                return gradient_and_metrics(
                    params,
                    model,
                    LossConfig(**{**vars(LOSS), "loss_normalizing_factor": factor}),
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
@pytest.mark.parametrize("microbatches", [2, 4])
def test_gradients_and_metrics_are_those_of_the_whole_batch(run, microbatches):
    close(run(microbatches), run(1))


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


@pytest.mark.slow
def test_a_sum_over_sequences_of_means_is_the_same_in_parts(run):
    close(run(2, "AVERAGE_PER_SEQUENCE"), run(1, "AVERAGE_PER_SEQUENCE"))


@pytest.mark.slow
def test_another_normalisation_multiplies_the_gradient_with_all_its_terms(run):
    (mean, metrics), (summed, of_sum) = run(1), run(1, None)
    tokens = metrics["target_tokens"]
    close(summed, jax.tree.map(lambda g: g * tokens, mean))
    np.testing.assert_allclose(of_sum["total_loss"], tokens * metrics["total_loss"], rtol=1e-5)
    np.testing.assert_allclose(of_sum["loss"], metrics["loss"], rtol=1e-6)
