"""The whole model on a mesh of data 2 x expert 4: the numbers of one device, few collectives."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from gshard_annotate import DEFAULT_RULES, expect_collectives, make_mesh, rules_scope
from gshard_train import state
from gshard_train.batch_rows import to_mesh
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam
from gshard_train.step import batch_sharding, total_loss

# All sizes differ, so that a swapped axis fails.
CONFIG = TransformerConfig(
    source_vocab_size=31,
    target_vocab_size=29,
    max_length=12,
    embed=24,
    mlp=40,
    num_heads=3,
    head_dim=7,
    num_encoder_layers=4,
    num_decoder_layers=4,
    num_experts=4,
    num_groups=8,
    dropout_rate=0.1,
)
LOSS = LossConfig(balance_weight=0.1, router_z_weight=0.01)


def mesh_of(data: int, expert: int) -> Mesh:
    return make_mesh({"data": data, "expert": expert}, devices=jax.devices()[: data * expert])


@pytest.fixture(scope="module")
def params() -> state.Params:
    made = state.create(
        state.abstract_model(CONFIG), adam(1e-3), DEFAULT_RULES, mesh_of(1, 1), seed=0
    )
    return jax.device_get(made.params)


@pytest.fixture(scope="module")
def run(make_batch, params):
    """A function that gives loss, metrics and gradients of one batch, and the program.

    With dropout and the second expert's coin.
    """
    batch = make_batch(16, (31, 10), (29, 6))

    def run(config: TransformerConfig, mesh: Mesh):
        model = state.abstract_model(config)
        shardings = state.shardings(model, adam(1e-3), DEFAULT_RULES, mesh).params

        def compute(params, batch):
            with rules_scope(DEFAULT_RULES, mesh):
                gradient = jax.value_and_grad(total_loss, has_aux=True)
                return gradient(params, model, LOSS, batch, jax.random.key(5))

        placed = jax.tree.map(jax.device_put, params, shardings)
        arguments = placed, to_mesh(batch, batch_sharding(DEFAULT_RULES, mesh))
        jitted = jax.jit(compute, out_shardings=((None, None), shardings))
        compiled = jitted.lower(*arguments).compile()
        return jax.device_get(compiled(*arguments)), compiled

    return run


@pytest.fixture(scope="module")
def on_one_device(run):
    return run(CONFIG, mesh_of(1, 1))[0]


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
def test_the_numbers_of_one_device_by_two_all_to_alls_a_layer_each_way(
    run, on_one_device, dispatch
):
    several, compiled = run(dataclasses.replace(CONFIG, dispatch=dispatch), mesh_of(2, 4))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), several, on_one_device
    )
    # Forward and backward, of encoder and decoder: four scanned bodies with one MoE layer each.
    found = expect_collectives(compiled, {"all-to-all": 4 * 2})
    for body in {one.computation for one in found if one.kind == "all-to-all"}:
        inside = [one for one in found if one.computation == body and one.kind == "all-to-all"]
        assert len(inside) == 2
    assert not of_experts(found)


def of_experts(found):
    """What gathers an expert's matrix."""
    return [
        one for one in found if one.kind == "all-gather" and re.search("24,40|40,24", one.shape)
    ]


def test_a_new_state_is_the_same_on_any_mesh(params):
    made = state.create(
        state.abstract_model(CONFIG), adam(1e-3), DEFAULT_RULES, mesh_of(2, 4), seed=0
    )
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(made.params), params)
