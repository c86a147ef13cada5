"""Routers, dropless rows and gated experts on several devices: the numbers of one device."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import (
    DEFAULT_RULES,
    collectives,
    expect_collectives,
    make_mesh,
    rules_scope,
    tree_shardings,
)
from gshard_moe import ExpertChoice, MoELayer, Top2, TopK

# Limits that drop are what is looked at here.
pytestmark = pytest.mark.filterwarnings("ignore:.*even a balanced router drops:UserWarning")

G, S, E, M, H = 16, 24, 8, 6, 10
NAMES = {"router": ("embed", "router"), "wi": ("expert", "embed", "mlp")}
NAMES |= {"wo": ("expert", "mlp", "embed"), "gate": ("expert", "embed", "mlp")}
NAMES |= {"bi": ("expert", "mlp"), "bg": ("expert", "mlp"), "bo": ("expert", "embed")}
OPTIONS = {
    "three choices, gated": {
        "router": TopK(3),
        "gated": True,
        "use_bias": True,
        "jitter": 0.1,
        "activation": jax.nn.gelu,
    },
    "expert choice by gathers": {"router": ExpertChoice(), "causal": False, "dispatch": "gather"},
    "expert choice by einsums": {"router": ExpertChoice(), "causal": False, "dispatch": "einsum"},
    "rows": {"router": Top2(), "dispatch": "sorted", "gated": True, "use_bias": True},
    "limited rows": {
        "router": TopK(2),
        "dispatch": "sorted",
        "slots_per_token": 1.0,
        "expert_parts": E,  # so that each is one matmul
    },
}


@functools.cache
def programs(mesh, name):
    """The layer, its gradient, and arguments, on this mesh: each is compiled once."""
    return made(mesh, OPTIONS[name])


def made(mesh, options):
    graph, params = nnx.split(MoELayer(E, M, H, rngs=nnx.Rngs(0), **options))
    params = nnx.to_pure_dict(params)
    # Some experts are much wanted, so that what has a limit drops.
    params["router"] *= jnp.linspace(0.3, 3, E)

    def forward(params, x, mask, key):
        with rules_scope(DEFAULT_RULES, mesh):
            return nnx.merge(graph, params)(x, mask, key=key)

    def loss(params, x, mask, key):
        y, output = forward(params, x, mask, key)
        return jnp.sin(y).sum() + output.balance_loss + output.z_loss, (y, output)

    names = {name: NAMES[name] for name in params}
    params = jax.device_put(params, tree_shardings(names, params, DEFAULT_RULES, mesh))
    groups = jax.NamedSharding(mesh, DEFAULT_RULES.spec(("group",), mesh=mesh))
    x = jax.device_put(jax.random.normal(jax.random.key(1), (G, S, M)), groups)
    mask = jax.device_put(jax.random.uniform(jax.random.key(2), (G, S)) < 0.8, groups)
    gradient = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    return jax.jit(forward), jax.jit(gradient), (params, x, mask, jax.random.key(3))


@pytest.fixture(scope="module")
def expected(one_device):
    known = {}

    def get(name):
        if name not in known:
            _, one, arguments = programs(one_device, name)
            known[name] = one(*arguments)
        return known[name]

    return get


def assert_same(found, expected):
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-5)


MESHES = {
    "2x4": {"data": 2, "expert": 4},
    "2x1": {"data": 2, "expert": 1},
    "1x4": {"data": 1, "expert": 4},
    "2x2x2": {"data": 2, "expert": 2, "model": 2},
}


# Each on the usual mesh; on others what splits differently there: rows in parts or whole, the
# hidden width of gated experts, the tokens that an expert takes.
@pytest.mark.parametrize(
    ("axes", "name"),
    [
        *((MESHES["2x4"], name) for name in OPTIONS),
        *(
            pytest.param(MESHES[axes], name, marks=pytest.mark.slow)
            for axes, name in [
                ("2x1", "rows"),
                ("2x1", "expert choice by gathers"),
                ("1x4", "limited rows"),
                ("1x4", "three choices, gated"),
                ("2x2x2", "three choices, gated"),
                ("2x2x2", "expert choice by einsums"),
                ("2x2x2", "rows"),
                ("2x2x2", "limited rows"),
            ]
        ),
    ],
    ids=str,
)
def test_several_devices_give_the_numbers_of_one(expected, axes, name):
    count = int(np.prod(list(axes.values())))
    mesh = make_mesh(axes, devices=jax.devices()[:count])
    _, several, arguments = programs(mesh, name)
    found = several(*arguments)
    assert_same(found, expected(name))
    statistics = found[0][1][1].statistics
    assert (statistics.dropped_K.sum() > 0) == ("three" in name or "limited" in name)


@pytest.mark.parametrize(
    "name",
    [
        "three choices, gated",
        "rows",
        pytest.param("expert choice by gathers", marks=pytest.mark.slow),
    ],
)
def test_a_mesh_with_explicit_axes_gives_the_same(expected, name):
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    assert set(mesh.axis_types) == {jax.sharding.AxisType.Explicit}
    _, several, arguments = programs(mesh, name)
    found = several(*arguments)
    assert_same(found, expected(name))
    groups = jax.typeof(found[0][1][0]).sharding.spec[0]
    assert groups == ("data", "expert")
    with jax.set_mesh(mesh):
        expect_collectives(several.lower(*arguments).compile(), {"all-gather": 0})


@pytest.mark.parametrize("name", ["three choices, gated", "expert choice by gathers"])
def test_two_all_to_alls_forward_and_two_backward(mesh, name):
    forward, gradient, arguments = programs(mesh, name)
    expect_collectives(forward.lower(*arguments).compile(), {"all-to-all": 2, "all-gather": 0})
    expect_collectives(gradient.lower(*arguments).compile(), {"all-to-all": 4, "all-gather": 0})


def test_rows_are_exchanged_in_buffers_of_one_size(mesh):
    forward, _, arguments = programs(mesh, "limited rows")
    found = expect_collectives(forward.lower(*arguments).compile(), {"all-gather": 0})
    big = [one.bytes for one in found if one.kind == "all-to-all" and one.bytes > G * E * 4]
    # E parts of 16 groups: the 3 rows for the tokens of each fit into one block of 8
    assert big == [E * G * 8 * M * 4 // 8] * 2
    assert {one.kind for one in collectives(forward.lower(*arguments).compile())} == {
        "all-to-all",
        "all-reduce",
    }


def test_evaluation_by_rows_on_eight_devices_is_that_by_slots(mesh):
    results = []
    every: list[dict[str, Any]] = [{}, {"eval_padded_slots": 1}]
    for options in every:
        graph, params = nnx.split(MoELayer(E, M, H, rngs=nnx.Rngs(0), **options))

        @jax.jit
        def evaluate(params, x, graph=graph):
            with rules_scope(DEFAULT_RULES, mesh):
                return nnx.merge(graph, params)(x, deterministic=True)

        results.append(evaluate(params, jax.random.normal(jax.random.key(1), (G, S, M))))
    assert_same(*results)
    assert results[1][1].batch_independent


def test_limited_rows_without_a_number_of_parts(mesh):
    options = OPTIONS["limited rows"] | {"expert_parts": None}
    forward, _, arguments = made(mesh, options)
    message = (
        "MoELayer: slots_per_token=1 limits the rows of each part of the experts, and experts are "
        "split over 4 devices; give expert_parts=4 or a multiple, the same on any number of "
        "devices, or slots_per_token=None for no limit"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        forward(*arguments)
    assert str(caught.value) == message  # to which JAX adds a note


def test_one_expert_at_a_time_on_several_devices(mesh):
    forward, _, arguments = made(mesh, {"experts": "one_by_one"})
    message = (
        "MoELayer: experts='one_by_one' is for one device, and the mesh has 8; "
        "give 'auto' or 'batched'"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        forward(*arguments)
    assert str(caught.value) == message  # to which JAX adds a note
