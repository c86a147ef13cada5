"""Annotations change where an array lies, never what it is."""

import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate import (
    DEFAULT_RULES,
    Rules,
    annotate,
    expect_collectives,
    make_mesh,
    mesh_split,
    replicate,
    rules_scope,
    split,
)

X = np.arange(8 * 4 * 6, dtype=np.float32).reshape(8, 4, 6)
RULES = Rules((("batch", ("data", "expert")), ("heads", "expert"), ("embed", None)))

# Each annotation of X and the spec that it means.
CASES = {
    "replicate": (lambda x, mesh: replicate(x, mesh=mesh), PartitionSpec()),
    "split": (lambda x, mesh: split(x, 1, "expert", mesh=mesh), PartitionSpec(None, "expert")),
    "split from the end": (
        lambda x, mesh: split(x, -1, "data", mesh=mesh),
        PartitionSpec(None, None, "data"),
    ),
    "split over two axes": (
        lambda x, mesh: split(x, 0, ("expert", "data"), mesh=mesh),
        PartitionSpec(("expert", "data")),
    ),
    "split by number": (
        lambda x, mesh: split(x, 0, num_partitions=4, mesh=mesh),
        PartitionSpec("expert"),
    ),
    "mesh_split": (
        lambda x, mesh: mesh_split(x, [2, 0], ["data", "expert"], mesh=mesh),
        PartitionSpec("expert", None, "data"),
    ),
    "mesh_split by name": (
        lambda x, mesh: mesh_split(x, ["h"], ["expert"], names=("b", "h", "d"), mesh=mesh),
        PartitionSpec(None, "expert"),
    ),
    "mesh_split over nothing": (
        lambda x, mesh: mesh_split(x, [1], [None], mesh=mesh),
        PartitionSpec(),
    ),
    "annotate": (
        lambda x, mesh: annotate(x, "batch", None, "embed", rules=RULES, mesh=mesh),
        PartitionSpec(("data", "expert")),
    ),
}


def assert_split(y, mesh, spec):
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), y.ndim), y.sharding


@pytest.mark.parametrize("case", CASES)
def test_same_value_and_asked_sharding_in_and_outside_jit(mesh, case):
    call, spec = CASES[case]
    for function in (call, jax.jit(call, static_argnums=1)):
        y = function(jnp.asarray(X), mesh)
        np.testing.assert_array_equal(y, X)
        assert_split(y, mesh, spec)


@pytest.mark.parametrize("case", CASES)
def test_cotangent_gets_the_same_annotation(mesh, case):
    call, spec = CASES[case]
    dx = jax.jit(jax.grad(lambda x: (call(x, mesh) ** 2).sum()))(jnp.asarray(X))
    np.testing.assert_array_equal(dx, 2 * X)
    assert_split(dx, mesh, spec)


