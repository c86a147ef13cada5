"""A whole training step on a mesh with many axes, in microbatches: the numbers of one device."""

import jax
import numpy as np
import pytest

from gshard_annotate import Rules, make_mesh
from gshard_train import layouts, state
from gshard_train.data import shift_right, to_mesh
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import sgd
from gshard_train.step import batch_sharding, make_step

# With dropout and the second expert's coin; sizes that differ and that two divides.
CONFIG = TransformerConfig(
    source_vocab_size=34,
    target_vocab_size=38,
    max_length=12,
    embed=24,
    mlp=40,
    num_heads=2,
    head_dim=7,
    num_encoder_layers=4,
    num_decoder_layers=4,
    num_experts=4,
    num_groups=16,
    dropout_rate=0.1,
    pipeline_microbatches=2,
)
LOSS = LossConfig(balance_weight=0.1, router_z_weight=0.01, z_weight=1e-3)


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    source = rng.integers(2, 34, (32, 10), dtype=np.int32)
    target = rng.integers(2, 38, (32, 6), dtype=np.int32)
    for row in range(32):
        source[row, 1 + row % 10 :] = 0
        target[row, 1 + row % 6 :] = 0
    target[3] = 0
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": shift_right(target),
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target != 0).astype(np.int32),
    }


def step(params: state.Params, rules: Rules, *, microbatches: int, **axes: int):
    """Parameters after one step of gradient descent at a rate of 1, and the step's metrics."""
    mesh = make_mesh(axes, devices=jax.devices()[: int(np.prod(list(axes.values())))])
    model, optimizer = state.abstract_model(CONFIG), sgd(1.0)
    new = state.TrainState(
        np.int32(0), params, optimizer.init(params), jax.random.key_data(jax.random.key(5))
    )
    placed = jax.device_put(new, state.shardings(model, optimizer, rules, mesh))
    run = make_step(model, optimizer, LOSS, rules, mesh, microbatches=microbatches)
    after, metrics = run(placed, to_mesh(batch(), batch_sharding(rules, mesh)))
    return jax.device_get((after.params, metrics))


@pytest.mark.slow
def test_a_step_in_stages_and_microbatches_fully_sharded_is_that_of_one_device():
    one = make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])
    made = state.create(state.abstract_model(CONFIG), sgd(1.0), layouts.gshard(), one, seed=0)
    params = jax.device_get(made.params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        step(params, layouts.fsdp(), microbatches=2, stage=2, model=2, data=1, expert=2),
        step(params, layouts.gshard(), microbatches=1, data=1, expert=1),
    )
