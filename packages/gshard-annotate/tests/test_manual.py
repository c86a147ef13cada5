"""Per-device code: the same numbers as without, checked before JAX traces it."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gshard_annotate import Rules, annotate, expect_collectives, make_mesh, rules_scope, split
from gshard_annotate.manual import manual
from gshard_annotate.summands import sum_partials

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
NONE = dict.fromkeys(KINDS, 0)
P = jax.P

X = np.arange(8 * 12, dtype=np.float32).reshape(8, 12) / 50
W = np.arange(12 * 4, dtype=np.float32).reshape(12, 4) / 20 - 1
RULES = Rules((("batch", ("data", "expert")), ("mlp", "expert"), ("embed", None)))


def product(x, w):
    return lax.psum(jnp.tanh(x) @ w, "expert")


def split_product(mesh, **options):
    """tanh(X) @ W with rows over 'data' and the contracting dimension over 'expert'."""
    return manual(product, [P("data", "expert"), P("expert")], P("data"), mesh=mesh, **options)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_parts_in_and_whole_arrays_out(mesh, wrap):
    shapes = []

    def fn(x, w):
        shapes.append((x.shape, w.shape))
        return product(x, w)

    run = wrap(manual(fn, [P("data", "expert"), P("expert")], P("data"), mesh=mesh))
    y = run(X, W)
    np.testing.assert_allclose(y, np.tanh(X) @ W, atol=1e-6)
    assert shapes[0] == ((4, 3), (3, 4))
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, P("data")), 2)


def test_gradients_scan_and_vmap(mesh):
    run = split_product(mesh)

    def loss(f, x, w):
        def step(x, scale):
            return jnp.tile(f(x * scale, w), (1, 3)), ()

        x, _ = lax.scan(jax.checkpoint(step), x, jnp.array([1.0, 0.5]))
        return (x**2).sum()

    def whole(x, w):
        return jnp.tanh(x) @ w

    grads = [jax.jit(jax.grad(lambda x, w, f=f: loss(f, x, w), (0, 1)))(X, W) for f in (run, whole)]
    for got, expected in zip(*grads, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    stacked = np.stack([X, -X, 2 * X])
    got = jax.jit(jax.vmap(run, (0, None)))(stacked, W)
    np.testing.assert_allclose(got, np.tanh(stacked) @ W, rtol=1e-5, atol=1e-6)


def test_gradient_of_a_replicated_argument_is_summed(mesh):
    def fn(x, w):
        return x @ w

    run = manual(fn, [P(("data", "expert")), None], P(("data", "expert")), mesh=mesh)
    grad = jax.jit(jax.grad(lambda w: run(X, w).sum()))
    np.testing.assert_allclose(grad(W), jnp.ones((8, 4)).T.dot(X).T, rtol=1e-6)
    expect_collectives(grad.lower(W).compile(), NONE | {"all-reduce": 1})


def test_logical_names_mean_what_the_rules_say(mesh):
    def fn(tree, x):
        return {"y": x @ tree["w"], "rows": x.sum(1)}

    in_axes = [{"w": ("embed", None), "unused": None}, ("batch", "embed")]
    out_axes = {"y": ("batch", None), "rows": ("batch",)}
    tree = {"w": W, "unused": np.zeros(3)}
    with rules_scope(RULES, mesh):
        y = manual(fn, in_axes, out_axes)(tree, X)
    spec = jax.NamedSharding(mesh, P(("data", "expert")))
    np.testing.assert_allclose(y["y"], X @ W, atol=1e-5)
    np.testing.assert_allclose(y["rows"], X.sum(1), rtol=1e-6)
    assert y["y"].sharding.is_equivalent_to(spec, 2)
    other = manual(
        lambda x: x * 2,
        ("batch", "mlp"),
        ("batch", None),
        rules=RULES.replace(batch="data", mlp=None),
        mesh=mesh,
    )(X)
    assert other.sharding.is_equivalent_to(jax.NamedSharding(mesh, P("data")), 2)


def test_annotations_over_axes_left_to_the_compiler(mesh):
    def fn(x, w):
        assert x.shape == (8, 3)
        x = split(x, 0, "data", mesh=mesh)
        return lax.psum(jnp.tanh(x) @ w, "expert")

    run = jax.jit(manual(fn, [P(None, "expert"), P("expert")], None, axes=["expert"], mesh=mesh))
    y = run(X, W)
    np.testing.assert_allclose(y, np.tanh(X) @ W, atol=1e-6)
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, P("data")), 2)
    expect_collectives(run.lower(X, W).compile(), NONE | {"all-reduce": 1})
    grad = jax.jit(jax.grad(lambda w: (run(X, w) ** 2).sum()))(W)
    expected = jax.grad(lambda w: ((np.tanh(X) @ w) ** 2).sum())(W)
    np.testing.assert_allclose(grad, expected, rtol=1e-5, atol=1e-4)


def test_names_inside_split_over_the_other_axes_and_have_sizes_of_their_own(mesh):
    def fn(x):
        assert x.shape == (2, 12)
        return annotate(x, "batch", "embed") * 2

    @jax.jit
    def run(x):
        with rules_scope(RULES, mesh):
            x = annotate(x, "batch", "embed")
            y = manual(fn, ("batch", "embed"), ("batch", "embed"), axes=("expert",))(x)
            return annotate(y, "batch", "embed")

    np.testing.assert_array_equal(run(X), X * 2)


def test_annotation_over_a_manual_axis_is_refused(mesh):
    def fn(x):
        return split(x, 1, "expert", mesh=mesh)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        manual(fn, P("expert"), P("expert"), axes=["expert"], mesh=mesh)(X)
    assert str(caught.value) == (
        "split: dimension 1 of x f32[2,12] cannot be split over mesh axis 'expert', which is "
        "manual here: inside shard_map x is already one device's part; annotate over 'data', or "
        "outside of it"
    )


def test_nested(mesh):
    def inner(x):
        assert x.shape == (4, 3)
        return lax.psum(x, "data")

    def outer(x):
        assert x.shape == (8, 3)
        return manual(inner, P("data"), None, axes=["data"], mesh=mesh)(x)

    y = jax.jit(manual(outer, P(None, "expert"), P(None, "expert"), axes=["expert"], mesh=mesh))(X)
    np.testing.assert_allclose(y, X[:4] + X[4:], rtol=1e-6)


@pytest.mark.parametrize("axes", [None, ("expert",)])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_explicit_axes(axes, wrap):
    """Arguments that lie otherwise are moved, as on Auto axes."""
    mesh = jax.make_mesh((2, 4), ("data", "expert"))

    def fn(x, w):
        return lax.psum(x @ w, "expert")

    run = manual(fn, [P(None, "expert"), P("expert")], None, axes=axes)
    with jax.set_mesh(mesh):
        x = jax.reshard(jnp.asarray(X), P("data"))
        np.testing.assert_allclose(wrap(run)(x, W), X @ W, atol=1e-5)
        grad = wrap(jax.grad(lambda w: run(x, w).sum()))(jnp.asarray(W))
        np.testing.assert_allclose(grad, np.ones((4, 8)).dot(X).T, rtol=1e-5)
    np.testing.assert_allclose(
        manual(fn, [P(None, "expert"), P("expert")], None, axes=axes, mesh=mesh)(X, W),
        X @ W,
        atol=1e-5,
    )


def test_explicit_axes_that_jit_does_not_know():
    mesh = jax.make_mesh((2, 4), ("data", "expert"))
    message = (
        "manual: mesh axes ('data', 'expert') are Explicit, and jit does not know their mesh; call "
        "the jitted function under `with jax.set_mesh(mesh):`, or build the mesh with "
        "gshard_annotate.make_mesh, whose axes are Auto"
    )
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        jax.jit(manual(lambda x: x, P("data"), P("data"), mesh=mesh))(X)
    assert str(caught.value) == message


def test_one_device_needs_no_mesh():
    program = """
