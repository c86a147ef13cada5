"""A whole training step on a mesh with many axes, in microbatches: the numbers of one device."""

import jax
import numpy as np
import pytest

from gshard_annotate import Rules, make_mesh
from gshard_train import layouts, state
from gshard_train.batch_rows import to_mesh
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


def step(
    params: state.Params,
    batch: dict[str, np.ndarray],
    rules: Rules,
    *,
    microbatches: int,
    **axes: int,
):
    """Parameters after one step of gradient descent at a rate of 1, and the step's metrics."""
    mesh = make_mesh(axes, devices=jax.devices()[: int(np.prod(list(axes.values())))])
    model, optimizer = state.abstract_model(CONFIG), sgd(1.0)
    new = state.TrainState(
        np.int32(0), params, optimizer.init(params), jax.random.key_data(jax.random.key(5))
    )
    placed = jax.device_put(new, state.shardings(model, optimizer, rules, mesh))
    run = make_step(model, optimizer, LOSS, rules, mesh, microbatches=microbatches)
    after, metrics = run(placed, to_mesh(batch, batch_sharding(rules, mesh)))
    return jax.device_get((after.params, metrics))


@pytest.mark.slow
def test_a_step_in_stages_and_microbatches_fully_sharded_is_that_of_one_device(
    make_batch, random_params
):
    batch = make_batch(32, (34, 10), (38, 6))
    batch["decoder_target_tokens"][3] = batch["decoder_loss_weights"][3] = 0
    arguments = (random_params(CONFIG), batch)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        step(*arguments, layouts.fsdp(), microbatches=2, stage=2, model=2, data=1, expert=2),
        step(*arguments, layouts.gshard(), microbatches=1, data=1, expert=1),
    )
