"""The loss of a batch by hand: weights of tokens, and what is counted.

Axes: B batch, L target length, V vocabulary.
"""

import math

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import DEFAULT_RULES
from gshard_train.accumulation import gradient_and_metrics
from gshard_train.batch_loss import total_loss, totals_of
from gshard_train.loss import LossConfig
from gshard_train.state import Model
from gshard_train.step import batch_sharding

LOSS = LossConfig(label_smoothing=0.0)
# Probabilities of the next token by the one before it.
TABLE_VV = np.array([[1, 2, 1, 4], [2, 4, 1, 1], [1, 1, 4, 2], [4, 1, 2, 1]], np.float32) / 8

seen = []  # the masks that the model was given


class Table(Model):
    """A model whose parameters are the logits by the token before."""

    def merge(self, params):
        def logits(source_BT, inputs_BL, mask_BL, **_):
            seen.append(mask_BL)
            return params[inputs_BL], None

        return logits


def batch(weight_BL) -> dict[str, np.ndarray]:
    # -log2 of their probabilities after the token before: 1, 3 and 2, 1.
    target_BL = np.array([[3, 3, 0], [1, 1, 0]], np.int32)
    return {
        "encoder_input_tokens": np.array([[2, 3], [1, 0]], np.int32),
        "decoder_input_tokens": np.pad(target_BL, ((0, 0), (1, 0)))[:, :-1],
        "decoder_target_tokens": target_BL,
        "decoder_loss_weights": np.array(weight_BL),
    }


def metrics_of(weight_BL, microbatches: int, one_device):
    sharding = batch_sharding(DEFAULT_RULES, one_device)
    with jax.set_mesh(one_device):
        return gradient_and_metrics(
            np.log(TABLE_VV),
            Table(None, None, None),
            LOSS,
            batch(weight_BL),
            jax.random.key(0),
            microbatches=microbatches,
            batch_sharding=sharding,
            param_shardings=NamedSharding(one_device, PartitionSpec()),
        )


@pytest.mark.parametrize("microbatches", [1, 2])
def test_a_token_counts_by_its_weight(microbatches, one_device):
    # Of 1 and 3 bits in the first row, 2 and 1 in the second.
    weight_BL = np.array([[0.5, 2.0, 0.0], [0.25, 0.0, 0.0]], np.float32)
    grads, metrics = metrics_of(weight_BL, microbatches, one_device)
    bits = (0.5 * 1 + 2.0 * 3 + 0.25 * 2) / 2.75
    np.testing.assert_allclose(metrics["loss"], bits * math.log(2), rtol=1e-6)
    np.testing.assert_allclose(metrics["total_loss"], metrics["loss"], rtol=1e-6)
    np.testing.assert_allclose(metrics["accuracy"], 0.5 / 2.75, rtol=1e-6)
    # The weight of the rows whose token before is 0, 3 and 1, at probability less target.
    expected = np.zeros((4, 4))
    expected[0] = 0.75 * TABLE_VV[0] - [0, 0.25, 0, 0.5]
    expected[3] = 2.0 * TABLE_VV[3] - [0, 0, 0, 2.0]
    np.testing.assert_allclose(grads, expected / 2.75, atol=1e-6)
    assert (metrics["target_tokens"], metrics["sequences"]) == (4, 2)


def test_whole_weights_and_marks_give_the_same_bits(one_device):
    marks = np.array([[1, 1, 0], [1, 1, 0]], np.int32)
    _, of_marks = metrics_of(marks, 1, one_device)
    _, of_weights = metrics_of(marks.astype(np.float32), 1, one_device)
    assert of_marks == of_weights
    np.testing.assert_allclose(of_marks["loss"], (1 + 3 + 2 + 1) / 4 * math.log(2), rtol=1e-6)


def test_a_target_that_counts_nothing_still_is_a_token_of_the_model(one_device):
    seen.clear()
    weight_BL = np.array([[0, 1, 0], [0, 0, 0]], np.int32)
    with jax.set_mesh(one_device):
        total_loss(np.log(TABLE_VV), Table(None, None, None), LOSS, batch(weight_BL), None)
    np.testing.assert_array_equal(seen[0], [[True, True, False]] * 2)


def test_sequences_of_packed_rows_are_counted_one_by_one():
    rows = batch(np.ones((2, 3), np.int32))
    rows["decoder_target_tokens"] = np.array([[3, 1, 0, 1, 0, 0], [0] * 6, [2, 2, 2, 1, 1, 0]])
    rows["decoder_loss_weights"] = (rows["decoder_target_tokens"] != 0).astype(np.int32)
    assert totals_of(rows, LOSS).sequences == 2
    # The second of the first row has no target token.
    rows["decoder_segment_ids"] = np.array([[1, 1, 2, 3, 0, 0], [0] * 6, [1, 1, 2, 3, 3, 0]])
    assert totals_of(rows, LOSS).sequences == 2 + 0 + 3
