"""The step against a plain update, and where its arrays lie."""

import dataclasses

import jax
import numpy as np
import optax

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train import state
from gshard_train.data import shift_right, to_mesh
from gshard_train.loss import LossConfig
from gshard_train.optimizer import adam
from gshard_train.step import batch_sharding, make_step, total_loss

LOSS = LossConfig()


def batch(rows: int = 16) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    source, target = (rng.integers(2, size, (rows, 6), dtype=np.int32) for size in (23, 19))
    for row in range(rows):
        source[row, 1 + row % 6 :] = 0
        target[row, 1 + row % 5 :] = 0
    return {
        "encoder_input_tokens": source,
        "decoder_input_tokens": shift_right(target),
        "decoder_target_tokens": target,
        "decoder_loss_weights": (target != 0).astype(np.int32),
    }


def test_a_step_is_the_optimizer_s_update_of_the_gradient(tiny, model, mesh):
    optimizer = adam(1e-2, weight_decay=0.1)
    abstract, _ = model
    start = state.create(abstract, optimizer, DEFAULT_RULES, mesh, seed=4)
    before = jax.device_get(start)
    step = make_step(abstract, optimizer, LOSS, DEFAULT_RULES, mesh)
    after, metrics = step(start, to_mesh(batch(), batch_sharding(DEFAULT_RULES, mesh)))

    @jax.jit
    def gradient(params, batch):
        key = jax.random.fold_in(jax.random.wrap_key_data(before.key), 0)
        with rules_scope(DEFAULT_RULES, mesh):
            return jax.grad(total_loss, has_aux=True)(params, abstract, LOSS, batch, key)[0]

    updates, _ = optimizer.update(gradient(before.params, batch()), before.opt_state, before.params)
    expected = optax.apply_updates(before.params, updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), after.params, expected)
    assert int(after.step) == 1
    assert metrics["balance_loss"] >= 1.0
    assert metrics["target_tokens"] == (batch()["decoder_target_tokens"] != 0).sum()


def test_parameters_and_optimizer_state_are_born_sharded(model, mesh):
    made = state.create(model[0], adam(1e-3), DEFAULT_RULES, mesh, seed=0)
    leaves = jax.tree.leaves(made.opt_state, is_leaf=_mirrors)
    moments = [leaf for leaf in leaves if _mirrors(leaf)]
    assert len(moments) == 2
    for tree in (made.params, *moments):
        experts = tree["encoder"]["first"]["feed_forward"]["layer"]["wi"]
        assert experts.sharding.spec[1] == "expert"
        assert experts.addressable_shards[0].data.shape == (2, 1, 12, 20)  # one of four experts


def _mirrors(node) -> bool:
    return isinstance(node, dict) and "encoder" in node


def test_no_device_holds_a_whole_expert_tensor_while_the_state_is_made(tiny, mesh):
    abstract = state.abstract_model(dataclasses.replace(tiny, mlp=4096))
    compiled = state.compiled_init(abstract, adam(1e-3), DEFAULT_RULES, mesh, seed=0)
    whole = sum(leaf.size * 4 for leaf in jax.tree.leaves(abstract.shapes()))
    made = compiled.memory_analysis()
    # Parameters and Adam's two moments, experts split by four; less than one whole copy beside.
    assert made.output_size_in_bytes + made.temp_size_in_bytes < 2 * whole
