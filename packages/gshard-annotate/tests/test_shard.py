"""`shard`: the assignment's shape cuts, its ids say where each part goes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate import Rules, make_mesh, rules_scope, shard, split

X = np.arange(3 * 16 * 64, dtype=np.float32).reshape(3, 16, 64)
IDS = np.arange(8)


def parts_by_device(y):
    return {shard.device.id: np.asarray(shard.data) for shard in y.addressable_shards}


def assert_cut(y, assignment):
    """Each device holds the part of X that stands at its place in the assignment."""
    np.testing.assert_array_equal(y, X)
    parts = parts_by_device(y)
    sizes = [size // count for size, count in zip(X.shape, assignment.shape, strict=True)]
    for place, device in np.ndenumerate(assignment):
        cut = tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, sizes, strict=True))
        np.testing.assert_array_equal(parts[device], X[cut])


def test_example_of_the_paper():
    y = shard(jnp.asarray(X), IDS.reshape(1, 2, 4))
    assert {part.shape for part in parts_by_device(y).values()} == {(3, 8, 16)}
    assert_cut(y, IDS.reshape(1, 2, 4))


# Assignments that are the mesh data=2, expert=4 with its axes permuted, and what they mean.
PERMUTED = {
    "as it is": (IDS.reshape(1, 2, 4), PartitionSpec(None, "data", "expert")),
    "transposed": (IDS.reshape(2, 4).T.reshape(1, 4, 2), PartitionSpec(None, "expert", "data")),
    "both on one dimension": (IDS.reshape(1, 1, 8), PartitionSpec(None, None, ("data", "expert"))),
    "both the other way": (
        IDS.reshape(2, 4).T.reshape(1, 8, 1),
        PartitionSpec(None, ("expert", "data")),
    ),
}


@pytest.mark.parametrize("case", PERMUTED)
def test_permuted_axes_become_a_spec_in_and_outside_jit(mesh, case):
    assignment, spec = PERMUTED[case]

    def cut(x):
        return shard(x, assignment, mesh=mesh)

    for function in (cut, jax.jit(cut)):
        y = function(jnp.asarray(X))
        assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), 3)
        assert_cut(y, assignment)


def test_three_axes_one_of_size_one():
    mesh = make_mesh({"data": 2, "one": 1, "expert": 2, "model": 2})
    assignment = IDS.reshape(2, 2, 2).transpose(2, 0, 1).reshape(1, 4, 2)
    y = jax.jit(lambda x: shard(x, assignment, mesh=mesh))(jnp.asarray(X))
    spec = PartitionSpec(None, ("model", "data"), "expert")
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), 3)
    assert_cut(y, assignment)


def test_mesh_in_its_own_order():
    order = [3, 1, 2, 0, 7, 5, 6, 4]
    mesh = make_mesh({"data": 2, "expert": 4}, device_order=order)
    assignment = np.array(order).reshape(1, 2, 4)
    y = jax.jit(lambda x: shard(x, assignment, mesh=mesh))(jnp.asarray(X))
    assert y.sharding.is_equivalent_to(
        jax.NamedSharding(mesh, PartitionSpec(None, "data", "expert")), 3
    )
    assert_cut(y, assignment)


ANY_ORDER = np.array([0, 1, 2, 3, 7, 6, 5, 4]).reshape(1, 2, 4)


def test_any_order_outside_of_jit(mesh):
    for y in (shard(jnp.asarray(X), ANY_ORDER), shard(jnp.asarray(X), ANY_ORDER, mesh=mesh)):
        assert_cut(y, ANY_ORDER)
        assert y.sharding.mesh.axis_names == ("dim0", "dim1", "dim2")


def test_from_one_order_to_another_outside_of_jit(mesh):
    y = shard(jnp.asarray(X), ANY_ORDER)
    assert_cut(shard(y, IDS.reshape(1, 2, 4)), IDS.reshape(1, 2, 4))
    z = split(y, 1, "data", mesh=mesh)
    np.testing.assert_array_equal(z, X)
    assert z.sharding.spec == PartitionSpec(None, "data", None)


def test_some_of_the_devices_outside_of_jit():
    assignment = np.array([5, 2]).reshape(1, 2, 1)
    y = shard(jnp.asarray(X), assignment)
    assert_cut(y, assignment)
    assert set(parts_by_device(y)) == {2, 5}


def test_any_other_order_inside_jit_is_refused_with_the_mesh_to_build(mesh, refused):
    message = (
        "shard: device_assignment [[[0, 1, 2, 3], [7, 6, 5, 4]]] is not the mesh (data=2, "
        "expert=4; device ids [[0, 1, 2, 3], [4, 5, 6, 7]]) with its axes permuted, and one "
        "program has one device order; build the mesh as make_mesh({'dim1': 2, 'dim2': 4}, "
        "device_order=[0, 1, 2, 3, 7, 6, 5, 4]) and use it in the whole program, or call shard "
        "outside of jit"
    )
    with refused(message):
        jax.jit(lambda x: shard(x, ANY_ORDER, mesh=mesh))(jnp.asarray(X))
    # What it says works.
    mesh = make_mesh({"dim1": 2, "dim2": 4}, device_order=[0, 1, 2, 3, 7, 6, 5, 4])
    assert_cut(jax.jit(lambda x: shard(x, ANY_ORDER, mesh=mesh))(jnp.asarray(X)), ANY_ORDER)


def test_cotangent_is_cut_alike(mesh):
    assignment = IDS.reshape(1, 2, 4)
    dx = jax.jit(jax.grad(lambda x: (shard(x, assignment, mesh=mesh) ** 2).sum()))(jnp.asarray(X))
    np.testing.assert_array_equal(dx, 2 * X)
    spec = PartitionSpec(None, "data", "expert")
    assert dx.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), 3)


def test_set_mesh_inside_jit_does_not_tell_its_devices(mesh, refused):
    message = (
        "shard: inside jit JAX does not tell which devices the mesh of jax.set_mesh has; "
        "pass mesh=, or enter rules_scope(rules, mesh)"
    )
    with jax.set_mesh(mesh), refused(message):
        jax.jit(lambda x: shard(x, IDS.reshape(1, 2, 4)))(jnp.asarray(X))


def test_explicit_axes():
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    with jax.set_mesh(mesh):
        y = jax.jit(lambda x: shard(x, IDS.reshape(1, 2, 4), mesh=mesh))(jnp.asarray(X))
    assert y.sharding.spec == PartitionSpec(None, "data", "expert")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        (
            IDS.reshape(2, 4),
            "shard: device_assignment has shape (2, 4), 2 dimensions, but x f32[3,16,64] has 3; "
            "give one dimension per dimension of x, of size 1 where it stays whole",
        ),
        (
            IDS.reshape(8, 1, 1),
            "shard: dimension 0 of x f32[3,16,64] cannot be cut into 8 parts, as device_assignment "
            "of shape (8, 1, 1) says (3 % 8 = 3)",
        ),
        (
            np.array([0, 1, 2, 2, 4, 5, 6, 9]).reshape(1, 2, 4),
            "shard: 3 faults:\n"
            "  device ids [2] stand more than once in device_assignment\n"
            "  device ids [9] do not exist; the mesh has [0, 1, 2, 3, 4, 5, 6, 7]\n"
            "  device ids [3, 7] of the mesh (data=2, expert=4) are missing in "
            "device_assignment; give each once",
        ),
        (
            np.arange(4).reshape(1, 1, 4),
            "shard: device ids [4, 5, 6, 7] of the mesh (data=2, expert=4) are missing in "
            "device_assignment; give each once",
        ),
    ],
)
def test_wrong_assignments(mesh, assignment, message, refused):
    def cut(x):
        return shard(x, assignment, mesh=mesh)

    for function in (cut, jax.jit(cut)):
        with refused(message):
            function(jnp.asarray(X))


def test_devices_that_do_not_exist_without_a_mesh(refused):
    message = "shard: device ids [8, 9] do not exist; there are [0, 1, 2, 3, 4, 5, 6, 7]"
    with refused(message):
        shard(jnp.asarray(X), np.array([8, 9]).reshape(1, 2, 1))


def test_ids_that_are_no_integers(refused):
    message = (
        "shard: device_assignment holds float32, shape (2,); give integers, the ids of devices"
    )
    with refused(message, TypeError):
        shard(jnp.ones(4), np.ones(2, np.float32))


def test_mesh_from_the_scope(mesh):
    with rules_scope(Rules(()), mesh):
        y = jax.jit(lambda x: shard(split(x, 1, "data"), IDS.reshape(1, 2, 4)))(jnp.asarray(X))
    assert_cut(y, IDS.reshape(1, 2, 4))
