"""Halos: each part with its neighbours' elements, and windows over a split dimension."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gshard_annotate import expect_collectives, make_mesh
from gshard_annotate.halo import halo_exchange
from gshard_annotate.manual import manual

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
SPLIT = jax.P(None, "expert")
MODES = {"zero": {"mode": "constant"}, "edge": {"mode": "edge"}, "wrap": {"mode": "wrap"}}
MODES[-5] = {"mode": "constant", "constant_values": -5}


def exchange(mesh, axes="expert", **options):
    def grown(x):
        return halo_exchange(x, 1, axes, **options)

    spec = jax.P(None, axes)
    return jax.jit(manual(grown, [spec], spec, mesh=mesh))


@pytest.mark.parametrize("boundary", MODES)
@pytest.mark.parametrize(
    ("before", "after", "hops"), [(1, 1, 2), (2, 0, 1), (0, 3, 2), (0, 0, 0), (9, 11, 6)]
)
def test_parts_of_the_padded_whole(mesh, boundary, before, after, hops):
    x = np.arange(1, 17, dtype=np.float32).reshape(2, 8)
    run = exchange(mesh, before=before, after=after, boundary=boundary)
    padded = np.pad(x, [(0, 0), (before, after)], **MODES[boundary])
    parts = [padded[:, at : at + 2 + before + after] for at in range(0, 8, 2)]
    np.testing.assert_array_equal(run(x), np.concatenate(parts, 1))
    if boundary == "wrap" and before == 9:
        hops = 5  # of eleven: four hops come back to the device, and equal ones are merged
    expected = dict.fromkeys(KINDS, 0) | {"collective-permute": hops}
    expect_collectives(run.lower(x).compile(), expected)


def test_over_two_mesh_axes_and_a_negative_dimension(mesh):
    x = np.arange(16).reshape(16, 1)

    def grown(x):
        return halo_exchange(x, -2, ("data", "expert"), 1, 0, boundary="edge")

    y = manual(grown, [jax.P(("data", "expert"))], jax.P(("data", "expert")), mesh=mesh)(x)
    before = np.maximum(np.arange(0, 16, 2) - 1, 0)
    np.testing.assert_array_equal(y[::3, 0], before)


@pytest.mark.parametrize("axes", [("a", "b"), ("b", "a"), ("c", "a"), ("c", "b", "a")])
@pytest.mark.parametrize("boundary", ["zero", "wrap"])
def test_several_axes_in_any_order(axes, boundary):
    mesh = make_mesh({"a": 2, "b": 2, "c": 2})
    parts = 2 ** len(axes)
    x = np.arange(1, 2 * parts + 1).reshape(1, -1)
    y = exchange(mesh, axes, before=1, after=0, boundary=boundary)(x)
    padded = np.pad(x, [(0, 0), (1, 0)], **MODES[boundary])
    expected = [padded[:, at : at + 3] for at in range(0, 2 * parts, 2)]
    np.testing.assert_array_equal(y, np.concatenate(expected, 1))


@pytest.mark.parametrize("boundary", MODES)
def test_gradients(mesh, boundary):
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(4, 7)), jnp.float32)
    run = exchange(mesh, before=3, after=2, boundary=boundary)

    def whole(x):
        padded = jnp.pad(x, [(0, 0), (3, 2)], **MODES[boundary])
        return sum((weights[i] * padded[0, 2 * i : 2 * i + 7]).sum() for i in range(4))

    grad = jax.grad(lambda x: (run(x).reshape(4, 7) * weights).sum())(x)
    np.testing.assert_allclose(grad, jax.grad(whole)(x), rtol=1e-5, atol=1e-6)


def test_integers_and_bool(mesh):
    x = np.arange(8).reshape(1, 8)
    y = exchange(mesh, before=0, after=1, boundary=7)(x)
    np.testing.assert_array_equal(y, [[0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 7]])
    y = exchange(mesh, before=0, after=1, boundary=True)(x > 3)
    np.testing.assert_array_equal(y[0, 6:], [True] * 6)


def ceil(a, b):
    return -(-a // b)


def split_convolution(x, kernel, mesh, padding, stride, dilation, lhs_dilation):
    """A 1-D convolution of [batch, space, in] whose space is split over 'expert'.

    Each device computes the outputs that begin in its own part; the last ones have some too many.
    """
    size, low = x.shape[1] // mesh.shape["expert"], padding[0]
    window = (kernel.shape[0] - 1) * dilation + 1
    own = size * lhs_dilation  # of the dilated space; the device's outputs are own / stride
    assert own % stride == 0
    before = ceil(low, lhs_dilation)
    after = max(0, ceil(own - stride + window - low - own, lhs_dilation))

    def part(x, kernel):
        x = halo_exchange(x, 1, "expert", before, after)
        length = (x.shape[1] - 1) * lhs_dilation + 1
        first = before * lhs_dilation - low
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride,),
            [(-first, own - stride + window + first - length)],
            lhs_dilation=(lhs_dilation,),
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )

    y = manual(part, [SPLIT, None], SPLIT, mesh=mesh)(x, kernel)
    whole = (x.shape[1] - 1) * lhs_dilation + 1 + sum(padding)
    return y[:, : (whole - window) // stride + 1]


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize(
    ("stride", "dilation", "lhs_dilation", "width"),
    [(1, 1, 1, 3), (2, 1, 1, 3), (1, 2, 1, 3), (2, 2, 1, 4), (1, 1, 2, 3), (1, 2, 2, 4)],
)
def test_convolution_over_split_space(mesh, padding, stride, dilation, lhs_dilation, width):
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.normal(keys[0], (2, 16, 3))
    kernel = jax.random.normal(keys[1], (width, 3, 5))
    window = (width - 1) * dilation + 1
    length = (16 - 1) * lhs_dilation + 1
    total = max(0, (ceil(length, stride) - 1) * stride + window - length)
    pads = (0, 0) if padding == "VALID" else (total // 2, total - total // 2)

    def whole(x, kernel):
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride,),
            [pads],
            lhs_dilation=(lhs_dilation,),
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )

    def parts(x, kernel):
        return split_convolution(x, kernel, mesh, pads, stride, dilation, lhs_dilation)

    np.testing.assert_allclose(jax.jit(parts)(x, kernel), whole(x, kernel), atol=1e-5)
    grads = [
        jax.jit(jax.grad(lambda x, kernel, f=f: (f(x, kernel) ** 2).sum(), (0, 1)))(x, kernel)
        for f in (parts, whole)
    ]
    for got, expected in zip(*grads, strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-4)


@pytest.mark.parametrize("stride", [1, 2])
def test_maximum_over_windows_of_split_space(mesh, stride):
    x = jax.random.normal(jax.random.key(0), (3, 16))

    def whole(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, stride), [(0, 0), (1, 1)])

    def part(x):
        x = halo_exchange(x, 1, "expert", 1, 1, boundary=-jnp.inf)
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, stride), "VALID")

    parts = jax.jit(manual(part, [SPLIT], SPLIT, mesh=mesh))
    np.testing.assert_array_equal(parts(x), whole(x))
    expected = dict.fromkeys(KINDS, 0) | {"collective-permute": 2}
    expect_collectives(parts.lower(x).compile(), expected)


def test_one_part_needs_no_neighbours():
    mesh = make_mesh({"expert": 1}, devices=jax.devices()[:1])
    x = np.arange(4).reshape(1, 4)
    y = exchange(mesh, before=1, after=2, boundary="wrap")(x)
    np.testing.assert_array_equal(y, [[3, 0, 1, 2, 3, 0, 1]])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            (1, "exprt"),
            {},
            "there is no mesh axis 'exprt': the mesh has data=2, expert=4; did you mean 'expert'?",
        ),
        (
            (1, "data"),
            {},
            "mesh axis 'data' is not manual here, but ('expert',); name it in the `axes` of "
            "gshard_annotate.manual",
        ),
        ((1, None), {}, "mesh_axis is empty; give one of ('expert',)"),
        (
            (1, ("expert", "expert")),
            {},
            "mesh axis 'expert' stands twice in ('expert', 'expert'); name it once",
        ),
        (
            (2, "expert", -1, -2),
            {"boundary": "zeros"},
            "4 faults:\n"
            "  x f32[1,2] has no dimension 2; give one of -2 to 1\n"
            "  before is -1; it must be an integer of 0 or more\n"
            "  after is -2; it must be an integer of 0 or more\n"
            "  boundary is 'zeros'; give one of 'zero', 'edge', 'wrap', or a number; "
            "did you mean 'zero'?",
        ),
    ],
)
def test_wrong_arguments(mesh, arguments, options, message):
    def grown(x):
        return halo_exchange(x, *arguments, **options)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        manual(grown, [SPLIT], SPLIT, axes=["expert"], mesh=mesh)(jnp.ones((1, 8)))
    assert str(caught.value) == f"halo_exchange: {message}"


def test_a_boundary_that_the_type_cannot_hold(mesh):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        exchange(mesh, boundary=0.5)(np.arange(8).reshape(1, 8))
    assert str(caught.value) == "halo_exchange: 0.5 is no int32; give a value of this type"


def test_outside_of_manual_code(mesh):
    message = (
        "halo_exchange: not inside manual code; call it in a function wrapped by "
        "gshard_annotate.manual"
    )
    for function in (halo_exchange, jax.jit(halo_exchange, static_argnums=(1, 2))):
        with jax.set_mesh(mesh), pytest.raises(ValueError) as caught:  # noqa: PT011
            function(jnp.ones((2, 8)), 1, "expert")
        assert str(caught.value) == message
