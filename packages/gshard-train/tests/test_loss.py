"""Cross-entropy against a naive loop."""

import math
import re

import numpy as np
import pytest

from gshard_train.loss import LossConfig, cross_entropy

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
