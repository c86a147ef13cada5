"""What the compiler makes of programs that are annotated: right numbers, and which collectives.

Each case runs on eight devices and on one; the numbers have to agree, forward and in the gradient,
and the compiled programs have to contain the collectives that the table says and no others. The
tables follow GShard (arXiv 2006.16668), section 3.3: einsums, then other operators. Shapes divide;
for those that do not, see test_uneven.py.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from gshard_annotate import expect_collectives, make_mesh, mesh_split, replicate, split

AG, AR, A2A, CP, RS = KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
)
D, E = "data", "expert"  # of sizes 2 and 4


class Case(NamedTuple):
    """A function, the mesh axes of its inputs' and output's dimensions, and what is compiled.

    An array is annotated by a tuple with an entry per dimension that matters, () for whole on every
    device, or None for not at all. `backward` is for the gradient of all inputs; None: there is
    none.
    """

    function: Callable
    shapes: Sequence[tuple[int, ...]]
    inputs: Sequence[tuple | None]
    output: tuple | None
    forward: dict[str, int]
    backward: dict[str, int] | None


def place(x, axes, mesh):
    if axes is None:
        return x
    if not any(axes):
        return replicate(x, mesh=mesh)
    dims = [dim for dim, each in enumerate(axes) if each]
    return mesh_split(x, dims, [axes[dim] for dim in dims], mesh=mesh)


def check(case, mesh, tolerance=1e-6):
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape).astype(np.float32) for shape in case.shapes]
    arguments = tuple(range(1, len(arrays) + 1))

    def annotated(*xs):
        xs = [place(x, axes, mesh) for x, axes in zip(xs, case.inputs, strict=True)]
        return place(case.function(*xs), case.output, mesh)

    value = compare(annotated, case.function, arrays, mesh, case.forward, tolerance)
    if case.backward is None:
        return

    def gradient(function):
        return jax.grad(lambda ct, *xs: (function(*xs) * ct).sum(), arguments)

    arrays.insert(0, random.normal(size=value.shape).astype(np.float32))
    pair = gradient(annotated), gradient(case.function)
    compare(*pair, arrays, mesh, case.backward, 4 * tolerance)


def compare(annotated, plain, arrays, mesh, collectives, tolerance):
    """The same numbers, and what is compiled; returns the numbers of one device."""
    expected = jax.jit(plain)(*arrays)
    with jax.set_mesh(mesh):
        compiled = jax.jit(annotated).lower(*arrays).compile()
    jax.tree.map(
        lambda got, wanted: np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance),
        compiled(*arrays),
        expected,
    )
    expect_collectives(compiled, dict.fromkeys(KINDS, 0) | collectives)
    return expected


def split_inside(x, dim):
    """An annotation in the middle of a function; none in the run on one device."""
    return x if jax.sharding.get_abstract_mesh().empty else split(x, dim, E)


def einsum(equation):
    return lambda a, b: jnp.einsum(equation, a, b)


MATMUL = einsum("ij,jk->ik")
DISPATCH = einsum("gsec,gsm->egcm")
COMBINE = einsum("gsec,egcm->gsm")
MASK, TOKENS, SLOTS = (8, 6, 4, 3), (8, 6, 5), (4, 8, 3, 5)

EINSUMS = {
    "batch dimensions split alike": Case(
        einsum("bij,bjk->bik"), [(8, 3, 5), (8, 5, 6)], [(E,), (E,)], (E,), {}, {}
    ),
    "contracting dimension of both": Case(
        MATMUL, [(3, 8), (8, 5)], [(None, E), (E,)], (), {AR: 1}, {}
    ),
    # Reduced whole, then sliced: `sum_partials` is the way to a reduce-scatter on CPU devices.
    "contracting dimension of both, result split": Case(
        MATMUL, [(4, 8), (8, 5)], [(None, E), (E,)], (E,), {AR: 1}, {AG: 1}
    ),
    "contracting dimension of both, result not annotated": Case(
        MATMUL, [(3, 8), (8, 5)], [(None, E), (E,)], None, {AR: 1}, {}
    ),
    # The other is sliced only if something asks: what is split is gathered.
    "contracting dimension of one": Case(
        MATMUL, [(3, 8), (8, 5)], [(None, E), ()], (), {AG: 1}, {AG: 1}
    ),
    "non-contracting dimension of the left": Case(
        MATMUL, [(8, 3), (3, 5)], [(E,), ()], (E,), {}, {AR: 1}
    ),
    "non-contracting dimension of the right": Case(
        MATMUL, [(3, 5), (5, 8)], [(), (None, E)], (None, E), {}, {AR: 1}
    ),
    "non-contracting dimensions of both over two axes": Case(
        MATMUL, [(8, 3), (3, 4)], [(E,), (None, D)], (E, D), {}, {AR: 2}
    ),
    # One operand is gathered; the paper's loop of collective-permutes is not chosen at this size.
    "non-contracting dimensions of both over one axis, left kept": Case(
        MATMUL, [(8, 3), (3, 12)], [(E,), (None, E)], (E,), {AG: 1}, {AG: 1, AR: 1}
    ),
    "non-contracting dimensions of both over one axis, right kept": Case(
        MATMUL, [(8, 3), (3, 12)], [(E,), (None, E)], (None, E), {AG: 1}, {AG: 1, AR: 1}
    ),
    "non-contracting dimensions of both over one axis, none kept": Case(
        MATMUL, [(8, 3), (3, 12)], [(E,), (None, E)], (), {AG: 2}, {AG: 2}
    ),
    "non-contracting against contracting": Case(
        MATMUL, [(8, 12), (12, 5)], [(E,), (E,)], (E,), {AG: 1}, {AG: 1, AR: 1}
    ),
    "batch and contracting dimension over two axes": Case(
        einsum("bij,bjk->bik"), [(4, 3, 8), (4, 8, 6)], [(D, None, E), (D, E)], (D,), {AR: 1}, {}
    ),
    # Result wanted on another dimension than the one it is computed on: the paper's dispatch.
    "dispatch from groups to experts": Case(
        lambda mask, x: split_inside(DISPATCH(mask, x), 1),
        [MASK, TOKENS],
        [(E,), (E,)],
        (E,),
        {A2A: 1},
        {A2A: 1},
    ),
    # Without that annotation the wish for experts reaches the mask, and the tokens are gathered.
    "dispatch whose computed split is not annotated": Case(
        DISPATCH, [MASK, TOKENS], [(E,), (E,)], (E,), {AG: 1, A2A: 1}, {A2A: 1}
    ),
    # Over both axes one annotation is enough.
    "dispatch from groups over two axes": Case(
        DISPATCH, [MASK, TOKENS], [((D, E),), ((D, E),)], (E, D), {A2A: 1}, {A2A: 1}
    ),
    "combine from experts to groups": Case(
        COMBINE, [MASK, SLOTS], [(E,), (E,)], (E,), {A2A: 1}, {A2A: 2, AG: 1}
    ),
    "combine to groups over two axes": Case(
        COMBINE, [MASK, SLOTS], [((D, E),), (E, D)], ((D, E),), {A2A: 1}, {A2A: 2}
    ),
}


@pytest.mark.parametrize("name", EINSUMS)
def test_einsum(mesh, name):
    check(EINSUMS[name], mesh)


def plus_one(x):
    return x + 1


CHANGES = {
    "split to whole": Case(plus_one, [(8, 3)], [(E,)], (), {AG: 1}, {}),
    "whole to split": Case(plus_one, [(8, 3)], [()], (E,), {}, {AG: 1}),
    "another dimension": Case(plus_one, [(8, 4)], [(E,)], (None, E), {A2A: 1}, {A2A: 1}),
    "another order of devices": Case(plus_one, [(8, 4)], [((D, E),)], ((E, D),), {CP: 1}, {CP: 1}),
    "another axis": Case(plus_one, [(8, 4)], [(E,)], (D,), {CP: 1, AG: 1}, {CP: 1}),
    "one more axis": Case(plus_one, [(8, 4)], [(E,)], (E, D), {}, {AG: 1}),
    "one axis less": Case(plus_one, [(8, 4)], [(E, D)], (E,), {AG: 1}, {}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_split(mesh, name):
    check(CHANGES[name], mesh)


def convolve(stride=1, dilation=1, lhs_dilation=1, padding="SAME"):
    def run(x, kernel):
        return lax.conv_general_dilated(
            x,
            kernel,
            (stride,),
            padding,
            lhs_dilation=(lhs_dilation,),
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )

    return run


def with_fixed_kernel(convolution):
    kernel = np.random.default_rng(0).normal(size=(3, 3, 5)).astype(np.float32)
    return lambda x: convolution(x, kernel)


def windows(operation, initial, stride=1):
    def run(x):
        return lax.reduce_window(x, initial, operation, (1, 3), (1, stride), [(0, 0), (1, 1)])

    return run


def chosen(below, shape):
    return np.random.default_rng(0).integers(0, below, shape)


X, SPACE = [(8, 5)], [(2, 16, 3)]

OPERATORS = {
    "sum over the split dimension": Case(lambda x: x.sum(0), X, [(E,)], (), {AR: 1}, {}),
    "sum over another": Case(lambda x: x.sum(1), X, [(E,)], (E,), {}, {}),
    "mean of everything": Case(lambda x: x.mean(), X, [(E,)], (), {AR: 1}, {}),
    # The gradient also counts how many share the maximum.
    "maximum over the split dimension": Case(lambda x: x.max(0), X, [(E,)], (), {AR: 1}, {AR: 2}),
    # Value and place are gathered together, one per device.
    "argmax over the split dimension": Case(lambda x: x.argmax(0), X, [(E,)], (), {AG: 2}, None),
    # Maximum and sum.
    "softmax over the split dimension": Case(
        lambda x: jax.nn.softmax(x, 0), X, [(E,)], (E,), {AR: 2}, {AR: 3}
    ),
    "softmax over another": Case(lambda x: jax.nn.softmax(x, 1), X, [(E,)], (E,), {}, {}),
    "logsumexp over the split dimension": Case(
        lambda x: jax.nn.logsumexp(x, 0), X, [(E,)], (), {AR: 2}, {AR: 2}
    ),
    # No partitioning for what runs along the split dimension: gathered.
    "cumsum along the split dimension": Case(
        lambda x: x.cumsum(0), X, [(E,)], (E,), {AG: 1}, {AG: 1}
    ),
    "cumsum along another": Case(lambda x: x.cumsum(1), X, [(E,)], (E,), {}, {}),
    "sort along the split dimension": Case(
        lambda x: jnp.sort(x, 0), X, [(E,)], (E,), {AG: 1}, {AG: 2, AR: 1, CP: 1}
    ),
    "sort along another": Case(lambda x: jnp.sort(x, 1), X, [(E,)], (E,), {}, {}),
    "top-k of the split dimension": Case(
        lambda x: lax.top_k(x, 3)[0], [(5, 8)], [(None, E)], (), {AG: 1}, {AG: 1}
    ),
    # On CPU a call into a library that is not partitioned, though rows are independent; on a TPU
    # there is no collective.
    "top-k of another": Case(lambda x: lax.top_k(x, 3)[0], X, [(E,)], (E,), {AG: 1}, {AG: 1}),
    "slice of the split dimension": Case(
        lambda x: x[4:12], [(16, 5)], [(E,)], (E,), {CP: 2}, {CP: 2}
    ),
    "slice of the split dimension, odd start": Case(
        lambda x: x[1:13], [(16, 5)], [(E,)], (E,), {CP: 1}, {CP: 1}
    ),
    "slice with a stride that the part divides by": Case(
        lambda x: x[::2], [(16, 5)], [(E,)], (E,), {}, {}
    ),
    "slice of another dimension": Case(lambda x: x[:, 1:4], X, [(E,)], (E,), {}, {}),
    "slice at a computed place": Case(
        lambda x: lax.dynamic_slice_in_dim(x, jnp.int32(3), 4), X, [(E,)], (), {CP: 1, AG: 1}, {}
    ),
    "update of a slice": Case(
        lambda x, y: lax.dynamic_update_slice_in_dim(x, y, 3, 0),
        [(8, 5), (2, 5)],
        [(E,), ()],
        (E,),
        {AG: 1},
        {AG: 1, AR: 1, CP: 1},
    ),
    "pad of the split dimension": Case(
        lambda x: jnp.pad(x, [(1, 3), (0, 0)]), X, [(E,)], (E,), {CP: 1}, {CP: 1}
    ),
    "pad by whole parts": Case(
        lambda x: jnp.pad(x, [(4, 4), (0, 0)]), X, [(E,)], (E,), {CP: 2}, {CP: 2}
    ),
    # JAX's own padding of 15 to 16: local, and right because the padding is zero and summed.
    "pad to divide, in jit": Case(
        lambda x: split_inside(jnp.pad(x, [(0, 1), (0, 0)]), 0).sum(0),
        [(15, 5)],
        [()],
        (),
        {AR: 1},
        {AG: 1},
    ),
    "reverse of the split dimension": Case(lambda x: x[::-1], X, [(E,)], (E,), {CP: 1}, {CP: 1}),
    "reverse of another": Case(lambda x: x[:, ::-1], X, [(E,)], (E,), {}, {}),
    "roll of the split dimension": Case(
        lambda x: jnp.roll(x, 1, 0), X, [(E,)], (E,), {CP: 1}, {CP: 1, AR: 1}
    ),
    # Its pieces would begin in the middle of parts: gathered, backward exchanged.
    "concatenate along the split dimension": Case(
        lambda x, y: jnp.concatenate([x, y]), [(8, 5), (8, 5)], [(E,), (E,)], (E,), {AG: 2}, {CP: 4}
    ),
    "concatenate along another": Case(
        lambda x, y: jnp.concatenate([x, y], 1), [(8, 5), (8, 3)], [(E,), (E,)], (E,), {}, {}
    ),
    "reshape that keeps the split dimension first": Case(
        lambda x: x.reshape(24, 5), [(8, 3, 5)], [(E,)], (E,), {}, {}
    ),
    "reshape that cuts the split dimension": Case(
        lambda x: x.reshape(4, 2, 5), X, [(E,)], (E,), {}, {}
    ),
    # Elements of one part end up in many: gathered, where an all-to-all would do.
    "reshape that merges the split dimension into another": Case(
        lambda x: x.reshape(24, 5), [(3, 8, 5)], [(None, E)], (E,), {AG: 1}, {AG: 1}
    ),
    "transpose": Case(lambda x: x.T, X, [(E,)], (None, E), {}, {}),
    "gather along the split dimension": Case(lambda x: x[chosen(8, 6)], X, [(E,)], (), {AR: 1}, {}),
    "gather by split indices": Case(lambda x: x[chosen(5, 8)], [(5, 6)], [()], (E,), {}, {AR: 1}),
    "gather along another dimension": Case(
        lambda x: x[chosen(5, 6)], [(5, 8)], [(None, E)], (None, E), {}, {}
    ),
    "gather in each row": Case(
        lambda x: jnp.take_along_axis(x, chosen(5, (8, 3)), 1), X, [(E,)], (E,), {}, {}
    ),
    "scatter-add along the split dimension": Case(
        lambda x, y: x.at[chosen(8, 6)].add(y), [(8, 5), (6, 5)], [(E,), ()], (E,), {}, {AR: 1}
    ),
    "scatter-add in each row": Case(
        jax.vmap(lambda x, y: x.at[np.array([1, 1, 0])].add(y)),
        [(8, 5), (8, 3)],
        [(E,), (E,)],
        (E,),
        {},
        {},
    ),
    "convolution, batch split": Case(
        convolve(), [(8, 6, 3), (3, 3, 5)], [(E,), ()], (E,), {}, {AR: 1}
    ),
    "convolution, output features split": Case(
        convolve(), [(2, 6, 3), (3, 3, 8)], [(), (None, None, E)], (None, None, E), {}, {AR: 1}
    ),
    "convolution, input features split": Case(
        convolve(), [(2, 6, 8), (3, 8, 5)], [(None, None, E), (None, E)], (), {AR: 1}, {}
    ),
    # Halos: one collective-permute a side, one in all where the windows reach out on one side.
    "convolution, space split": Case(
        with_fixed_kernel(convolve()), SPACE, [(None, E)], (None, E), {CP: 2}, {CP: 2}
    ),
    "convolution, space split, stride": Case(
        with_fixed_kernel(convolve(stride=2)), SPACE, [(None, E)], (None, E), {CP: 1}, {CP: 1}
    ),
    "convolution, space split, dilation": Case(
        with_fixed_kernel(convolve(dilation=2)), SPACE, [(None, E)], (None, E), {CP: 2}, {CP: 2}
    ),
    "convolution, space split, stride and dilation": Case(
        with_fixed_kernel(convolve(stride=2, dilation=2)),
        SPACE,
        [(None, E)],
        (None, E),
        {CP: 2},
        {CP: 2},
    ),
    "convolution, space split, dilated input": Case(
        with_fixed_kernel(convolve(lhs_dilation=2, padding=[(1, 2)])),
        SPACE,
        [(None, E)],
        (None, E),
        {CP: 1},
        {CP: 1},
    ),
    # 14 outputs over 4: the result cannot stay split and is gathered.
    "convolution, space split, fewer outputs": Case(
        with_fixed_kernel(convolve(padding="VALID")),
        SPACE,
        [(None, E)],
        None,
        {CP: 1, AG: 1},
        {CP: 1},
    ),
    "maximum over windows": Case(
        windows(lax.max, -jnp.inf), [(3, 16)], [(None, E)], (None, E), {CP: 2}, None
    ),
    "maximum over windows, stride": Case(
        windows(lax.max, -jnp.inf, 2), [(3, 16)], [(None, E)], (None, E), {CP: 1}, {CP: 5}
    ),
    "sum over windows": Case(
        windows(lax.add, 0.0), [(3, 16)], [(None, E)], (None, E), {CP: 2}, {CP: 3}
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(mesh, name):
    check(OPERATORS[name], mesh, tolerance=2e-6)


# Two gradients that XLA partitions wrongly (jaxlib 0.10.2, with Shardy and without). They are here
# to be noticed when that changes; with halo_exchange they are right (test_halo.py).
WRONG = {
    # The all-reduce runs over all devices instead of those of 'expert' (for TPUs too): too large by
    # the size of the other mesh axes, here 2. Right on a mesh without others.
    "kernel of a convolution over split space": Case(
        convolve(), [(2, 16, 3), (3, 3, 5)], [(None, E), ()], (None, E), {CP: 2}, {CP: 4, AR: 1}
    ),
    # Windows that overlap across parts put their gradient into wrong places.
    "maximum over windows of stride 1": Case(
        windows(lax.max, -jnp.inf), [(3, 16)], [(None, E)], (None, E), {CP: 2}, {CP: 6}
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_gradient_that_the_compiler_gets_wrong(mesh, name):
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(WRONG[name], mesh)


def test_kernel_gradient_is_right_where_no_other_mesh_axis_is():
    mesh = make_mesh({E: 4}, devices=jax.devices()[:4])
    check(WRONG["kernel of a convolution over split space"], mesh, tolerance=2e-6)
