"""Other numbers of experts: the same outputs where that is promised, moments as they would be."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, make_mesh, rules_scope
from gshard_moe import MoELayer, TopK
from gshard_train import state
from gshard_train.adafactor import matrix_view, scale_by_adafactor
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, prepare
from gshard_train.monitoring.utilisation import step_flops
from gshard_train.optimizer import adafactor, adam, sgd
from gshard_train.resizing import second_moments
from gshard_train.resizing.change import Change
from gshard_train.resizing.experts import Experts, at, ways
from gshard_train.resizing.placement import fitted
from gshard_train.resizing.resize import resize

FOUR = {"second_expert": "always", "choices": 4, "slots_per_token": 4.0}
SPLIT = {"num_experts": 8, "expert_mlp": 10, **FOUR}


def run_of(directory, config, **changes) -> Experiment:
    made = Experiment(
        model_dir=str(directory),
        make_mesh=lambda: make_mesh({"data": 2, "expert": 4}),
        model=config,
        optimizer=adam(1e-2),
        make_feed=None,  # pyright: ignore[reportArgumentType]
        mixture_or_task_name="numbers",
        task_feature_lengths={"inputs": 6, "targets": 6},
        batch_size=8,
    )
    return dataclasses.replace(made, **changes)


def abstract(experiment):
    prepared = prepare(experiment)
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    return state.abstract_state(*arguments)


def restored(experiment, step=7):
    return Checkpointer(experiment.model_dir).restore(step, abstract(experiment))


def saved(experiment):
    """A checkpoint of step 7 with numbers in every array, moments too."""
    rng = np.random.default_rng(1)

    def drawn(leaf):
        numbers = rng.random(leaf.shape) + 0.1
        return jax.device_put(numbers.astype(leaf.dtype), leaf.sharding)

    made = jax.tree.map(drawn, abstract(experiment))
    params = jax.tree.map(lambda leaf: leaf - 0.6, made.params)
    made = made._replace(params=params)
    with Checkpointer(experiment.model_dir) as checkpointer:
        checkpointer.save(7, made, {"next_index": 9}, identity={"seed": 3})
    return made


@pytest.fixture(scope="module")
def old(tiny, tmp_path_factory):
    """A run with four experts and its state."""
    experiment = run_of(tmp_path_factory.mktemp("old"), dataclasses.replace(tiny, dropout_rate=0.0))
    return experiment, saved(experiment)


@pytest.fixture(scope="module")
def split(old, tmp_path_factory):
    """The same with eight experts of half the width."""
    config = dataclasses.replace(old[0].model, **SPLIT)
    # Four experts are not split over eight devices: the old arrays lie otherwise than the new.
    experiment = run_of(
        tmp_path_factory.mktemp("split"),
        config,
        make_mesh=lambda: make_mesh({"data": 1, "expert": 8}),
    )
    resize(experiment, from_dir=old[0].model_dir, how="split")
    return experiment


def logits(config, params):
    """What a model says when evaluating, on one device."""
    rng = np.random.default_rng(2)
    source, target = (jnp.asarray(rng.integers(1, 19, (8, 6)), jnp.int32) for _ in range(2))
    model = state.abstract_model(config)
    params = jax.tree.map(jnp.asarray, jax.device_get(params))
    forward = jax.jit(lambda p: model.merge(p)(source, target, target != 0)[0])
    with rules_scope(DEFAULT_RULES, make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])):
        return forward(params)


@pytest.mark.slow
def test_split_experts_say_the_same_and_merged_again_are_the_old_ones(old, split, tmp_path):
    (whole, before), (after, feed_state) = old, restored(split)
    expected = logits(whole.model, before.params)
    np.testing.assert_allclose(logits(split.model, after.params), expected, rtol=2e-5, atol=2e-5)
    merged = dataclasses.replace(whole, model_dir=str(tmp_path))
    resize(merged, from_dir=split.model_dir, how="merge")
    jax.tree.map(np.testing.assert_array_equal, restored(merged)[0], before)
    assert feed_state == {"next_index": 9}
    assert Checkpointer(split.model_dir).feed_identity(7) == {"seed": 3}


@pytest.mark.slow
def test_a_dense_model_becomes_experts_that_say_the_same(tiny, tmp_path):
    config = dataclasses.replace(tiny, num_experts=0, remat="none")
    dense = run_of(tmp_path / "dense", config, optimizer=adafactor(1e-2, min_dim_size_to_factor=4))
    before = saved(dense)
    moe = dataclasses.replace(dense, model=tiny, model_dir=str(tmp_path / "moe"))
    resize(moe, from_dir=dense.model_dir, how="upcycle")
    after, _ = restored(moe)
    expected = logits(config, before.params)
    np.testing.assert_allclose(logits(tiny, after.params), expected, rtol=2e-5, atol=2e-5)
    layer = ("decoder", "first", "feed_forward", "layer")
    for field in ("v_row", "v_col", "v"):
        assert not np.any(at(getattr(after.opt_state[0], field), layer)["router"])
    # Of wi [12, 20] the means over the first dimension.
    routers = [at(after.params, ("encoder", *layer[1:])), at(after.params, layer)]
    assert not np.array_equal(routers[0]["router"], routers[1]["router"])
    columns, was = (at(each.opt_state[0].v_col, layer)["wi"] for each in (after, before))
    np.testing.assert_allclose(columns, np.repeat(was[:, None], 4, 1) / 4, rtol=1e-5)


def gradients(parameters, choices):
    """Of a layer on some tokens that says the same for both numbers of experts."""
    E, M, H = parameters["wi"].shape
    layer = nnx.eval_shape(
        lambda: MoELayer(
            E,
            M,
            H,
            router=TopK(choices, "choose_then_softmax"),
            slots_per_token=None,
            gated=True,
            use_bias=True,
            rngs=nnx.Rngs(0),
        )
    )
    graph, variables = nnx.split(layer)
    x, weights = jax.random.normal(jax.random.key(3), (2, 2, 7, M))

    def loss(tree):
        nnx.replace_by_pure_dict(variables, tree)
        return (nnx.merge(graph, variables)(x, deterministic=True)[0] * weights).sum()

    with rules_scope(DEFAULT_RULES, make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])):
        return jax.jit(jax.grad(loss))(parameters)


@pytest.fixture(scope="module")
def layer():
    draw = np.random.default_rng(4).standard_normal
    E, M, H = 4, 5, 6
    shapes = {"router": (M, E), "wi": (E, M, H), "wo": (E, H, M), "gate": (E, M, H)}
    shapes |= {"bi": (E, H), "bo": (E, M), "bg": (E, H)}
    return {name: jnp.asarray(draw(shape), jnp.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def found(layer):
    return gradients(layer, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "back", "after"), [("split", "merge", (8, 3)), ("copy", "average", (8, 6))]
)
def test_moments_are_those_of_the_gradients_of_the_new_experts(layer, found, how, back, after):
    there, again = Experts(4, 6), Experts(*after)
    forth, back = Change(how, there, again), Change(back, again, there)
    new = {name: forth.changed(name, layer, array, "parameter") for name, array in layer.items()}
    expected = gradients(new, 4)
    for name, gradient in found.items():
        made = forth.changed(name, layer, gradient, "gradient")
        if not forth.is_exact(name, "gradient"):  # only what the parts have together
            made, expected[name] = (x.reshape(5, 4, 2).sum(-1) for x in (made, expected[name]))
        np.testing.assert_allclose(made, expected[name], rtol=1e-4, atol=1e-5)
        if forth.is_exact(name, "square"):
            square = forth.changed(name, layer, gradient**2, "square")
            np.testing.assert_allclose(square, expected[name] ** 2, rtol=1e-4, atol=1e-5)
            returned = back.changed(name, new, square, "square")
            np.testing.assert_allclose(returned, gradient**2, rtol=1e-4, atol=1e-5)
        elif back.is_exact(name, "gradient"):
            returned = back.changed(name, new, jnp.repeat(made / 2, 2, -1), "gradient")
            np.testing.assert_allclose(returned, gradient, rtol=1e-4, atol=1e-5)


NAMES = {"w": ("layer", "expert", "embed", "mlp")}
OPTIMIZER = scale_by_adafactor(
    NAMES,
    decay_rate=0.8,
    clipping_threshold=1.0,
    multiply_by_parameter_scale=False,
    min_dim_size_to_factor=3,
    epsilon1=0.0,
    epsilon2=1e-3,
)


@jax.jit
def adafactor_of(*gradients):
    """The factored moments after these gradients, of which there are one or two."""
    kept: Any = OPTIMIZER.init({"w": gradients[0]})
    for gradient in gradients:
        _, kept = OPTIMIZER.update({"w": gradient}, kept, {"w": gradient})
    return second_moments.Moments(*(field["w"] for field in kept[1:]))


@pytest.mark.parametrize("how", ["split", "merge"])
def test_factored_moments_are_those_that_the_new_experts_would_have_had(how):
    # Along H the whole is longer than M and the parts are shorter, so that rows become columns.
    whole, parts, M = Experts(3, 8), Experts(6, 4), 5
    change = Change(how, whole, parts) if how == "split" else Change(how, parts, whole)
    draw = np.random.default_rng(5).standard_normal
    layer: dict[str, np.ndarray] = {"router": np.zeros((2, M, change.before.count), np.float32)}
    layer["wi"] = np.zeros((2, change.before.count, M, change.before.width), np.float32)
    layer["wo"] = layer["wi"].swapaxes(-1, -2)
    if how == "split":  # of what is no product of two vectors, factors do not tell the parts'
        grads = [draw((2, 3, M, 1)) * draw((2, 3, 1, 8))]
    else:
        grads = [draw(layer["wi"].shape) for _ in range(2)]
    grads = [jnp.asarray(grad, jnp.float32) for grad in grads]
    expected = adafactor_of(*(change.changed("wi", layer, grad, "gradient") for grad in grads))
    kept = adafactor_of(*grads)
    view = second_moments.view_of(kept, grads[0].shape, NAMES["w"])
    assert view is not None
    moment = second_moments.whole(kept, view, grads[0].shape)
    moment = change.changed("wi", layer, moment, "square")
    new_view = matrix_view(moment.shape, NAMES["w"])
    for field, wanted in zip(second_moments.FIELDS, expected, strict=True):
        made = second_moments.kept_of(moment, field, new_view, wanted.shape)
        np.testing.assert_allclose(made, wanted, rtol=1e-5)


def test_moments_that_are_not_factored_yet_or_are_0_stay_numbers():
    shape = (2, 3, 5, 8)
    view = matrix_view(shape, NAMES["w"])
    zeros = [jnp.zeros((2, 3, 5)), jnp.zeros((2, 3, 8)), jnp.zeros((2, 3, 1))]
    assert not second_moments.whole(second_moments.Moments(*zeros), view, shape).any()
    full = jnp.arange(240.0).reshape(shape)
    kept = second_moments.Moments(jnp.zeros((2, 3, 1)), jnp.zeros((2, 3, 1)), full)
    np.testing.assert_array_equal(second_moments.whole(kept, view, shape), full)
    # 1e-20 squared is 0 in float32.
    kept = second_moments.Moments(jnp.full((2, 3, 5), 1e-25), jnp.full((2, 3, 8), 1e-25), zeros[2])
    np.testing.assert_allclose(second_moments.whole(kept, view, shape), 1e-25, rtol=1e-5)


def test_split_experts_cost_what_the_whole_ones_did_but_for_the_router(tiny):
    whole = dataclasses.replace(tiny, second_expert="always")
    parts = dataclasses.replace(tiny, **SPLIT)
    tokens = {"source_tokens": 7, "target_tokens": 5, "source_length": 3, "target_length": 2}
    router = 3 * (2 * 7 + 1 * 5) * 2 * 12 * 4  # for four experts more
    assert step_flops(parts, **tokens) == step_flops(whole, **tokens) + router
    shapes = state.abstract_model(parts).shapes()["decoder"]
    assert shapes["first"]["feed_forward"]["layer"]["wi"].shape == (1, 8, 12, 10)
    assert shapes["second"]["feed_forward"]["layer"]["wi"].shape == (1, 12, 20)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"choices": 3}, "choices=3 needs second_expert='always', not 'random'"),
        ({"choices": 5, "second_expert": "always"}, "choices=5 must be at most num_experts=4"),
        ({"choices": 1}, "choices=1 must be an integer of at least 2"),
        ({"expert_mlp": 0}, "expert_mlp=0 must be an integer of at least 1, or None"),
    ],
)
def test_numbers_of_choices_and_widths_that_no_model_has(tiny, values, told):
    with pytest.raises(ValueError, match=told):
        dataclasses.replace(tiny, **values)


def test_the_ways_between_two_numbers_of_experts():
    assert ways(Experts(4, 20), Experts(8, 10)) == ["split"]
    assert ways(Experts(8, 10), Experts(4, 20)) == ["merge"]
    assert ways(Experts(4, 20), Experts(12, 20)) == ["copy"]
    assert ways(Experts(12, 20), Experts(4, 20)) == ["average"]
    assert ways(Experts(0, 20), Experts(4, 20)) == ["upcycle"]
    for after in [(4, 20), (6, 20), (8, 15)]:
        assert ways(Experts(4, 20), Experts(*after)) == []


def test_old_arrays_are_split_over_the_devices_of_the_new_ones(mesh):
    wanted = jax.sharding.NamedSharding(mesh, jax.P(None, "expert", None, "data"))
    new = (2, 8, 12, 20)
    assert fitted(new, wanted, new) is wanted
    assert fitted((2, 4, 12, 40), wanted, new).spec == jax.P(None, "expert", None, "data")
    two = fitted((2, 2, 12, 40), wanted, new)
    assert two.spec == jax.P(None, "expert", None, ("data", "expert_rest"))
    assert dict(two.mesh.shape) == {"data": 2, "expert": 2, "expert_rest": 2}
    assert [*two.devices_indices_map((2, 2, 12, 40))] == [*wanted.devices_indices_map(new)]
    assert fitted((2, 12, 20), wanted, new).spec == jax.P(None, "data", "expert")
    assert fitted((3, 3, 3, 3), wanted, new).spec == jax.P(None, None, None, None)


def refusal(experiment, **arguments) -> str:
    with pytest.raises(UserError) as caught:
        resize(experiment, **arguments)
    return str(caught.value)


def test_faults_are_told_at_once_and_nothing_is_written(old, split, tmp_path):
    whole, _ = old
    said = refusal(dataclasses.replace(split, batch_size=9), from_dir="/not/there", how="double")
    assert "--how=double is none of the ways; give one of split, merge, copy, average" in said
    assert "--from_dir=/not/there: there is no such directory" in said
    assert f"MODEL_DIR={split.model_dir!r} has checkpoints already, 7" in said
    assert "batch_size=9 cannot be divided" in said
    wrong = {"from_dir": whole.model_dir, "how": "", "step": 6, "noise": -1.0}
    said = refusal(whole, **wrong).splitlines()
    assert said[0] == "--how is missing; give one of split, merge, copy, average, upcycle"
    assert said[1].startswith("--noise=-1.0 must be")
    assert said[2].startswith("--step=6: there is no such checkpoint that can be read in")
    assert said[2].endswith("; there is 7")
    assert said[3].startswith(f"--from_dir={whole.model_dir} is MODEL_DIR itself")
    model = dataclasses.replace(whole.model, **SPLIT, embed=13)
    other = run_of(tmp_path / "new", model, optimizer=sgd(0.1, momentum=0.5))
    said = refusal(other, from_dir=whole.model_dir, how="copy")
    assert (
        "--how=copy does not lead from 4 experts of width 20 to 8 experts of width 10: "
        "--how=split does, or this with TransformerConfig.expert_mlp = 20\n"
    ) in said
    assert "is of another model, in more than its experts" in said
    assert "cross_norm/scale is float32[1, 12] in the checkpoint and float32[1, 13] in" in said
    model = dataclasses.replace(whole.model, **SPLIT)
    same = dataclasses.replace(other, model=model)
    assert "is of another optimizer" in refusal(same, from_dir=whole.model_dir, how="split")
    assert not (tmp_path / "new").exists()


def test_a_run_with_other_experts_is_refused_with_the_command_that_changes_them(old):
    whole, _ = old
    check = Checkpointer(whole.model_dir).check
    other = dataclasses.replace(whole, model=dataclasses.replace(whole.model, num_experts=8))
    told = (
        r"The checkpoint has 4 experts of width 20 and the model 8 experts of width 20: python -m "
        rf"gshard_train.resize with .* --from_dir={whole.model_dir} --how=copy makes"
    )
    with pytest.raises(UserError, match=told):
        check(7, abstract(other))
    model = dataclasses.replace(whole.model, num_experts=12, expert_mlp=10)
    odd = dataclasses.replace(whole, model=model)
    with pytest.raises(UserError, match=r"none becomes the other: .*expert_mlp = 20 \(copy\)"):
        check(7, abstract(odd))


def test_a_dry_run_prints_each_fate_and_writes_nothing(old, tmp_path, capsys):
    model = dataclasses.replace(old[0].model, num_experts=8)
    new = run_of(tmp_path / "new", model)
    assert resize(new, from_dir=old[0].model_dir, how="copy", noise=0.1, dry_run=True) == 7
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    plan = {cells[0]: [cell.strip() for cell in cells[1:] if cell] for cells in lines}
    layer = "decoder/first/feed_forward/layer"
    assert plan[f"params/{layer}/wi"][2:] == ["2 copies, noise 0.1"]
    assert plan[f"params/{layer}/router"] == ["1 x 12 x 4", "1 x 12 x 8", "2 copies"]
    assert plan[f"opt_state/1/nu/{layer}/wi"][2:] == ["2 copies, divided by 4"]
    assert plan["params/output"] == ["12 x 19", "12 x 19", "kept"]
    assert (
        len([cells for cells in plan.values() if len(cells) == 3])
        == len(jax.tree.leaves(abstract(new))) + 1
    )
    assert not (tmp_path / "new").exists()
