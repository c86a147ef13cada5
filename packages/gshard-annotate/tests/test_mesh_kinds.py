"""Annotations on every kind of mesh: Auto, Explicit as `jax.make_mesh` gives it, mixed, Manual."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from gshard_annotate import Rules, annotate, expect_collectives, mesh_split, replicate, split

X = np.arange(8 * 4 * 12, dtype=np.float32).reshape(8, 4, 12)
RULES = Rules((("batch", ("data", "expert")), ("heads", "expert"), ("embed", "data")))
KINDS = {
    "auto": (AxisType.Auto, AxisType.Auto),
    "explicit": (AxisType.Explicit, AxisType.Explicit),
    "explicit and auto": (AxisType.Explicit, AxisType.Auto),
}
CASES = {
    "replicate": (replicate, PartitionSpec(None, None, None)),
    "split": (lambda x: split(x, -1, "expert"), PartitionSpec(None, None, "expert")),
    "split by number": (lambda x: split(x, 0, num_partitions=2), PartitionSpec("data", None, None)),
    "over both": (
        lambda x: split(x, 0, ("data", "expert")),
        PartitionSpec(("data", "expert"), None, None),
    ),
    "mesh_split": (
        lambda x: mesh_split(x, [1, 2], ["expert", "data"]),
        PartitionSpec(None, "expert", "data"),
    ),
    "annotate": (
        lambda x: annotate(x, None, "heads", "embed", rules=RULES),
        PartitionSpec(None, "expert", "data"),
    ),
}


@pytest.fixture(params=KINDS)
def any_mesh(request):
    mesh = jax.make_mesh((2, 4), ("data", "expert"), axis_types=KINDS[request.param])
    with jax.set_mesh(mesh):
        yield mesh


def assert_split(y, mesh, spec):
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), y.ndim), y.sharding


def test_make_mesh_as_it_comes_is_explicit():
    assert jax.make_mesh((8,), ("data",)).axis_types == (AxisType.Explicit,)


@pytest.mark.parametrize("case", CASES)
def test_same_value_and_asked_sharding_in_and_outside_jit(any_mesh, case):
    call, spec = CASES[case]
    for function in (call, jax.jit(call)):
        y = function(jnp.asarray(X))
        np.testing.assert_array_equal(y, X)
        assert_split(y, any_mesh, spec)


@pytest.mark.parametrize("case", CASES)
def test_gradient(any_mesh, case):
    call, _ = CASES[case]
    dx = jax.jit(jax.grad(lambda x: (call(x) ** 2).sum()))(jnp.asarray(X))
    np.testing.assert_array_equal(dx, 2 * X)


def test_under_vmap_scan_and_remat(any_mesh):
    def body(x, w):
        return split(x * w, 0, "expert"), ()

    def loss(x):
        # An Explicit carry keeps its type: it has to be split before the loop as within.
        x = split(x, 0, "expert")
        y, _ = jax.lax.scan(jax.checkpoint(body), x, jnp.arange(1.0, 4.0))
        return (y**2).sum()

    value, grad = jax.jit(jax.value_and_grad(loss))(jnp.asarray(X))
    np.testing.assert_allclose(value, 36 * (X**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(grad, 72 * X, rtol=1e-6)
    y = jax.jit(jax.vmap(lambda x: split(x, 0, "expert")))(jnp.asarray(X))
    assert_split(y, any_mesh, PartitionSpec(None, "expert", None))


def test_change_from_groups_to_experts_is_one_all_to_all(any_mesh):
    def exchange(x):
        x = split(x, 0, ("data", "expert"))
        return mesh_split(x, [0, 1], ["data", "expert"])

    compiled = jax.jit(exchange).lower(jnp.asarray(X)).compile()
    expect_collectives(compiled, {"all-to-all": 1, "all-gather": 0, "all-reduce": 0})


def test_checks_are_the_same(any_mesh, refused):
    with refused(
        "split: dimension 2 of x f32[8,4,12] cannot be split over mesh axes ('data', 'expert') of "
        "size 8 (12 % 8 = 4); pad it to 16 or use an axis of size 1, 2, 3, 4, 6 or 12"
    ):
        jax.jit(lambda x: split(x, 2, ("data", "expert")))(jnp.asarray(X))


def test_auto_before_explicit(refused):
    mesh = jax.make_mesh((2, 4), ("data", "expert"), axis_types=KINDS["explicit and auto"])
    with (
        jax.set_mesh(mesh),
        refused(
            "split: dimension 0 of x f32[8,4,12] is split over ('expert', 'data'), an Auto axis "
            "before an Explicit one; name the Explicit ones first"
        ),
    ):
        split(jnp.asarray(X), 0, ("expert", "data"))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_mesh_as_an_argument(kind):
    mesh = jax.make_mesh((2, 4), ("data", "expert"), axis_types=KINDS[kind])
    y = split(jnp.asarray(X), 0, "data", mesh=mesh)
    assert_split(y, mesh, PartitionSpec("data", None, None))
    # An argument of jit that lies on the mesh brings it along.
    z = jax.jit(lambda y: split(y, 1, "expert", mesh=mesh))(y)
    np.testing.assert_array_equal(z, X)
    assert_split(z, mesh, PartitionSpec(None, "expert", None))


def test_explicit_mesh_has_to_be_set_around_jit(refused):
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    with refused(
        "split: mesh axes ('data', 'expert') are Explicit, and jit does not know their mesh; call "
        "the jitted function under `with jax.set_mesh(mesh):`, or build the mesh with "
        "gshard_annotate.make_mesh, whose axes are Auto"
    ):
        jax.jit(lambda x: split(x, 0, "data", mesh=mesh))(jnp.asarray(X))


def per_device(call, kind, manual):
    """`call` under shard_map over the axes `manual`, on x split over data."""
    mesh = jax.make_mesh((2, 4), ("data", "expert"), axis_types=KINDS[kind])
    spec = PartitionSpec("data")
    function = jax.shard_map(call, mesh=mesh, in_specs=spec, out_specs=spec, axis_names=set(manual))
    return jax.jit(function)(jax.device_put(X, jax.NamedSharding(mesh, spec))), mesh


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_over_the_other_axes_inside_shard_map(kind):
    y, mesh = per_device(lambda x: split(2 * x, 2, "expert"), kind, ["data"])
    np.testing.assert_array_equal(y, 2 * X)
    assert_split(y, mesh, PartitionSpec("data", None, "expert"))


def test_over_the_other_axes_with_the_mesh_as_an_argument():
    auto = jax.make_mesh((2, 4), ("data", "expert"), axis_types=KINDS["auto"])
    y, mesh = per_device(lambda x: split(2 * x, 2, "expert", mesh=auto), "auto", ["data"])
    assert_split(y, mesh, PartitionSpec("data", None, "expert"))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_over_a_manual_axis(kind, refused):
    with refused(
        "split: dimension 0 of x f32[4,4,12] cannot be split over mesh axis 'data', which is "
        "manual here: inside shard_map x is already one device's part; annotate over 'expert', "
        "or outside of it"
    ):
        per_device(lambda x: split(x, 0, "data"), kind, ["data"])


def test_where_all_axes_are_manual(refused):
    y, _ = per_device(replicate, "auto", ["data", "expert"])
    np.testing.assert_array_equal(y, X)
    with refused(
        "annotate: dimension 1 of x f32[4,4,12] cannot be split over mesh axis 'expert', which is "
        "manual here: inside shard_map x is already one device's part; annotate outside of it"
    ):
        per_device(
            lambda x: annotate(x, None, "heads", None, rules=RULES), "auto", ["data", "expert"]
        )