def test_under_vmap_scan_and_remat(mesh):
    def body(x, w):
        return split(x * w, 0, "expert", mesh=mesh), ()

    def loss(x):
        y, _ = jax.lax.scan(jax.checkpoint(body), x, jnp.arange(1.0, 4.0))
        return (y**2).sum()

    value, grad = jax.jit(jax.value_and_grad(loss))(jnp.asarray(X))
    np.testing.assert_allclose(value, 36 * (X**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(grad, 72 * X, rtol=1e-6)
    y = jax.jit(jax.vmap(lambda x: split(x, 0, "expert", mesh=mesh)))(jnp.asarray(X))
    assert_split(y, mesh, PartitionSpec(None, "expert"))


@pytest.mark.parametrize("where", ["scope", "set_mesh"])
def test_mesh_and_rules_from_around(mesh, where):
    def call(x):
        return annotate(x, "batch", None, None)

    context = rules_scope(RULES, mesh) if where == "scope" else jax.set_mesh(mesh)
    with context:
        for function in (call, jax.jit(lambda x: call(x))):
            assert_split(function(jnp.asarray(X)), mesh, PartitionSpec(("data", "expert")))


def test_argument_before_scope(mesh):
    other = make_mesh({"data": 1, "expert": 8})
    with rules_scope(DEFAULT_RULES, other):
        assert_split(split(jnp.asarray(X), 0, "data", mesh=mesh), mesh, PartitionSpec("data"))


def test_explicit_axes():
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    with jax.set_mesh(mesh):
        y = jax.jit(lambda x: annotate(x, "batch", "heads", None, rules=RULES))
        with pytest.raises(ValueError, match=r"mesh axis 'expert' splits dimensions 0 and 1"):
            y(jnp.asarray(X))
        z = jax.jit(lambda x: annotate(x, None, "heads", None, rules=RULES))(jnp.asarray(X))
        assert_split(z, mesh, PartitionSpec(None, "expert"))


def test_change_from_groups_to_experts_is_one_all_to_all(mesh):
    def exchange(x):
        x = split(x, 0, ("data", "expert"), mesh=mesh)
        return mesh_split(x, [0, 1], ["data", "expert"], mesh=mesh)

    compiled = jax.jit(exchange).lower(jnp.asarray(X)).compile()
    expect_collectives(compiled, {"all-to-all": 1, "all-gather": 0, "all-reduce": 0})


def test_several_devices_need_a_mesh():
    message = (
        "annotate: no mesh, and 8 devices; "
        "pass mesh=, or enter `rules_scope(rules, mesh)` or `jax.set_mesh(mesh)`"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        annotate(jnp.asarray(X), "batch", None, None)


def test_one_device_needs_no_mesh_and_is_checked_all_the_same():
    program = """
import jax.numpy as jnp
from gshard_annotate import annotate, mesh_split, replicate, split
x = jnp.ones((3, 5))
for y in (replicate(x), split(x, 0, "expert"), split(x, 1, num_partitions=4),
          mesh_split(x, [1], ["data"]), annotate(x, "group", "act_embed")):
    assert y is x
for call in (lambda: split(x, 2, "expert"), lambda: annotate(x, "group"),
             lambda: annotate(x, "grup", None), lambda: mesh_split(x, ["h"], ["data"])):
    try:
        call()
    except ValueError as error:
        print(str(error).split(";")[0])
"""
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout.splitlines() == [
        "split: x f32[3,5] has no dimension 2",
        "annotate: x f32[3,5] has 2 dimensions but 1 name ('group',)",
        "annotate: x f32[3,5]: no rule for logical name 'grup'",
        "mesh_split: no dimension is called 'h': no names are given",
    ], done.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, mesh: split(x, 2, "expert", mesh=mesh),
            "split: dimension 2 of x f32[8,4,6] cannot be split over mesh axis 'expert' of size 4 "
            "(6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6",
        ),
        (
            lambda x, mesh: split(x, 3, "expert", mesh=mesh),
            "split: x f32[8,4,6] has no dimension 3; give one of -3 to 2",
        ),
        (
            lambda x, mesh: split(x, 0, mesh=mesh),
            "split: mesh_axis is None and num_partitions is None; give one of them",
        ),
        (
            lambda x, mesh: split(x, 0, "data", num_partitions=2, mesh=mesh),
            "split: mesh_axis is 'data' and num_partitions is 2; give one of them",
        ),
        (
            lambda x, mesh: split(x, 0, num_partitions=8, mesh=mesh),
            "split: num_partitions=8 for dimension 0 of x f32[8,4,6], but no mesh axis of that "
            "size in the mesh (data=2, expert=4); name the mesh axis",
        ),
        (
            lambda x, mesh: mesh_split(x, [0, -3], ["data", "expert"], mesh=mesh),
            "mesh_split: dims [0, -3] name a dimension of x f32[8,4,6] twice",
        ),
        (
            lambda x, mesh: mesh_split(x, [0, 1], ["data", "data"], mesh=mesh),
            "mesh_split: mesh axis 'data' splits dimensions 0 and 1 of x f32[8,4,6]; "
            "a mesh axis can split one dimension only, replicate the other",
        ),
        (
            lambda x, mesh: mesh_split(x, ["head", 1], ["data"], names=("b", "heads"), mesh=mesh),
            "mesh_split: 3 faults:\n"
            "  2 dims ['head', 1] but 1 mesh_axes ['data']; give one entry of mesh_axes per dim\n"
            "  2 names ('b', 'heads') for x f32[8,4,6]; give 3\n"
            "  no dimension is called 'head': names are ('b', 'heads'); did you mean 'heads'?",
        ),
        (
            lambda x, mesh: annotate(x, "batch", "heads", "embd", rules=RULES, mesh=mesh),
            "annotate: x f32[8,4,6]: no rule for logical name 'embd'; did you mean 'embed'? "
            "(rules: batch, heads, embed)",
        ),
        (
            lambda x, mesh: annotate(x, None, None, "heads", rules=RULES, mesh=mesh),
            "annotate: dimension 2 of x f32[8,4,6] cannot be split over mesh axis 'expert' of "
            "size 4 (6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6",
        ),
    ],
)
def test_wrong_arguments(mesh, call, message):
    for function in (call, jax.jit(call, static_argnums=1)):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
            function(jnp.asarray(X), mesh)
        assert str(caught.value) == message


def test_number_of_partitions_that_two_axes_have():
    mesh = make_mesh({"data": 2, "expert": 2, "model": 2})
    message = (
        "split: num_partitions=2 for dimension 0 of x f32[8,4,6], but 3 mesh axes "
        "('data', 'expert', 'model') of that size in the mesh (data=2, expert=2, model=2); "
        "name the mesh axis"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        split(jnp.asarray(X), 0, num_partitions=2, mesh=mesh)
