"""Fully sharded and tensor parallel: the numbers of one device, and the collectives asked for."""

from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from gshard_annotate import Rules, collectives, make_mesh, rules_scope
from gshard_annotate.inspector.collectives import Collective
from gshard_train import layouts, state
from gshard_train.batch_rows import to_mesh
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adafactor, adam
from gshard_train.step import batch_sharding, total_loss

# All sizes differ, and eight or two devices divide what they split. Nothing is drawn at random,
# which would double the time to compile; test_same_numbers has that.
CONFIG = TransformerConfig(
    source_vocab_size=34,
    target_vocab_size=38,
    max_length=12,
    embed=24,
    mlp=40,
    num_heads=2,
    head_dim=7,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_experts=4,
    num_groups=8,
    second_expert="always",
    dropout_rate=0.0,
)
LOSS = LossConfig(balance_weight=0.1, router_z_weight=0.01)


class Ran(NamedTuple):
    """What one program gave, and what it does between devices."""

    numbers: Any
    collectives: list[Collective]

    def inside_loops(self, kind: str) -> list[Collective]:
        """Those of a kind in the bodies of the scans over layers."""
        return [one for one in self.collectives if one.kind == kind and "while" in one.op_name]


@pytest.fixture(scope="module")
def params(random_params) -> state.Params:
    return random_params(CONFIG)


@pytest.fixture(scope="module")
def run(make_batch, params):
    """A function that gives loss, metrics and gradients of one batch."""
    batch = make_batch(16, (34, 10), (38, 6))
    return lambda rules, mesh: ran(rules, mesh, params, batch)


def ran(rules: Rules, mesh: Mesh, params: state.Params, batch: dict[str, np.ndarray]) -> Ran:
    model = state.abstract_model(CONFIG)
    shardings = state.shardings(model, adam(1.0), rules, mesh).params

    def compute(params, batch):
        with rules_scope(rules, mesh):
            gradient = jax.value_and_grad(total_loss, has_aux=True)
            return gradient(params, model, LOSS, batch, jax.random.key(5))

    jitted = jax.jit(compute, out_shardings=((None, None), shardings))
    arguments = (
        jax.tree.map(jax.device_put, params, shardings),
        to_mesh(batch, batch_sharding(rules, mesh)),
    )
    compiled = jitted.lower(*arguments).compile()
    return Ran(jax.device_get(compiled(*arguments)), collectives(compiled))


def mesh_of(**axes: int) -> Mesh:
    count = int(np.prod(list(axes.values())))
    return make_mesh(axes, devices=jax.devices()[:count])


@pytest.fixture(scope="module")
def on_one_device(run) -> Ran:
    return run(layouts.gshard(), mesh_of(data=1, expert=1))


def same_numbers(one: Ran, other: Ran) -> None:
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        one.numbers,
        other.numbers,
    )


@pytest.mark.slow
def test_fully_sharded_gathers_one_layer_s_parameters_at_a_time(run, on_one_device):
    found = run(layouts.fsdp(), mesh_of(data=2, expert=4))
    same_numbers(found, on_one_device)
    gathered = {one.shape for one in found.inside_loops("all-gather")}
    # Dense matrices whole, one of four experts, from two devices: no layer but its own.
    assert {"f32[24,40]", "f32[40,24]", "f32[24,2,7]", "f32[2,7,24]"} <= gathered
    assert {"f32[1,24,40]", "f32[1,40,24]"} <= gathered
    # The scans' bodies gather parameters only, and exchange tokens as the paper does.
    assert gathered <= {
        "f32[24,40]",
        "f32[40,24]",
        "f32[24,2,7]",
        "f32[2,7,24]",
        "f32[1,24,40]",
        "f32[1,40,24]",
        "f32[24,4]",
        "f32[24]",
    }
    assert len(found.inside_loops("all-to-all")) == 4 * 2


