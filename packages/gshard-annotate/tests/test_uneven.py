"""Dimensions that do not divide: the same numbers as on the array without padding."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_annotate import expect_collectives, make_mesh, split
from gshard_annotate.manual import manual
from gshard_annotate.padded import Padded
from gshard_annotate.uneven import pad_to_split

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
NONE = dict.fromkeys(KINDS, 0)

X = (np.arange(15 * 6, dtype=np.float32).reshape(15, 6) % 11 - 3) / 4


def mesh_of(count):
    return make_mesh({"expert": count}, devices=jax.devices()[:count])


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def logsumexp(x, axis):
    return np.log(np.exp(x).sum(axis))


def true(y):
    return y.unpad() if isinstance(y, Padded) else y


def test_fifteen_over_two_are_shards_of_eight():
    x = pad_to_split(jnp.asarray(X), 0, "expert", mesh=mesh_of(2))
    assert [shard.data.shape for shard in x.padded.addressable_shards] == [(8, 6), (8, 6)]
    assert (x.shape, x.ndim, x.dtype) == ((15, 6), 2, np.float32)
    assert (x.dims, x.sizes, x.padded_sizes) == ((-2,), (15,), (16,))
    np.testing.assert_array_equal(x.padded[15], X[14])
    np.testing.assert_array_equal(x.unpad(), X)
    np.testing.assert_array_equal(x.mask(), np.arange(16)[:, None] < 15)
    np.testing.assert_array_equal(x.filled(7)[14:], [X[14], [7] * 6])


@settings(max_examples=10, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 5)),
    dim=st.integers(-2, 1),
    count=st.sampled_from([1, 2, 4, 8]),
    axis=st.sampled_from([None, 0, 1, (0, 1), -1]),
    dtype=st.sampled_from(["float32", "bfloat16", "int32", "bool", "uint8"]),
    name=st.sampled_from(["sum", "max", "min", "mean"]),
)
def test_reductions_equal_those_without_padding(shape, dim, count, axis, dtype, name):
    x = jnp.asarray(X[: shape[0], : shape[1]] * 4).astype(dtype)
    mesh = mesh_of(count)
    y = jax.jit(lambda x: getattr(pad_to_split(x, dim, "expert", mesh=mesh), name)(axis))(x)
    expected = getattr(jnp, name)(x, axis)
    assert isinstance(y, Padded) == (
        axis is not None and np.ndim(axis) == 0 and axis % 2 != dim % 2
    )
    assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
    tolerance = 0 if dtype in ("int32", "bool", "uint8") and name != "mean" else 1e-6
    got = np.asarray(true(y), np.float64)
    np.testing.assert_allclose(
        got, np.asarray(expected, np.float64), rtol=tolerance, atol=tolerance
    )


@settings(max_examples=6, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 5)),
    dim=st.integers(0, 1),
    count=st.sampled_from([1, 2, 4, 8]),
    axis=st.integers(0, 1),
)
def test_softmax_and_logsumexp_equal_those_without_padding(shape, dim, count, axis):
    x = X[: shape[0], : shape[1]]
    mesh = mesh_of(count)

    @jax.jit
    def run(x):
        x = pad_to_split(x, dim, "expert", mesh=mesh)
        return x.softmax(axis).unpad(), true(x.logsumexp(axis))

    weights, sums = run(x)
    np.testing.assert_allclose(weights, softmax(x, axis), rtol=1e-6)
    np.testing.assert_allclose(sums, logsumexp(x, axis), atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_in_jit_with_gradients(count):
    mesh = mesh_of(count)
    w = jnp.linspace(0.5, 1.5, 6)

    def loss(x, w, wrap):
        y = wrap(x).map(lambda row: jnp.log1p(row**2) * w)
        weights = y.softmax(0)
        mixed = y.map(lambda row, weight: (row * weight).sum(), weights)
        total = mixed.sum() + y.mean() + weights.map(jnp.log).min(0).sum() + y.logsumexp().sum()
        return total + y.max(1).sum()

    def numpy_loss(x, w):
        y = jnp.log1p(x**2) * w
        weights = jax.nn.softmax(y, 0)
        total = (y * weights).sum() + y.mean() + jnp.log(weights).min(0).sum()
        return total + jax.nn.logsumexp(y) + y.max(1).sum()

    wrapped = jax.jit(
        jax.value_and_grad(
            lambda x, w: loss(x, w, lambda x: pad_to_split(x, 0, "expert", mesh=mesh)), (0, 1)
        )
    )
    value, grads = wrapped(jnp.asarray(X), w)
    expected, expected_grads = jax.value_and_grad(numpy_loss, (0, 1))(jnp.asarray(X), w)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    for got, want in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


# 1 / (1 - x) and its like are infinite at 1, which is what stands in padding that was not finite.
FUNCTIONS = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(0).sum(),
    "softmax": lambda x: (x.softmax(0).filled() ** 2).sum(),
    "softmax over the other axis": lambda x: (x.softmax(1).filled() ** 2).sum(),
    "logsumexp": lambda x: x.logsumexp(1).sum(),
    "map": lambda x: x.map(lambda row: jnp.log(row**2) / row).sum(),
    "map to infinity": lambda x: x.map(lambda row: 1 / (1 - row)).sum(),
    "map twice": lambda x: x.map(lambda row: 1 / (1 - row)).map(jnp.tanh).sum(1).max(),
    "contraction": lambda x: jnp.einsum("ab,ac->bc", x.filled(), x.filled()).sum(),
    "unpad": lambda x: (x.unpad() ** 2).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_in_the_padding_reaches_neither_values_nor_gradients(name):
    x = jnp.asarray(X[:13] + 5)

    def value(x, w, content):
        raw = jnp.concatenate([x, jnp.full((3, 6), content)])
        return FUNCTIONS[name](Padded(raw, (-2,), (13,), (16,)).map(lambda row: row * w))

    with jax.debug_nans(False):
        results = [
            jax.jit(jax.value_and_grad(value, (0, 1)))(x, jnp.full(6, 2.0), content)
            for content in (3.0, jnp.nan, jnp.inf)
        ]
    for got in results[1:]:
        for one, expected in zip(jax.tree.leaves(got), jax.tree.leaves(results[0]), strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_allclose(one, expected, rtol=1e-6)


def test_no_gradient_in_the_padding():
    x = pad_to_split(jnp.asarray(X), 0, "expert", mesh=mesh_of(8))
    grad = jax.jit(jax.grad(lambda x: x.map(jnp.sin).sum()))(x)
    assert isinstance(grad, Padded)
    np.testing.assert_allclose(grad.padded[:15], np.cos(X), rtol=1e-6)
    np.testing.assert_array_equal(grad.padded[15:], 0)


def test_through_scan_vmap_and_remat():
    x = pad_to_split(jnp.asarray(X), 0, "expert", mesh=mesh_of(4))

    @jax.checkpoint
    def step(carry, factor):
        carry = carry.map(lambda row: row * factor)
        return carry, carry.max(0)

    last, maxima = jax.jit(lambda x: jax.lax.scan(step, x, jnp.arange(1.0, 4.0)))(x)
    np.testing.assert_allclose(last.unpad(), X * 6, rtol=1e-6)
    np.testing.assert_allclose(maxima, [X.max(0), X.max(0) * 2, X.max(0) * 6], rtol=1e-6)
    stacked = jax.tree.map(lambda y: jnp.stack([y, 2 * y, -y]), x)
    assert stacked.shape == (3, 15, 6)
    np.testing.assert_allclose(
        jax.vmap(lambda x: x.max(0))(stacked), [X.max(0), 2 * X.max(0), -X.min(0)], rtol=1e-6
    )
    np.testing.assert_allclose(
        jax.vmap(lambda x: x.map(jnp.sum).map(jnp.tanh))(stacked).unpad()[1],
        np.tanh(2 * X.sum(1)),
        rtol=1e-6,
    )


def test_mapping_over_the_padded_dimension_is_noticed():
    x = pad_to_split(jnp.asarray(X), 0, "expert", mesh=mesh_of(2))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        jax.vmap(lambda x: x.sum())(x)
    assert str(caught.value) == (
        "Padded: dimension -2 is padded to 16, but the array inside has shape (6,); map over "
        "leading dimensions, not over the padded one"
    )


def test_two_padded_dimensions():
    mesh = make_mesh({"data": 2, "expert": 4})
    x = X[:, None, :5] * np.array([1, 2, 4])[:, None]  # [15,3,5]
    padded = jax.jit(lambda x: pad_to_split(x, [0, -1], ["data", "expert"], mesh=mesh))(x)
    assert padded.padded.sharding.spec == jax.P("data", None, "expert")
    assert (padded.padded.shape, padded.shape) == ((16, 3, 8), (15, 3, 5))
    np.testing.assert_array_equal(padded.unpad(), x)
    np.testing.assert_allclose(padded.mean((0, 2)), x.mean((0, 2)), rtol=1e-6)
    np.testing.assert_array_equal(padded.max(0).unpad(), x.max(0))
    np.testing.assert_allclose(padded.softmax((0, 2)).unpad(), softmax(x, (0, 2)), rtol=1e-5)
    doubled = padded.map(lambda middle, other: middle[:2] + other[1:], padded)
    np.testing.assert_array_equal(doubled.unpad(), x[:, :2] + x[:, 1:])
    # Without its other dimension, what is left are the padded ones.
    np.testing.assert_allclose(padded.map(jnp.sum).unpad(), x.sum(1), rtol=1e-6)
    assert padded.map(jnp.sum).dims == (-2, -1)


def test_map_puts_the_dimension_back_where_it_was():
    mesh = mesh_of(4)
    x = pad_to_split(jnp.asarray(X[:5].T), 1, "expert", mesh=mesh)  # [6,5]
    w = np.arange(12.0).reshape(6, 2)
    np.testing.assert_allclose(x.map(lambda column: column @ w).unpad(), (X[:5] @ w).T, rtol=1e-6)
    out = x.map(lambda column: {"sum": column.sum(), "outer": column[:, None] * column})
    np.testing.assert_allclose(out["sum"].unpad(), X[:5].sum(1), rtol=1e-6)
    assert out["outer"].shape == (6, 5, 6)
    np.testing.assert_allclose(
        x.map(lambda column, mean: column - mean, x.mean(0)).unpad(),
        X[:5].T - X[:5].mean(1),
        atol=1e-6,
    )


def test_a_dimension_that_divides_is_split_without_padding():
    x = pad_to_split(jnp.asarray(X), 1, "expert", mesh=mesh_of(2))
    assert isinstance(x, Padded)
    np.testing.assert_array_equal(x.padded, X)
    np.testing.assert_array_equal(x.unpad(), X)
    assert x.padded.sharding.spec == jax.P(None, "expert")


def test_other_dimensions_stay_split():
    mesh = make_mesh({"data": 2, "expert": 4})
    x = split(jnp.asarray(X.T), 0, "data", mesh=mesh)
    assert pad_to_split(x, 1, "expert", mesh=mesh).padded.sharding.spec == jax.P("data", "expert")


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("padding is local", lambda x: x, {}),
        ("sum over the split dimension", lambda x: x.map(jnp.exp).sum(0), {"all-reduce": 1}),
        ("sum over another", lambda x: x.sum(1), {}),
        ("maximum", lambda x: x.max(), {"all-reduce": 1}),
        # One for the maximum, one for the sum.
        ("softmax over the split dimension", lambda x: x.softmax(0), {"all-reduce": 2}),
        ("map", lambda x: x.map(lambda row: row @ jnp.ones((6, 3))), {}),
        ("contraction", lambda x: x.filled().T @ x.filled(), {"all-reduce": 1}),
        # JAX has no uneven shards to keep.
        ("true shape", lambda x: x.unpad(), {"all-gather": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_collectives(name, function, expected):
    mesh = mesh_of(8)
    compiled = jax.jit(lambda x: function(pad_to_split(x, 0, "expert", mesh=mesh))).lower(X)
    expect_collectives(compiled.compile(), NONE | expected)


def test_explicit_axes():
    with jax.set_mesh(jax.make_mesh((2, 4), ("data", "expert"))):

        @jax.jit
        def run(x):
            padded = pad_to_split(x, 1, "expert")
            return padded.softmax(1).unpad(), padded.padded, padded.map(jnp.sum).sum()

        weights, raw, total = run(jax.reshard(jnp.asarray(X[:6].T[:, :5]), jax.P("data")))
        assert raw.sharding.spec == jax.P("data", "expert")
        np.testing.assert_allclose(weights, softmax(X[:5].T, 1), rtol=1e-6)
        np.testing.assert_allclose(total, X[:5].sum(), rtol=1e-6)


def test_one_device_needs_no_padding():
    program = """
