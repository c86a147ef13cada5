"""A checkpoint of one topology on others: every device gets its own part, and training goes on."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from gshard_annotate import Rules, make_mesh
from gshard_train import layouts, state
from gshard_train.batch_rows import to_mesh
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.data import shift_right
from gshard_train.loss import LossConfig
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adafactor, adam, resolved, sgd
from gshard_train.step import batch_sharding, make_step

# All sizes differ where they can: every axis of a mesh here divides what it splits. Nothing is
# drawn at random, which would double the time to compile.
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
    num_groups=8,
    second_expert="always",
    dropout_rate=0.0,
)


def mesh_of(**axes: int) -> Mesh:
    return make_mesh(axes, devices=jax.devices()[: int(np.prod(list(axes.values())))])


class Topology(NamedTuple):
    """Where a state lies."""

    rules: Rules
    axes: dict[str, int]
    offload_optimizer: bool = False

    def wanted(self, model: state.Model, optimizer: Any) -> state.TrainState:
        """Shape, dtype and sharding of each array."""
        return state.abstract_state(
            model,
            optimizer,
            self.rules,
            mesh_of(**self.axes),
            offload_optimizer=self.offload_optimizer,
        )


# From each to the next, and from the last back to the first.
ROUND = (
    Topology(layouts.gshard(), {"data": 2, "expert": 4}),
    Topology(layouts.tensor_parallel(), {"data": 2, "expert": 2, "model": 2}),
    Topology(layouts.fsdp(), {"data": 2, "expert": 4}),
    Topology(layouts.pipeline(), {"data": 1, "expert": 4, "stage": 2}),
    Topology(layouts.gshard(), {"data": 1, "expert": 4}, offload_optimizer=True),
    Topology(layouts.several_slices(), {"replica": 2, "data": 1, "expert": 1}),
    Topology(layouts.gshard(), {"data": 1, "expert": 1}),
)


def filled(wanted: state.TrainState, *, scale: float = 1000.0) -> state.TrainState:
    """A state of numbers that are all different."""
    rng = np.random.default_rng(0)

    def fill(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        numbers = rng.standard_normal(leaf.shape) * scale
        return jax.device_put(numbers.astype(leaf.dtype), leaf.sharding)

    return jax.tree.map(fill, wanted)


def misplaced(found: state.TrainState, wanted: state.TrainState, whole: Any) -> Iterator[str]:
    """The arrays that lie elsewhere than wanted, or of which a device holds another part."""
    placed = jax.tree_util.tree_leaves_with_path(found)
    for (path, array), asked, numbers in zip(
        placed, jax.tree.leaves(wanted), jax.tree.leaves(whole), strict=True
    ):
        copies = array.addressable_shards[: 1 if asked.sharding.is_fully_replicated else None]
        right = (np.array_equal(copy.data, numbers[copy.index]) for copy in copies)
        if array.sharding != asked.sharding or not all(right):
            yield jax.tree_util.keystr(path)


def test_a_state_goes_round_all_topologies_and_every_device_holds_its_own_part(tmp_path):
    model = state.abstract_model(CONFIG)
    # Moments like the parameters, and those of rows and columns.
    factored = resolved(adafactor(1.0, min_dim_size_to_factor=8), model.names())
    optimizer = optax.chain(adam(1.0), factored)
    current = filled(ROUND[0].wanted(model, optimizer))
    whole = jax.device_get(current)
    with Checkpointer(tmp_path, keep=1, asynchronous=False) as checkpointer:
        for step, topology in enumerate((*ROUND[1:], ROUND[0])):
            checkpointer.save(step, current, {"next_index": step})
            wanted = topology.wanted(model, optimizer)
            current, position = checkpointer.restore(step, wanted)
            assert position == {"next_index": step}
            assert not list(misplaced(current, wanted, whole)), topology


def test_a_checkpoint_is_restored_inside_a_mesh_context_too(tmp_path):
    model = state.abstract_model(CONFIG)
    made = filled(ROUND[0].wanted(model, sgd(1.0)))
    wanted = ROUND[-1].wanted(model, sgd(1.0))
    with Checkpointer(tmp_path, asynchronous=False) as checkpointer:
        with jax.set_mesh(mesh_of(data=2, expert=4)):
            checkpointer.save(1, made, {})
        with jax.set_mesh(mesh_of(data=1, expert=1)):
            restored, _ = checkpointer.restore(1, wanted)
    assert not list(misplaced(restored, wanted, jax.device_get(made)))


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    source = rng.integers(2, 34, (16, 10), dtype=np.int32)
    target = rng.integers(2, 38, (16, 6), dtype=np.int32)
    for row in range(16):
        source[row, 1 + row % 10 :] = 0
        target[row, 1 + row % 6 :] = 0
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": shift_right(target),
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target != 0).astype(np.int32),
    }


def steps(topology: Topology, config: TransformerConfig) -> Any:
    """The compiled step on a topology, and the batch that it takes."""
    mesh = mesh_of(**topology.axes)
    loss = LossConfig(balance_weight=0.1, router_z_weight=0.01)
    step = make_step(state.abstract_model(config), sgd(0.1), loss, topology.rules, mesh)
    return step, to_mesh(batch(), batch_sharding(topology.rules, mesh))


@pytest.mark.slow
def test_in_float64_eight_devices_and_one_make_the_same_twenty_steps(tmp_path):
    eight, one = ROUND[1], ROUND[-1]
    losses = []
    with jax.enable_x64(True), Checkpointer(tmp_path, asynchronous=False) as checkpointer:
        config = dataclasses.replace(
            CONFIG, num_encoder_layers=2, num_decoder_layers=2, dtype="float64"
        )
        model = state.abstract_model(config)
        wanted = [topology.wanted(model, sgd(0.1)) for topology in (eight, one)]
        made = filled(wanted[0], scale=0.2)
        checkpointer.save(0, made, {})
        restored, _ = checkpointer.restore(0, wanted[1])
        for topology, current in ((eight, made), (one, restored)):
            step, rows = steps(topology, config)
            for _ in range(20):
                current, metrics = step(current, rows)
                losses.append(float(metrics["total_loss"]))
    assert losses[19] < losses[0] - 0.1  # they learn, and do not stand still
    np.testing.assert_allclose(losses[20:], losses[:20], rtol=1e-9)


def test_float64_is_refused_where_jax_would_make_float32_of_it():
    with pytest.raises(ValueError, match=r"dtype='float64' needs .* JAX_ENABLE_X64=1"):
        dataclasses.replace(CONFIG, dtype="float64")
