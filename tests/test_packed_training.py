"""gshard-m4's packing feed trains gshard-train's model."""

import jax
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, make_mesh, rules_scope
from gshard_m4.feed import training_feed
from gshard_m4.packing import Packing
from gshard_train import state
from gshard_train.batch_loss import total_loss
from gshard_train.data import FEATURES, shift_right
from gshard_train.experiment import feature_faults
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig

LENGTHS = {"inputs": 24, "targets": 16}
CONFIG = TransformerConfig(
    source_vocab_size=12288,
    target_vocab_size=1536,
    max_length=24,
    embed=8,
    mlp=12,
    num_heads=2,
    head_dim=3,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_experts=4,
    num_groups=4,
)


@pytest.fixture(scope="module")
def packed() -> dict[str, np.ndarray]:
    feed = training_feed(
        mixture_or_task_name="m4_sample",
        task_feature_lengths=LENGTHS,
        batch_size=8,
        seed=0,
        packing=Packing(),
    )
    try:
        assert not list(feature_faults(feed))
        return next(feed)
    finally:
        feed.close()


def unpacked(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each example of a packed batch in a row of its own."""
    sides = []
    for tokens, segments in (
        ("encoder_input_tokens", "encoder_segment_ids"),
        ("decoder_target_tokens", "decoder_segment_ids"),
    ):
        sides.append(
            [
                row[segment == number]
                for row, segment in zip(batch[tokens], batch[segments], strict=True)
                for number in range(1, segment.max() + 1)
            ]
        )
    rows = -(-len(sides[0]) // 8) * 8
    source, target = (
        np.stack([np.pad(row, (0, length - len(row))) for row in [*side, *[empty] * rows][:rows]])
        for side, length, empty in zip(sides, LENGTHS.values(), np.zeros((2, 0), int), strict=True)
    )
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": shift_right(target),
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target != 0).astype(np.int32),
    }


def test_packed_examples_have_the_loss_and_gradients_of_the_same_examples_unpacked(
    packed, random_params
):
    alone = unpacked(packed)
    assert set(alone) == set(FEATURES)
    assert len(alone["encoder_input_tokens"]) > len(packed["encoder_input_tokens"])
    mesh = make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])
    model = state.abstract_model(CONFIG)
    params = random_params(CONFIG)
    plain = LossConfig(balance_weight=0.0)

    @jax.jit
    def loss_and_gradients(params, batch):
        with rules_scope(DEFAULT_RULES, mesh):
            # As in evaluation: no slot is missing, so no example matters to another by taking one.
            return jax.value_and_grad(lambda p: total_loss(p, model, plain, batch, None)[0])(params)

    found, expected = (loss_and_gradients(params, batch) for batch in (packed, alone))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)
