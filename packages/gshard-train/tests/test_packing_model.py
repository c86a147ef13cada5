"""Several examples in a row: each is computed as if it were alone in its row."""

import re
import types
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train.batch_loss import total_loss
from gshard_train.data import FEATURES, PACKED_FEATURES
from gshard_train.experiment import feature_faults
from gshard_train.loss import LossConfig
from gshard_train.models.packing import packing_of

# Source and target of each example; rows of 9 source and 8 target tokens.
EXAMPLES = [
    ([3, 4, 1], [5, 1]),
    ([6, 7, 8, 1], [9, 2, 4, 1]),
    ([10, 1], [3, 1]),
    ([11, 12, 13, 14, 1], [7, 8, 1]),
    ([15, 16, 17, 18, 19, 20, 1], [10, 11, 12, 13, 1]),
    ([21, 1], [14, 15, 1]),
]
ROWS = [[0, 1, 2], [3], [4, 5], []]


def laid_out(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """The arrays of packed batches, written down token by token; 8 rows at least for the groups."""
    count = max(8, len(rows))
    source, target = np.zeros((3, count, 9), np.int32), np.zeros((3, count, 8), np.int32)
    inputs = np.zeros((count, 8), np.int32)
    for row, examples in enumerate(rows):
        for side, arrays in enumerate((source, target)):
            at = 0
            for segment, number in enumerate(examples, 1):
                for position, token in enumerate(EXAMPLES[number][side]):
                    arrays[:, row, at] = token, segment, position
                    if side and position:
                        inputs[row, at] = EXAMPLES[number][side][position - 1]
                    at += 1
    return {
        "encoder_input_tokens": source[0],
        "decoder_input_tokens": inputs,
        "decoder_target_tokens": target[0],
        "decoder_loss_weights": (target[0] != 0).astype(np.int32),
        "encoder_segment_ids": source[1],
        "encoder_positions": source[2],
        "decoder_segment_ids": target[1],
        "decoder_positions": target[2],
    }


def without_packing(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: batch[name] for name in FEATURES}


@pytest.fixture(scope="module")
def run(model, one_device):
    """Loss, metrics and gradients as in evaluation: no slot is missing, so no example matters to
    another by taking one."""
    abstract, params = model

    @jax.jit
    def loss_and_gradients(batch):
        def loss(params):
            with rules_scope(DEFAULT_RULES, one_device):
                plain = LossConfig(balance_weight=0.0, label_smoothing=0.1)
                total, metrics = total_loss(params, abstract, plain, batch, None)
            return total, {name: metrics[name] for name in ("loss", "accuracy", "target_tokens")}

        return jax.value_and_grad(loss, has_aux=True)(params)

    return loss_and_gradients


def test_packed_examples_have_the_loss_and_gradients_of_the_same_examples_unpacked(run):
    packed = run(laid_out(ROWS))
    alone = run(without_packing(laid_out([[number] for number in range(6)])))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), packed, alone)


def test_without_segments_examples_of_a_row_would_look_at_each_other(run):
    (packed, _), _ = run(laid_out(ROWS))
    (mixed, _), _ = run(without_packing(laid_out(ROWS)))
    assert abs(packed - mixed) > 1e-3


def test_a_batch_with_half_of_the_packing_is_refused():
    batch = jax.tree.map(jnp.asarray, laid_out(ROWS))
    plain = {name: batch[name] for name in FEATURES}
    assert packing_of(plain) is None
    del batch["encoder_positions"], batch["decoder_positions"]
    expected = (
        "a packed batch has encoder_segment_ids, decoder_segment_ids and lacks encoder_positions, "
        "decoder_positions; give all four or none"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        packing_of(batch)


@pytest.mark.parametrize(
    ("features", "faults"),
    [
        (FEATURES, []),
        ((*FEATURES, *PACKED_FEATURES), []),
        (
            (*FEATURES, "speaker"),
            ["batches of the feed have speaker, which the model does not take"],
        ),
        (
            (*FEATURES, *PACKED_FEATURES[:2]),
            ["batches of the feed lack decoder_segment_ids, decoder_positions: without them"],
        ),
    ],
)
def test_a_feed_has_all_features_of_packing_or_none(features, faults):
    feed = cast(Any, types.SimpleNamespace(features=features))
    found = list(feature_faults(feed))
    assert len(found) == len(faults)
    for each, fault in zip(found, faults, strict=True):
        assert each.startswith(fault)
