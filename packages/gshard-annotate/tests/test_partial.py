"""Partial sums: what carries them, what places their reduction, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate import (
    Rules,
    expect_collectives,
    make_mesh,
    mesh_split,
    partial,
    replicate,
    rules_scope,
    split,
)

X = np.arange(8 * 12, dtype=np.float32).reshape(8, 12)
A = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
B = np.random.default_rng(1).normal(size=(16, 12)).astype(np.float32)


@pytest.fixture
def explicit():
    """The mesh that `jax.make_mesh` gives, set around jit."""
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    with jax.set_mesh(mesh):
        yield mesh


def product(a, b):
    """A contraction over a split dimension that leaves its sum over the devices open."""
    a, b = split(a, 1, "expert"), split(b, 0, "expert")
    open_sum = PartitionSpec(None, None, unreduced={"expert"})
    return jnp.einsum("ab,bc->ac", a, b, out_sharding=open_sum)


@pytest.mark.parametrize("axes", ["expert", ("data", "expert")])
@pytest.mark.parametrize("start", ["anywhere", "replicated", "split"])
def test_value_stays_what_it_is(explicit, axes, start):
    begin = {
        "anywhere": lambda x: x,
        "replicated": replicate,
        "split": lambda x: split(x, 0, "expert"),
    }[start]

    @jax.jit
    def inside(x):
        y = partial(begin(x), axes)
        assert jax.typeof(y).sharding.spec.unreduced == frozenset(np.ravel(axes).tolist())
        return replicate(y)

    np.testing.assert_array_equal(inside(jnp.asarray(X)), X)
    np.testing.assert_array_equal(replicate(partial(begin(jnp.asarray(X)), axes)), X)


def test_one_axis_after_the_other(explicit):
    y = jax.jit(lambda x: replicate(partial(partial(x, "data"), "expert")))(jnp.asarray(X))
    np.testing.assert_array_equal(y, X)


def test_other_dimensions_stay_split(explicit):
    def inside(x):
        y = partial(mesh_split(x, [0, 1], ["data", "expert"]), "expert")
        assert jax.typeof(y).sharding.spec == PartitionSpec("data", None, unreduced={"expert"})
        return mesh_split(y, [0, 1], ["data", "expert"])

    np.testing.assert_array_equal(jax.jit(inside)(jnp.asarray(X)), X)


# Operations that JAX lets a partial sum pass through.
CARRIED = {
    "add": lambda y: y + y,
    "sum": lambda y: y.sum(0),
    "transpose": lambda y: y.T,
    "reshape": lambda y: y.reshape(4, 2, 12),
    "slice": lambda y: y[:3],
    "concatenate": lambda y: jnp.concatenate([y, y]),
    "cast": lambda y: y.astype(jnp.int32),
    "broadcast": lambda y: jnp.broadcast_to(y, (2, *y.shape)),
    "pad": lambda y: jnp.pad(y, 1),
}


@pytest.mark.parametrize("case", CARRIED)
def test_carried_through_linear_operations(explicit, case):
    operation = CARRIED[case]
    y = jax.jit(lambda x: replicate(operation(partial(x, "expert"))))(jnp.asarray(X))
    np.testing.assert_array_equal(y, operation(jnp.asarray(X)))


def test_replicate_is_one_all_reduce_for_all_that_is_open(explicit):
    def inside(a, b):
        y = product(a, b)
        return replicate(y + y)

    np.testing.assert_allclose(jax.jit(inside)(A, B), 2 * (A @ B), rtol=1e-4, atol=1e-5)
    compiled = jax.jit(inside).lower(A, B).compile()
    expect_collectives(compiled, {"all-reduce": 1, "all-gather": 0, "reduce-scatter": 0})


def test_split_gives_each_device_its_part(explicit):
    def inside(a, b):
        return split(product(a, b), 0, "expert")

    y = jax.jit(inside)(A, B)
    np.testing.assert_allclose(y, A @ B, rtol=1e-4, atol=1e-5)
    assert y.sharding.spec == PartitionSpec("expert", None)
    # XLA:CPU makes its reduce-scatters of an all-reduce and a slice; the TPU compiler does not
    # (tests/test_annotations_for_tpu.py).
    compiled = jax.jit(inside).lower(A, B).compile()
    expect_collectives(compiled, {"all-reduce": 1, "all-gather": 0})


def test_gradient(explicit):
    def loss(a, b):
        return (split(product(a, b), 0, "expert") ** 2).sum()

    def plain(a, b):
        return ((a @ b) ** 2).sum()

    found = jax.jit(jax.grad(loss, (0, 1)))(jnp.asarray(A), jnp.asarray(B))
    for gradient, expected in zip(found, jax.grad(plain, (0, 1))(A, B), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_operation_that_cannot_carry_it_says_what_to_do(explicit):
    def inside(x):
        with rules_scope(Rules(()), explicit):
            return jnp.sin(partial(x, "expert"))

    with pytest.raises(NotImplementedError, match="unreduced rule for sin") as caught:
        jax.jit(inside)(jnp.asarray(X))
    assert caught.value.__notes__[0] == (
        "gshard_annotate: a partial sum passes through linear operations only; place its "
        "reduction before this one, with replicate(x) or split(x, dim, mesh_axis)"
    )


def test_auto_axes(mesh, refused):
    message = (
        "partial: x f32[8,12] cannot be a partial sum over mesh axis 'expert', which is Auto: JAX "
        "keeps partial sums over Explicit axes only; build the mesh with jax.make_mesh, or compute "
        "the summands per device with gshard_annotate.sum_partials"
    )
    for function in (partial, jax.jit(partial, static_argnames=("mesh_axis", "mesh"))):
        with refused(message):
            function(jnp.asarray(X), mesh_axis="expert", mesh=mesh)


def test_inside_shard_map(mesh, refused):
    message = (
        "partial: x f32[2,12] cannot be a partial sum over mesh axis 'expert', which is Manual: "
        "inside shard_map each device computes its own summand anyway; add them up with "
        "jax.lax.psum or jax.lax.psum_scatter"
    )
    spec = PartitionSpec("expert")
    function = jax.shard_map(
        lambda x: partial(x, "expert"), mesh=mesh, in_specs=spec, out_specs=spec
    )
    with refused(message):
        function(jnp.asarray(X))


def test_unknown_axes(explicit, refused):
    message = (
        "partial: 2 faults:\n"
        "  x f32[8,12] cannot be a partial sum over mesh axis 'date': the mesh has data=2, "
        "expert=4; did you mean 'data'?\n"
        "  x f32[8,12] cannot be a partial sum over mesh axis 'pipe': the mesh has data=2, expert=4"
    )
    with refused(message):
        partial(jnp.asarray(X), ("date", "pipe"))


def test_no_axis(explicit, refused):
    with refused("partial: no mesh axis is given"):
        partial(jnp.asarray(X), ())


def test_one_axis_of_size_one():
    with jax.set_mesh(jax.make_mesh((8, 1), ("data", "expert"))):
        y = jax.jit(lambda x: replicate(partial(x, "expert")))(jnp.asarray(X))
    np.testing.assert_array_equal(y, X)


def test_mesh_needs_to_be_set_around_jit(refused):
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    message = (
        "partial: mesh axes ('data', 'expert') are Explicit, and jit does not know their mesh; "
        "call the jitted function under `with jax.set_mesh(mesh):`, or build the mesh with "
        "gshard_annotate.make_mesh, whose axes are Auto"
    )
    with refused(message):
        jax.jit(lambda x: partial(x, "expert", mesh=mesh))(jnp.asarray(X))
    assert make_mesh({"data": 8}).axis_types == (jax.sharding.AxisType.Auto,)