import jax, jax.numpy as jnp
from gshard_annotate import split
from gshard_annotate.halo import halo_exchange
from gshard_annotate.manual import manual
from gshard_annotate.summands import sum_partials
P = jax.P
x = jnp.arange(6.0).reshape(2, 3)
run = manual(lambda x: 2 * jax.lax.psum(x, "rows") * jax.lax.axis_size("depth"), P("rows"), None,
             axes=["rows", "depth"])
print(jax.jit(run)(x).tolist())
rows = ("batch", None)
print(manual(lambda x: split(x, 0, "data"), rows, rows, axes=["expert"])(x).shape)
print(sum_partials(lambda x: x.sum(0), "expert", P("expert"))(x).tolist())
print(manual(lambda x: halo_exchange(x, 1, "expert"), P(None, "expert"), P(None, "expert"))(x)[0])
try:
    manual(lambda x: x, P(None, None, "rows"), P())(x)
except ValueError as error:
    print(error)
"""
    environment = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.splitlines() == [
        "[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]",
        "(2, 3)",
        "[3.0, 5.0, 7.0]",
        "[0. 0. 1. 2. 0.]",
        "manual: x f32[2,3] has 2 dimensions, but P(None, None, 'rows') has 3 entries; give one "
        "each",
    ], done.stderr


def whole_result(x, w):
    return x @ w


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"in_axes": [P("data"), P(None, "data")], "out_axes": None},
            "the result f32[4,2] may differ between the devices of mesh axis 'data', but out_axes "
            "says it is the same on all; reduce it with jax.lax.psum or pmean, or split a "
            "dimension over 'data'",
        ),
        (
            {
                "in_axes": [
                    {"a": P("data", ("expert", "data")), "b": P("exprt")},
                    P(None, None, "x"),
                ]
            },
            "4 faults:\n"
            "  mesh axis 'data' splits dimensions 0 and 1 of x/a f32[8,12]; a mesh axis can split "
            "one dimension only, replicate the other\n"
            "  dimension 1 of x/a f32[8,12] cannot be split over mesh axes ('expert', 'data') of "
            "size 8 (12 % 8 = 4); pad it to 16 or use an axis of size 1, 2, 3, 4, 6 or 12\n"
            "  dimension 0 of x/b f32[8,12] cannot be split over mesh axis 'exprt': the mesh has "
            "data=2, expert=4; did you mean 'expert'?\n"
            "  w f32[12,4] has 2 dimensions, but P(None, None, 'x') has 3 entries; give one each",
        ),
        (
            {"in_axes": [("batch", "embd"), ("mlp",)]},
            "2 faults:\n"
            "  x f32[8,12]: no rule for logical name 'embd'; did you mean 'embed'? (rules: batch, "
            "mlp, embed)\n"
            "  w f32[12,4] has 2 dimensions but 1 name ('mlp',); give one per dimension (None: "
            "not split)",
        ),
        (
            {"in_axes": ["data", None]},
            "x f32[8,12] cannot be split as 'data'; give a PartitionSpec, a tuple of logical "
            "names, or None",
        ),
        (
            {"in_axes": [P("expert"), None], "axes": ["data"]},
            "dimension 0 of x f32[8,12] cannot be split over mesh axis 'expert': axes to be manual "
            "are ('data',); add it to them, or leave it to annotations",
        ),
        (
            {"axes": ["dat", "expert"]},
            "there is no mesh axis 'dat' to make manual: the mesh has data=2, expert=4; did you "
            "mean 'data'?",
        ),
        ({"axes": []}, "no mesh axis is left to make manual"),
        (
            {"in_axes": [None]},
            "in_axes has 1 entries, but 2 arguments are given; give one per argument",
        ),
        (
            {"out_axes": P(None, None, "data")},
            "the result f32[8,4] has 2 dimensions, but P(None, None, 'data') has 3 entries; give "
            "one each",
        ),
        (
            {"out_axes": P("exprt")},
            "dimension 0 of the result cannot be split over mesh axis 'exprt': the mesh has "
            "data=2, expert=4; did you mean 'expert'?",
        ),
    ],
)
def test_wrong_arguments(mesh, options, message):
    options = {"in_axes": None, "out_axes": None, "rules": RULES, "mesh": mesh} | options

    def fn(x, w):
        return x @ w if not isinstance(x, dict) else x["a"]

    x = {"a": X, "b": X} if isinstance(next(iter(options["in_axes"] or [None])), dict) else X
    for call in (manual(fn, **options), jax.jit(manual(fn, **options))):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
            call(x, W)
        assert str(caught.value) == f"manual: {message}"


def test_entries_of_another_structure(mesh):
    with pytest.raises(
        ValueError, match=r"^manual: in_axes does not have the structure of the arg"
    ):
        manual(lambda x: x, [{"b": None}], None, mesh=mesh)({"a": X})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("scatter", [None, 0, 1])
def test_product_over_a_split_contracting_dimension_is_one_reduction(mesh, scatter, dtype):
    x, w = (np.round(a * 10).astype(dtype) for a in (X, W))
    entries = [P(None, "expert"), P("expert")]
    run = jax.jit(sum_partials(jnp.matmul, "expert", entries, scatter=scatter, mesh=mesh))
    y = run(x, w)
    assert y.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(y, np.float64),
        x.astype(float) @ w.astype(float),
        rtol=1e-2 if dtype != "int32" else 0,
    )
    spec = P() if scatter is None else P(*[None] * scatter, "expert")
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), 2)
    kind = "all-reduce" if scatter is None else "reduce-scatter"
    expect_collectives(run.lower(x, w).compile(), NONE | {kind: 1})


def test_sum_over_two_axes_while_the_compiler_keeps_a_third():
    mesh = make_mesh({"data": 2, "expert": 2, "model": 2})
    entries = [P(None, ("expert", "model")), P(("expert", "model"))]
    run = sum_partials(jnp.matmul, ("expert", "model"), entries, scatter=1, mesh=mesh)

    @jax.jit
    def loss(x, w):
        x = split(x, 0, "data", mesh=mesh)
        return (run(x, w) ** 2).sum()

    value, grads = jax.value_and_grad(loss, (0, 1))(X, W)
    expected, expected_grads = jax.value_and_grad(lambda x, w: ((x @ w) ** 2).sum(), (0, 1))(X, W)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for got, want in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("fn", "entries", "options", "message"),
    [
        (
            lambda x: {"a": x},
            [P("data")],
            {},
            "the result/a f32[4,12] is the same on all devices of mesh axis 'expert', its sum "
            "would count it 4 times; split an argument over 'expert'",
        ),
        (
            lambda x: x,
            [P("expert")],
            {"scatter": 1},
            "dimension 1 of the result f32[2,10] cannot be split over mesh axis 'expert' of size 4 "
            "(10 % 4 = 2); pad it to 12 or use an axis of size 1, 2, 5 or 10",
        ),
        (
            lambda x: x,
            [P("expert")],
            {"scatter": 2},
            "the result f32[2,10] has no dimension 2 to scatter; give 0 to 1",
        ),
        (
            lambda x: x,
            [P("expert")],
            {"scatter": -1},
            "scatter is -1; give a dimension, counted from 0",
        ),
    ],
)
def test_wrong_summands(mesh, fn, entries, options, message):
    mesh_axis = "expert"
    if "data" in entries[0]:
        mesh_axis, x = ("data", "expert"), X
    else:
        x = X[:, :10]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        sum_partials(fn, mesh_axis, entries, mesh=mesh, **options)(x)
    assert str(caught.value) == f"sum_partials: {message}"
