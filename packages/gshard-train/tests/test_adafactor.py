"""Adafactor against a naive loop over layers and experts, and against optax for one matrix."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gshard_annotate import DEFAULT_RULES, Rules, collectives, make_mesh, tree_shardings
from gshard_train.adafactor import scale_by_adafactor
from gshard_train.matrix_views import matrix_view
from gshard_train.optimizer import adafactor
from gshard_train.optimizer_sharding import state_shardings
from gshard_train.schedule import inverse_sqrt

# Small sides are factored too, so that small arrays show it.
OPTIONS = {
    "decay_rate": 0.8,
    "clipping_threshold": 1.0,
    "multiply_by_parameter_scale": True,
    "min_dim_size_to_factor": 3,
    "epsilon1": 1e-30,
    "epsilon2": 1e-3,
}
NAMES = {
    "experts": ("layer", "expert", "embed", "mlp"),
    "attention": ("layer", "embed", "heads", "head_dim"),
    "narrow": ("layer", "embed", "router"),
    "table": ("vocab", "embed"),
    "scale": ("layer", "embed"),
}
SHAPES = {
    "experts": (2, 3, 5, 7),
    "attention": (2, 5, 2, 4),
    "narrow": (2, 5, 2),
    "table": (11, 5),
    "scale": (2, 5),
}


def arrays(seed: int) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)
    # Experts differ in size, so that one statistic over all of them gives other numbers.
    made = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    made["experts"] *= np.array([0.01, 1.0, 30.0], np.float32)[:, None, None]
    return jax.tree.map(jnp.asarray, made)


def naive(params, grads, *, factored):
    """Updates of one matrix by the paper's Algorithms 4 and 8, step after step, in float64."""
    rows, columns, whole = 0.0, 0.0, 0.0
    for t, grad in enumerate(grads, 1):
        decay = 1 - t**-0.8
        square = grad**2 + 1e-30
        if factored:
            rows = decay * rows + (1 - decay) * square.mean(1)
            columns = decay * columns + (1 - decay) * square.mean(0)
            second = np.outer(rows, columns) / rows.mean()
        else:
            second = whole = decay * whole + (1 - decay) * square
        update = grad / np.sqrt(second)
        update /= max(1.0, np.sqrt((update**2).mean()))
        yield update * max(1e-3, np.sqrt((params**2).mean()))


def matrices(name: str, array: np.ndarray):
    """Each matrix or vector of a parameter, by its place."""
    array = np.asarray(array, np.float64)
    if name == "attention":
        array = array.reshape(2, 5, 8)
    places = {"experts": 2, "table": 0}.get(name, 1)
    for place in np.ndindex(array.shape[:places]):
        yield place, array[place]


def test_each_layer_and_expert_is_updated_like_a_matrix_of_its_own():
    optimizer = scale_by_adafactor(NAMES, **OPTIONS)
    params, gradients = arrays(0), [arrays(1), arrays(2), arrays(3)]
    state, found = optimizer.init(params), []
    for grads in gradients:
        updates, state = jax.jit(optimizer.update)(grads, state, params)
        found.append(updates)
    for name in SHAPES:
        factored = name in ("experts", "attention", "table")
        for place, param in matrices(name, params[name]):
            grads = [dict(matrices(name, one[name]))[place] for one in gradients]
            expected = naive(param, grads, factored=factored)
            for updates, update in zip(found, expected, strict=True):
                got = dict(matrices(name, updates[name]))[place]
                np.testing.assert_allclose(got, update, rtol=1e-5, atol=1e-7)


def test_without_limits_the_update_is_that_of_the_moments_alone():
    params, grads = {"w": arrays(0)["table"]}, {"w": arrays(1)["table"]}
    options = OPTIONS | {"clipping_threshold": None, "multiply_by_parameter_scale": False}
    ours = scale_by_adafactor({"w": ("vocab", "embed")}, **options)
    theirs = optax.scale_by_factored_rms(
        decay_rate=OPTIONS["decay_rate"], min_dim_size_to_factor=OPTIONS["min_dim_size_to_factor"]
    )
    updates = [one.update(grads, one.init(params), params)[0]["w"] for one in (ours, theirs)]
    np.testing.assert_allclose(*updates, rtol=1e-6)


def test_one_matrix_is_updated_as_by_optax():
    params, grads = {"w": arrays(0)["table"]}, {"w": arrays(1)["table"]}
    ours = adafactor(inverse_sqrt(2.0, 3), min_dim_size_to_factor=3)({"w": ("vocab", "embed")})
    theirs = optax.adafactor(inverse_sqrt(2.0, 3), min_dim_size_to_factor=3, decay_rate=0.8)
    states = [one.init(params) for one in (ours, theirs)]
    for _ in range(5):
        updates = []
        for i, one in enumerate((ours, theirs)):
            update, states[i] = one.update(grads, states[i], params)
            updates.append(update["w"])
        np.testing.assert_allclose(*updates, rtol=1e-6)


