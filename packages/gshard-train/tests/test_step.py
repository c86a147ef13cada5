"""The step against a plain update, and where its arrays lie."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import jaxprs_in_params

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_train import nonfinite, state
from gshard_train.batch_rows import to_mesh
from gshard_train.data import shift_right
from gshard_train.loss import LossConfig
from gshard_train.optimizer import adam
from gshard_train.schedule import warmup_linear
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


@pytest.fixture(scope="module")
def offloaded(tiny, mesh):
    """A model, its optimizer, the step with the optimizer's state in the host's memory, and both.

    The numbers have to be those of a plain update too.
    """
    optimizer = adam(warmup_linear(1e-2, 10), weight_decay=0.1)
    abstract = state.abstract_model(dataclasses.replace(tiny, num_encoder_layers=2))
    parts = (abstract, optimizer, DEFAULT_RULES, mesh)
    start = state.create(*parts, seed=4, offload_optimizer=True)
    assert memory_kinds(start.opt_state) == {"pinned_host"}
    start = jax.device_get(start._replace(opt_state=second_step(start.opt_state)))
    placed = state.shardings(*parts, offload_optimizer=True)
    step = make_step(abstract, optimizer, LOSS, *parts[2:], offload_optimizer=True)
    return abstract, optimizer, step, lambda values: jax.device_put(values, placed), start


@pytest.mark.slow
def test_a_step_is_the_optimizer_s_update_of_the_gradient(offloaded, mesh):
    abstract, optimizer, step, place, before = offloaded
    after, metrics = step(place(before), to_mesh(batch(), batch_sharding(DEFAULT_RULES, mesh)))

    @jax.jit
    def gradient(params, batch):
        key = jax.random.fold_in(jax.random.wrap_key_data(before.key), 0)
        with rules_scope(DEFAULT_RULES, mesh):
            return jax.grad(total_loss, has_aux=True)(params, abstract, LOSS, batch, key)[0]

    grads = gradient(before.params, batch())
    updates, opt_state = jax.jit(optimizer.update)(grads, before.opt_state, before.params)
    expected = jax.jit(optax.apply_updates)(before.params, updates)
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(close, after.params, expected)
    jax.tree.map(close, after.opt_state, opt_state)
    assert memory_kinds(after.opt_state) == {"pinned_host"}
    assert memory_kinds(after.params) == {"device"}
    assert int(after.step) == 1
    assert metrics["balance_loss"] >= 1.0
    assert metrics["target_tokens"] == (batch()["decoder_target_tokens"] != 0).sum()
    norms = {"gradient": grads, "update": updates, "parameter": expected}
    for name, tree in norms.items():
        np.testing.assert_allclose(metrics[f"{name}_norm"], optax.tree.norm(tree), rtol=1e-5)
    np.testing.assert_allclose(metrics["learning_rate"], 1e-2)
    assert not metrics["nonfinite"]
    assert not metrics["nonfinite_tensors"].any()


@pytest.mark.slow
def test_a_step_that_is_not_finite_changes_nothing_but_its_number(offloaded, mesh):
    abstract, _, step, place, start = offloaded
    poisoned = jax.tree.map(np.copy, start)
    poisoned.params["target_embedding"]["positions"][3] = np.nan
    rows = to_mesh(batch(), batch_sharding(DEFAULT_RULES, mesh))
    for values, said in (
        (poisoned, "parameter target_embedding/positions was not finite before the step"),
        (start, None),
        (overflowing(start), "z_loss is inf; gradients that are not finite: "),
    ):
        after, metrics = step(place(values), rows)
        metrics = jax.device_get(metrics)
        assert nonfinite.all_finite(metrics) == (said is None)
        assert int(after.step) == int(values.step) + 1
        if said is not None:
            assert nonfinite.describe(metrics, nonfinite.pieces(abstract)).startswith(said)
            jax.tree.map(np.testing.assert_array_equal, after[1:], values[1:])


def overflowing(start):
    """The same state with logits whose squares are beyond float32, and finite parameters."""
    scale = {"scale": np.full_like(start.params["decoder_norm"]["scale"], 1e6)}
    output = np.full_like(start.params["output"], 1e18)
    return start._replace(params={**start.params, "decoder_norm": scale, "output": output})


def memory_kinds(tree) -> set[str]:
    return {leaf.sharding.memory_kind for leaf in jax.tree.leaves(tree) if leaf.ndim}


def second_step(opt_state):
    """The same state at step 1, whose learning rate is not 0."""
    return jax.tree.map(lambda leaf: leaf + 1 if leaf.dtype == jnp.int32 else leaf, opt_state)


def test_bfloat16_is_of_activations_only(tiny, one_device):
    config = dataclasses.replace(tiny, dtype=jnp.bfloat16)
    model, optimizer = state.abstract_model(config), adam(1e-3)
    step = make_step(model, optimizer, LOSS, DEFAULT_RULES, one_device)
    before = state.abstract_state(model, optimizer, DEFAULT_RULES, one_device)
    traced = step.trace(before, batch())
    after, metrics = traced.out_info
    for leaf in jax.tree.leaves((after.params, after.opt_state, metrics)):
        assert leaf.dtype in (jnp.float32, jnp.int32, jnp.bool_)
    dtypes = dtypes_by_primitive(traced.jaxpr.jaxpr, {})
    # Of softmax, of the router and of the loss; sums of squares are those of norms.
    for primitive in ("exp", "log", "rsqrt", "reduce_max"):
        assert dtypes[primitive] == {"float32"}
    assert "bfloat16" in dtypes["dot_general"]


def dtypes_by_primitive(jaxpr, found: dict[str, set[str]]) -> dict[str, set[str]]:
    """The types of numbers that each primitive is given, in all functions inside too."""
    for equation in jaxpr.eqns:
        types = {
            str(each.aval.dtype)
            for each in equation.invars
            if hasattr(each.aval, "dtype") and jnp.issubdtype(each.aval.dtype, jnp.floating)
        }
        found.setdefault(equation.primitive.name, set()).update(types)
        for inner in jaxprs_in_params(equation.params):
            dtypes_by_primitive(inner, found)
    return found


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