@pytest.mark.slow
def test_experts_on_all_devices_stay_where_they_are(run, on_one_device):
    found = run(layouts.dense_split(), mesh_of(data=2, expert=2))
    same_numbers(found, on_one_device)
    gathered = {one.shape for one in found.inside_loops("all-gather")}
    assert {"f32[24,40]", "f32[40,24]", "f32[24,2,7]", "f32[2,7,24]"} <= gathered
    assert not any(shape.endswith((",24,40]", ",40,24]")) for shape in gathered)
    assert len(found.inside_loops("all-to-all")) == 4 * 2
    assert all(one.shape.startswith("4 x ") for one in found.inside_loops("all-to-all"))


@pytest.mark.slow
def test_tensor_parallel_adds_up_once_for_each_block_each_way(run, on_one_device):
    found = run(layouts.tensor_parallel(), mesh_of(data=2, expert=2, model=2))
    same_numbers(found, on_one_device)
    assert {one.kind for one in found.collectives} == {"all-reduce", "all-to-all"}
    # Of activations: [rows, length, width], or [experts, groups, slots, width] of the experts.
    of_blocks = [
        one
        for one in found.inside_loops("all-reduce")
        if any(text in one.shape for text in ("[4,10,24]", "[4,6,24]", "[2,4,10,24]", "[2,4,6,24]"))
    ]
    directions = Counter("transpose" in one.op_name for one in of_blocks)
    # Each way, once for an attention, for experts and for a dense block: 2 x 2 in the pair of
    # encoder layers, 2 x 3 in that of decoder layers.
    assert directions == {False: 4 + 6, True: 4 + 6}


@pytest.mark.slow
def test_replicas_exchange_gradients_and_sums_only(run, on_one_device):
    found = run(layouts.gshard(), mesh_of(replica=2, data=2, expert=2))
    same_numbers(found, on_one_device)
    assert {one.kind for one in found.collectives} == {"all-reduce", "all-to-all"}
    assert len(found.inside_loops("all-to-all")) == 4 * 2
    # An all-to-all of tokens is among the two devices of the expert axis.
    assert all(one.shape.startswith("2 x ") for one in found.inside_loops("all-to-all"))


def bytes_per_device(rules: Rules, mesh: Mesh, optimizer: Any) -> tuple[int, int]:
    """Of parameters and of the optimizer's state, from shapes and shardings."""
    model = state.abstract_model(CONFIG)
    if not hasattr(optimizer, "init"):
        optimizer = optimizer(model.names())
    made = state.abstract_state(model, optimizer, rules, mesh)

    def total(tree: Any) -> int:
        return sum(
            int(np.prod(one.sharding.shard_shape(one.shape))) * one.dtype.itemsize
            for one in jax.tree.leaves(tree)
        )

    return total(made.params), total(made.opt_state)


def test_fully_sharded_parameters_and_state_take_an_eighth_of_the_memory():
    one, mesh = mesh_of(data=1, expert=1), mesh_of(data=2, expert=4)
    whole, moments = bytes_per_device(layouts.gshard(), one, adam(1.0))
    part, part_of_moments = bytes_per_device(layouts.fsdp(), mesh, adam(1.0))
    assert part == whole / 8
    assert part_of_moments < moments / 8 + 32  # counters are whole
    default, _ = bytes_per_device(layouts.gshard(), mesh, adam(1.0))
    assert default > 3 * part


def test_adafactor_s_state_is_split_like_what_is_left_of_the_parameters():
    factored = adafactor(1.0, min_dim_size_to_factor=8)
    one, mesh = mesh_of(data=1, expert=1), mesh_of(data=2, expert=4)
    whole, moments = bytes_per_device(layouts.gshard(), one, factored)
    part, part_of_moments = bytes_per_device(layouts.fsdp(), mesh, factored)
    assert moments < whole / 4
    # What is left of a matrix without its model width is no longer split by fsdp.
    assert part_of_moments < moments / 2
    assert part_of_moments < part