import jax.numpy as jnp
from gshard_annotate.uneven import pad_to_split
x = pad_to_split(jnp.arange(15.0), 0, "expert")
print(x.padded.shape, x.sum(), x.map(jnp.sqrt).unpad().shape)
"""
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout == "(15,) 105.0 (15,)\n", done.stderr


def test_in_manual_code():
    mesh = make_mesh({"data": 2, "expert": 4})

    def outer(x, over):
        def inner(x):
            return pad_to_split(x, 1, over).softmax(1).unpad()

        return manual(inner, jax.P("data"), jax.P("data"), axes=["data"], mesh=mesh)(x)

    x = X[:6, :5]
    np.testing.assert_allclose(jax.jit(lambda x: outer(x, "expert"))(x), softmax(x, 1), rtol=1e-6)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        outer(x, "data")
    assert str(caught.value) == (
        "pad_to_split: x f32[3,5] cannot be padded to split over mesh axis 'data', which is manual "
        "here: inside manual code x is already one device's part; pad it outside"
    )


MESSAGE = (
    "f32[15,6] padded to [16, 6] is no array: its padding would count. Use its sum, max, min, "
    "mean, logsumexp, softmax or map(fn); filled(0) to contract; unpad() for the true shape; "
    ".padded for the raw array"
)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: 1 - x,
        lambda x: jnp.ones(6) * x,
        lambda x: np.ones(6) * x,
        lambda x: np.float32(2) * x,
        lambda x: x @ jnp.ones(6),
        lambda x: -x,
        lambda x: x == 0,
        lambda x: x < 0,
        lambda x: x[0],
        lambda x: len(x),
        lambda x: list(x),
        lambda x: float(x),
        lambda x: bool(x),
        lambda x: np.asarray(x),
        lambda x: np.sum(x),
        lambda x: np.mean(x),
        lambda x: np.exp(x),
        lambda x: jnp.asarray(x),
        lambda x: jnp.sum(x),
        lambda x: jnp.exp(x),
        lambda x: jnp.where(x, 1, 2),
        lambda x: jnp.einsum("ab->a", x),
        lambda x: jax.nn.softmax(x),
        lambda x: sum([x, x]),
    ],
)
def test_is_no_array(use):
    x = pad_to_split(jnp.asarray(X), 0, "expert", mesh=mesh_of(2))
    with pytest.raises(TypeError) as caught:
        use(x)
    assert str(caught.value) == MESSAGE
    with pytest.raises((TypeError, ValueError)):  # JAX's own words
        jax.lax.add(x, 1.0)
    with pytest.raises(TypeError, match=r"^unhashable type: 'Padded'$"):
        hash(x)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x, mesh: pad_to_split(x, 2, "expert", mesh=mesh),
            ValueError,
            "pad_to_split: x f32[15,6] has no dimension 2; give one of -2 to 1",
        ),
        (
            lambda x, mesh: pad_to_split(x, 0, "exprt", mesh=mesh),
            ValueError,
            "pad_to_split: dimension 0 of x f32[15,6] cannot be split over mesh axis 'exprt': "
            "the mesh has expert=2; did you mean 'expert'?",
        ),
        (
            lambda x, mesh: pad_to_split(x, [0, 1], ["expert", "expert"], mesh=mesh),
            ValueError,
            "pad_to_split: mesh axis 'expert' splits dimensions 0 and 1 of x f32[15,6]; a mesh "
            "axis can split one dimension only, replicate the other",
        ),
        (
            lambda x, mesh: pad_to_split(x, [0, 0], [None], mesh=mesh),
            ValueError,
            "pad_to_split: 3 faults:\n"
            "  dims [0, 0] name a dimension of x f32[15,6] twice\n"
            "  2 dims [0, 0] but 1 mesh axes [None]; give one per dim\n"
            "  mesh_axis is [None]; name the mesh axis to split over",
        ),
        (
            lambda x, mesh: pad_to_split(x, 0, "expert", mesh=mesh).sum(2),
            ValueError,
            "Padded: there is no axis 2 in f32[15,6]; give -2 to 1",
        ),
        (
            lambda x, mesh: pad_to_split(x, 0, "expert", mesh=mesh).map(jnp.add, x),
            TypeError,
            "Padded.map: operands are of type Padded, ArrayImpl was given; let fn close over "
            "other arrays",
        ),
        (
            lambda x, mesh: pad_to_split(x, 0, "expert", mesh=mesh).map(
                jnp.add, pad_to_split(x[:14], 0, "expert", mesh=mesh)
            ),
            ValueError,
            "Padded.map: operands are padded differently: (15,) to (16,) and (14,) to (14,); pad "
            "them alike",
        ),
        (
            lambda x, mesh: pad_to_split(x.astype(int), 0, "expert", mesh=mesh).softmax(),
            TypeError,
            "Padded.softmax: i32[15,6] is not floating; use map to convert",
        ),
        (
            lambda x, mesh: pad_to_split(x.astype(int), 0, "expert", mesh=mesh).filled(-jnp.inf),
            ValueError,
            "Padded: -inf is no int32; give a value of this type",
        ),
        (
            lambda x, mesh: pad_to_split({"x": x}, 0, "expert", mesh=mesh),
            TypeError,
            "pad_to_split: x is a dict; give a jax.Array (for a tree of them: annotate_tree)",
        ),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error) as caught:
        call(jnp.asarray(X), mesh_of(2))
    assert str(caught.value) == message
