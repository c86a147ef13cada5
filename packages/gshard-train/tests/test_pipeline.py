"""Pipeline stages: the numbers of a plain loop over layers, and what crosses between devices."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, expect_collectives, make_mesh, rules_scope
from gshard_train import state
from gshard_train.batch_loss import total_loss
from gshard_train.loss import LossConfig
from gshard_train.models.pipeline import pipeline_faults, run_stages
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam

RULES = DEFAULT_RULES.replace(layer="stage")
# All sizes differ where they may, so that a swapped axis fails.
CONFIG = TransformerConfig(
    source_vocab_size=23,
    target_vocab_size=19,
    max_length=9,
    embed=12,
    mlp=20,
    num_heads=2,
    head_dim=5,
    num_encoder_layers=8,
    num_decoder_layers=4,
    num_experts=4,
    num_groups=8,
    dropout_rate=0.1,
)
LOSS = LossConfig(balance_weight=0.1, router_z_weight=0.01)


def mesh_of(data: int, expert: int, stage: int):
    axes = {"data": data, "expert": expert, "stage": stage}
    return make_mesh(axes, devices=jax.devices()[: data * expert * stage])


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 2), (2, 1)])
def test_rows_pass_all_layers_in_order_and_come_back_in_theirs(stages, microbatches):
    layers, rows, groups = 8, 16, 8
    weights = jax.random.normal(jax.random.key(0), (layers, 5))
    x_BLM = jax.random.normal(jax.random.key(1), (rows, 3, 5))
    row_B, group_G = jnp.arange(rows), jnp.arange(groups)

    def layer(x_BLM, weight, number, row_B, group_G):
        # Not linear, and different for each layer, row and group.
        group_B = jnp.repeat(group_G, rows // groups)
        return jnp.sin(x_BLM * weight + (number + row_B + 3 * group_B)[:, None, None] * 0.1)

    def stage(weights, numbers, moving):
        x_BLM, *numbers_of_rows = moving

        def one(x_BLM, inputs):
            return layer(x_BLM, *inputs, *numbers_of_rows), None

        return (jax.lax.scan(one, x_BLM, (weights, numbers))[0], *numbers_of_rows), None

    def by_stages(weights, x_BLM):
        with rules_scope(RULES, mesh_of(1, 2, stages)):
            moving = (x_BLM, row_B, group_G)
            x_BLM, _ = run_stages(stage, weights, moving, microbatches=microbatches)
        return (x_BLM**2).sum(), x_BLM

    def by_loop(weights, x_BLM):
        for number in range(layers):
            x_BLM = layer(x_BLM, weights[number], number, row_B, group_G)
        return (x_BLM**2).sum(), x_BLM

    found, expected = (
        jax.jit(jax.value_and_grad(function, argnums=(0, 1), has_aux=True))(weights, x_BLM)
        for function in (by_stages, by_loop)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, expected)


@pytest.fixture(scope="module")
def params(random_params) -> state.Params:
    return random_params(CONFIG)


@pytest.fixture(scope="module")
def batch(make_batch) -> dict[str, np.ndarray]:
    return make_batch(16, (23, 7), (19, 6))


def compiled(mesh, params, batch):
    """Loss, metrics and gradients of a batch with dropout and the second expert's coin."""
    model = state.abstract_model(CONFIG)
    placed = jax.device_put(params, state.shardings(model, adam(1e-3), RULES, mesh).params)

    @jax.jit
    def run(params, batch):
        with rules_scope(RULES, mesh):
            gradient = jax.value_and_grad(total_loss, has_aux=True)
            return gradient(params, model, LOSS, batch, jax.random.key(5))

    return run.lower(placed, batch).compile(), placed


@pytest.mark.slow
def test_stages_give_the_numbers_of_one_device_and_gather_no_layer(params, batch):
    one, on_one = compiled(mesh_of(1, 1, 1), params, batch)
    several, on_several = compiled(mesh_of(2, 2, 2), params, batch)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        jax.device_get(several(on_several, batch)),
        jax.device_get(one(on_one, batch)),
    )
    # Two all-to-alls a layer with experts, forward and backward, as without stages.
    found = expect_collectives(several, {"all-to-all": 8})
    moved = [each.shape for each in found if each.kind == "collective-permute"]
    rows = 16 // 2 // 4  # of a microbatch, on one device
    assert f"f32[1,{rows},7,12]" in moved
    assert f"f32[1,{rows},6,12]" in moved
    wide = [each.shape for each in found if each.kind == "all-gather" and each.bytes > 64]
    assert not wide


def test_what_stages_do_not_divide_is_named_together():
    config = dataclasses.replace(
        CONFIG, num_encoder_layers=12, pipeline_microbatches=3, num_groups=8
    )
    assert list(pipeline_faults(config, RULES, mesh_of(1, 2, 4), batch_size=16)) == [
        "num_encoder_layers=12 makes 6 pairs, which 4 pipeline stages do not divide; use 8 or 16 "
        "layers, or a number of stages that divides 6",
        "num_decoder_layers=4 makes 2 pairs, which 4 pipeline stages do not divide; use 8 layers, "
        "or a number of stages that divides 2",
        "batch_size=16 cannot be divided by pipeline_microbatches=3 x 2 parts of the mesh; use a "
        "multiple of 6",
        "num_groups=8 cannot be divided by pipeline_microbatches=3 x 2 parts of the mesh; use a "
        "multiple of 6",
    ]


def test_without_stages_nothing_has_to_be_divided():
    config = dataclasses.replace(CONFIG, pipeline_microbatches=3)
    assert not list(pipeline_faults(config, RULES, mesh_of(2, 4, 1), batch_size=16))


def test_accumulation_comes_before_the_pipeline():
    faults = list(pipeline_faults(CONFIG, RULES, mesh_of(1, 2, 2), batch_size=16, microbatches=4))
    assert faults == [
        "num_groups=8 cannot be divided by 4 microbatches of accumulation x pipeline_microbatches=2"
        " x 2 parts of the mesh; use a multiple of 16"
    ]


def test_microbatches_that_cut_a_group_are_refused_when_called():
    expected = (
        "pipeline: a batch of 4 and 6 rows and groups cannot be divided into "
        "pipeline_microbatches=4; make both numbers multiples of it"
    )
    with rules_scope(RULES, mesh_of(1, 1, 2)), pytest.raises(ValueError, match=re.escape(expected)):
        run_stages(
            lambda layers, numbers, moving: (moving, None),
            jnp.zeros((4, 3)),
            (jnp.zeros((6, 2)), jnp.zeros(4)),
            microbatches=4,
        )