def test_heads_and_their_width_are_one_dimension_and_layers_none():
    view = matrix_view((2, 5, 3, 4), ("layer", "embed", "heads", "head_dim"))
    assert view == (1, (2, 5, 12), ("layer", "embed", "heads"))
    view = matrix_view((2, 3, 4, 5), ("layer", "heads", "head_dim", "embed"))
    assert view == (1, (2, 12, 5), ("layer", "heads", "embed"))
    assert matrix_view((2, 5), ("layer", "embed")) == (1, (2, 5), ("layer", "embed"))


RULES = Rules(
    (
        ("expert", "expert"),
        ("embed", "data"),
        ("heads", "model"),
        ("mlp", "model"),
        ("vocab", "model"),
        ("head_dim", None),
        ("layer", None),
        ("router", None),
    )
)


def test_the_second_moment_is_split_like_what_is_left_of_its_parameter():
    mesh = make_mesh({"data": 2, "expert": 2, "model": 2})
    shapes = {
        "experts": (2, 4, 6, 10),
        "attention": (2, 6, 2, 4),
        "narrow": (2, 6, 2),
        "table": (10, 6),
        "square": (2, 6, 6),
    }
    shapes = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    names = {**NAMES, "square": ("layer", "embed", "mlp")}
    names.pop("scale")
    optimizer = adafactor(1.0, min_dim_size_to_factor=3)(names)
    found = state_shardings(optimizer, shapes, names, RULES, mesh)
    moments = found[0]
    assert isinstance(moments, optax.FactoredState)
    specs = {name: tuple(each.spec) for name, each in moments.v_row.items()}
    # The mean over the larger side is kept for the smaller, v_row, and the other way round.
    assert specs["experts"] == (None, "expert", "data")
    assert specs["attention"] == (None, "data")
    assert specs["table"] == ("data",)
    assert specs["square"] == (None, "data")
    assert specs["narrow"] == (None, None)
    specs = {name: tuple(each.spec) for name, each in moments.v_col.items()}
    assert specs["experts"] == (None, "expert", "model")
    assert specs["attention"] == (None, "model")
    assert specs["table"] == ("model",)
    assert specs["square"] == (None, "model")
    assert tuple(moments.v["narrow"].spec) == (None, "data", None)
    assert tuple(moments.v["experts"].spec) == (None, "expert", None)
    assert tuple(moments.count.spec) == ()


def test_devices_update_their_experts_without_the_others():
    mesh = make_mesh({"data": 2, "expert": 4})
    shapes = {"experts": jax.ShapeDtypeStruct((2, 4, 6, 10), jnp.float32)}
    names = {"experts": NAMES["experts"]}
    optimizer = adafactor(1.0, min_dim_size_to_factor=3)(names)
    params = tree_shardings(names, shapes, DEFAULT_RULES, mesh)
    state = state_shardings(optimizer, shapes, names, DEFAULT_RULES, mesh)
    update = jax.jit(
        optimizer.update, in_shardings=(params, state, params), out_shardings=(params, state)
    )
    compiled = update.lower(shapes, jax.eval_shape(optimizer.init, shapes), shapes).compile()
    assert collectives(compiled) == []


def test_optax_s_own_state_is_split_too():
    mesh = make_mesh({"data": 2, "expert": 2, "model": 2})
    shapes = {"table": jax.ShapeDtypeStruct((10, 6), jnp.float32)}
    names = {"table": ("vocab", "embed")}
    adam = state_shardings(optax.adam(1.0), shapes, names, RULES, mesh)
    assert tuple(adam[0].mu["table"].spec) == ("model", "data")
    factored = optax.adafactor(1.0, min_dim_size_to_factor=3)
    found = state_shardings(factored, shapes, names, RULES, mesh)
    moments = next(one for one in found if isinstance(one, optax.FactoredState))
    assert tuple(moments.v_row["table"].spec) == ("data",)
    assert tuple(moments.v_col["table"].spec) == ("model",)
    masked = optax.masked(optax.adam(1.0), {"table": True})
    found = state_shardings(masked, shapes, names, RULES, mesh)
    assert tuple(found.inner_state[0].nu["table"].spec) == ("model", "data")


def test_numbers_outside_their_range_are_refused_together():
    expected = (
        "adafactor: decay_rate=0 must be a number above 0; min_dim_size_to_factor=0 must be an "
        "integer of at least 1; weight_decay=-1 must be a number of at least 0"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        adafactor(1.0, decay_rate=0, min_dim_size_to_factor=0, weight_decay=-1)
