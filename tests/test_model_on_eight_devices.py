"""The whole model on a mesh of data 2 x expert 4: the numbers of one device, few collectives."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from gshard_annotate import DEFAULT_RULES, expect_collectives, make_mesh, rules_scope
from gshard_train import state
from gshard_train.data import shift_right, to_mesh
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam
from gshard_train.step import batch_sharding, make_step, total_loss

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


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    source = rng.integers(2, 31, (16, 10), dtype=np.int32)
    target = rng.integers(2, 29, (16, 6), dtype=np.int32)
    for row in range(16):
        source[row, 1 + row % 10 :] = 0
        target[row, 1 + row % 6 :] = 0
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": shift_right(target),
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target != 0).astype(np.int32),
    }


def loss_and_gradients(mesh: Mesh, params: state.Params):
    """Loss, metrics and gradients of one batch, with dropout and the second expert's coin."""
    model = state.abstract_model(CONFIG)
    shardings = state.shardings(model, adam(1e-3), DEFAULT_RULES, mesh).params

    @jax.jit
    def run(params, batch):
        with rules_scope(DEFAULT_RULES, mesh):
            gradient = jax.value_and_grad(total_loss, has_aux=True)
            return gradient(params, model, LOSS, batch, jax.random.key(5))

    placed = jax.tree.map(jax.device_put, params, shardings)
    return jax.device_get(run(placed, to_mesh(batch(), batch_sharding(DEFAULT_RULES, mesh))))


@pytest.fixture(scope="module")
def params() -> state.Params:
    made = state.create(
        state.abstract_model(CONFIG), adam(1e-3), DEFAULT_RULES, mesh_of(1, 1), seed=0
    )
    return jax.device_get(made.params)


@pytest.fixture(scope="module")
def on_one_device(params: state.Params):
    return loss_and_gradients(mesh_of(1, 1), params)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "expert"), [(2, 4)])
def test_loss_metrics_and_gradients_are_those_of_one_device(params, on_one_device, data, expert):
    several = loss_and_gradients(mesh_of(data, expert), params)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), several, on_one_device
    )


def test_a_new_state_is_the_same_on_any_mesh(params):
    made = state.create(
        state.abstract_model(CONFIG), adam(1e-3), DEFAULT_RULES, mesh_of(2, 4), seed=0
    )
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(made.params), params)


def compiled_step(config: TransformerConfig):
    mesh = mesh_of(2, 4)
    model = state.abstract_model(config)
    target = state.abstract_state(model, adam(1e-3), DEFAULT_RULES, mesh)
    step = make_step(model, adam(1e-3), LOSS, DEFAULT_RULES, mesh)
    return step.lower(target, batch()).compile()


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
def test_two_all_to_alls_a_layer_each_way_and_no_expert_is_gathered(dispatch):
    compiled = compiled_step(dataclasses.replace(CONFIG, dispatch=dispatch))
    # Forward and backward, of encoder and decoder: four scanned bodies with one MoE layer each.
    found = expect_collectives(compiled, {"all-to-all": 4 * 2})
    for body in {one.computation for one in found if one.kind == "all-to-all"}:
        inside = [one for one in found if one.computation == body and one.kind == "all-to-all"]
        assert len(inside) == 2
    expert_shapes = {"24,40", "40,24"}
    gathered = [one for one in found if one.kind == "all-gather"]
    assert not [one for one in gathered if any(shape in one.shape for shape in expert_shapes)]
