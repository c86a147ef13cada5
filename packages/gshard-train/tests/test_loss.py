"""Cross-entropy against a naive loop."""

import math
import re

import numpy as np
import pytest

from gshard_train.loss import NORMALIZERS, LossConfig, cross_entropy, loss_shares

LOGITS_BLV = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
TARGETS_BL = np.array([[1, 4, 0], [2, 2, 3]])


def naive(smoothing: float) -> np.ndarray:
    """KL divergence of the smoothed target from the model, token by token."""
    losses = np.zeros((2, 3))
    for b in range(2):
        for i in range(3):
            logits = LOGITS_BLV[b, i].astype(np.float64)
            log_p = logits - math.log(np.exp(logits).sum())
            for v in range(5):
                q = 1 - smoothing if v == TARGETS_BL[b, i] else smoothing / 4
                losses[b, i] += q * (math.log(q) - log_p[v]) if q else 0.0
    return losses


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_smoothed_loss_is_the_divergence_from_the_smoothed_target(smoothing):
    found = cross_entropy(LOGITS_BLV, TARGETS_BL, smoothing)
    np.testing.assert_allclose(found.smoothed_BL, naive(smoothing), atol=1e-6)
    np.testing.assert_allclose(found.plain_BL, naive(0.0), atol=1e-6)


def test_correct_where_the_target_has_the_highest_logit():
    found = cross_entropy(LOGITS_BLV, TARGETS_BL, 0.0)
    np.testing.assert_array_equal(found.correct_BL, LOGITS_BLV.argmax(-1) == TARGETS_BL)


def test_weights_outside_their_range_are_refused_together():
    expected = (
        "LossConfig: label_smoothing=1.0 must be in [0, 1); balance_weight=-0.1 must be in [0, 1)"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        LossConfig(label_smoothing=1.0, balance_weight=-0.1)


def test_z_is_the_squared_log_sum_of_the_logits():
    found = cross_entropy(LOGITS_BLV, TARGETS_BL, 0.1)
    np.testing.assert_allclose(found.log_z_BL, np.log(np.exp(LOGITS_BLV).sum(-1)), rtol=1e-6)


WEIGHT_BL = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], np.float32)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (None, [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]),
        (8, [[1 / 8, 1 / 8, 1 / 8, 0], [1 / 8, 0, 0, 0], [0, 0, 0, 0]]),
        ("NUM_REAL_TARGET_TOKENS", [[1 / 4, 1 / 4, 1 / 4, 0], [1 / 4, 0, 0, 0], [0, 0, 0, 0]]),
        ("NUM_TOTAL_TARGET_TOKENS", [[1 / 12] * 3 + [0], [1 / 12, 0, 0, 0], [0, 0, 0, 0]]),
        ("AVERAGE_PER_SEQUENCE", [[1 / 6, 1 / 6, 1 / 6, 0], [1 / 2, 0, 0, 0], [0, 0, 0, 0]]),
    ],
)
def test_shares_of_tokens_are_those_of_t5x_s_normalisation(factor, expected):
    np.testing.assert_allclose(loss_shares(WEIGHT_BL, factor), expected, rtol=1e-6)


def test_sequences_packed_into_a_row_count_one_by_one():
    weight_BL = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 0]], np.float32)
    segment_BL = np.array([[1, 1, 1, 2, 0], [1, 1, 1, 1, 0]])
    expected = [[1 / 6, 1 / 6, 0, 1 / 3, 0], [1 / 12, 1 / 12, 1 / 12, 1 / 12, 0]]
    found = loss_shares(weight_BL, "AVERAGE_PER_SEQUENCE", segment_BL)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (None, [[0.5, 0.25, 0], [0, 0.125, 0]]),
        ("NUM_REAL_TARGET_TOKENS", [[4 / 7, 2 / 7, 0], [0, 1 / 7, 0]]),
        ("NUM_TOTAL_TARGET_TOKENS", [[1 / 12, 1 / 24, 0], [0, 1 / 48, 0]]),
        ("AVERAGE_PER_SEQUENCE", [[1 / 3, 1 / 6, 0], [0, 1 / 2, 0]]),
    ],
)
def test_shares_of_parts_of_tokens_are_t5x_s_too(factor, expected):
    weight_BL = np.array([[0.5, 0.25, 0], [0, 0.125, 0]], np.float32)
    np.testing.assert_allclose(loss_shares(weight_BL, factor), expected, rtol=1e-6)


def test_a_batch_without_targets_has_shares_of_0():
    none_BL = np.zeros((2, 3), np.float32)
    for factor in (*NORMALIZERS, None, 2.0):
        np.testing.assert_array_equal(loss_shares(none_BL, factor), none_BL)


def test_a_normalisation_that_is_none_is_refused_with_the_nearest():
    expected = (
        "LossConfig: z_weight=2.0 must be in [0, 1); loss_normalizing_factor="
        "'NUM_REAL_TARGETS_TOKENS' must be a number, None or one of NUM_REAL_TARGET_TOKENS, "
        "NUM_TOTAL_TARGET_TOKENS, AVERAGE_PER_SEQUENCE; did you mean NUM_REAL_TARGET_TOKENS?"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        LossConfig(z_weight=2.0, loss_normalizing_factor="NUM_REAL_TARGETS_TOKENS")
    with pytest.raises(ValueError, match="loss_normalizing_factor=0 must be a number above 0"):
        LossConfig(loss_normalizing_factor=0)
