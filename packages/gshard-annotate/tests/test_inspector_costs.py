"""FLOPs and bytes of compiled programs, against hand counts and XLA's own."""

import jax
import jax.numpy as jnp
import pytest

from gshard_annotate.inspector.chips import Chip
from gshard_annotate.inspector.costs import count_work
from gshard_annotate.inspector.flow import Flow
from gshard_annotate.inspector.hlo import parse
from gshard_annotate.inspector.instruction_costs import Counter
from gshard_annotate.inspector.loops import runs


def compiled(function, *shapes, dtype=jnp.float32):
    return jax.jit(function).lower(*(jax.ShapeDtypeStruct(s, dtype) for s in shapes)).compile()


def work(program, chip=None, platform="cpu"):
    parsed = parse(program if isinstance(program, str) else program.as_text())
    return count_work(Flow(parsed, {}), runs(parsed), chip, platform)


def test_a_product_is_two_operations_per_multiply_add():
    product = compiled(jnp.dot, (3, 5), (5, 7))
    assert work(product).flops == 2 * 3 * 5 * 7 == product.cost_analysis()["flops"]
    assert work(product).bytes_accessed == 4 * (15 + 35 + 21)
    assert work(product).bytes_accessed == product.cost_analysis()["bytes accessed"]


@pytest.mark.parametrize(
    ("einsum", "left", "right", "multiply_adds"),
    [
        ("bmk,bkn->bmn", (2, 3, 5), (2, 5, 7), 2 * 3 * 5 * 7),
        ("gsec,gsm->egcm", (2, 3, 4, 5), (2, 3, 7), 2 * 3 * 4 * 5 * 7),
        ("abc,cd->abd", (2, 3, 5), (5, 7), 2 * 3 * 5 * 7),
    ],
)
def test_batched_products(einsum, left, right, multiply_adds):
    product = compiled(lambda a, b: jnp.einsum(einsum, a, b), left, right)
    assert work(product).flops == 2 * multiply_adds


def test_large_products_that_go_to_a_library():
    product = compiled(lambda a, b: jax.nn.relu(a @ b), (96, 512), (512, 160))
    assert work(product).flops == 2 * 96 * 512 * 160


def test_a_scanned_product_counts_each_trip():
    def loop(x, w):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), ()), x, w)[0]

    scanned = compiled(loop, (3, 5), (7, 5, 5))
    assert work(scanned).flops == 7 * 2 * 3 * 5 * 5


def test_rematerialised_gradient_counts_what_is_computed_again():
    def loss(w, x):
        hidden = jax.checkpoint(lambda x: jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))(x)
        return hidden.sum()

    gradient = compiled(jax.grad(loss), (2, 5, 5), (3, 5))
    # Nobody needs the first forward pass: two products again, and three backward.
    assert work(gradient).flops == 5 * 2 * 3 * 5 * 5


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("stride", "dilation", "groups"), [(1, 1, 1), (2, 1, 1), (1, 2, 3)])
def test_a_convolution_leaves_out_the_padding(padding, stride, dilation, groups):
    def convolve(x, k):
        return jax.lax.conv_general_dilated(
            x, k, (stride,), padding, rhs_dilation=(dilation,), feature_group_count=groups,
            dimension_numbers=("NHC", "HIO", "NHC"),
        )  # fmt: skip

    size, window, inputs, outputs, batch = 11, 3, 6, 9, 2
    program = compiled(convolve, (batch, size, inputs), (window, inputs // groups, outputs))
    reach = dilation * (window - 1) + 1
    if padding == "SAME":
        count, low = (
            -(-size // stride),
            max((-(-size // stride) - 1) * stride + reach - size, 0) // 2,
        )
    else:
        count, low = (size - reach) // stride + 1, 0
    positions = sum(
        0 <= at * stride + tap * dilation - low < size
        for at in range(count)
        for tap in range(window)
    )
    assert work(program).flops == 2 * batch * positions * (inputs // groups) * outputs


def test_a_slice_counts_as_itself_and_an_update_as_what_it_writes():
    text = """\
HloModule m

ENTRY %main (x: f32[1000], u: f32[10]) -> f32[1000] {
  %x = f32[1000] parameter(0)
  %u = f32[10] parameter(1)
  %i = s32[] constant(3)
  %s = f32[10] dynamic-slice(%x, %i), dynamic_slice_sizes={10}
  %a = f32[10] add(%s, %u)
  ROOT %r = f32[1000] dynamic-update-slice(%x, %a, %i)
}
"""
    assert work(text).bytes_accessed == 4 * (2 * 10 + 3 * 10 + 2 * 10)


FUSED = """\
HloModule m

%inside (p: f32[6,1000], q: s32[], u: f32[1,1000], o: f32[6,1000]) -> f32[6,1000] {
  %p = f32[6,1000] parameter(0)
  %q = s32[] parameter(1)
  %u = f32[1,1000] parameter(2)
  %o = f32[6,1000] parameter(3)
  %zero = s32[] constant(0)
  %s = f32[1,1000] dynamic-slice(%p, %q, %zero), dynamic_slice_sizes={1,1000}
  %a = f32[1,1000] add(%s, %u)
  ROOT %r = f32[6,1000] dynamic-update-slice(%o, %a, %q, %zero)
}

ENTRY %main (x: f32[6,1000], u: f32[1,1000], o: f32[6,1000]) -> f32[6,1000] {
  %x = f32[6,1000] parameter(0)
  %u = f32[1,1000]{1,0:T(8,128)S(1)} parameter(1)
  %o = f32[6,1000] parameter(2)
  %i = s32[] constant(3)
  ROOT %f = f32[6,1000] fusion(%x, %i, %u, %o), kind=kLoop, calls=%inside
}
"""


def test_a_fusion_reads_the_slices_it_cuts_and_writes_the_update():
    # One row read, one row added, one row written, and the index.
    assert work(FUSED).bytes_accessed == 4 * (1000 + 1000 + 1000 + 1)


def test_a_tpu_s_fast_memory_costs_nothing():
    assert work(FUSED, platform="tpu").bytes_accessed == 4 * (1000 + 1000 + 1)


def test_the_roofline_takes_the_longer_of_both_for_each_operation():
    chip = Chip("toy", flops=100.0, memory_bandwidth=10.0, memory_bytes=1, link_bandwidth=1.0,
                torus=2, source="none")  # fmt: skip
    text = """\
HloModule m

ENTRY %main (x: f32[2,50], y: f32[50,2]) -> f32[2,2] {
  %x = f32[2,50] parameter(0)
  %y = f32[50,2] parameter(1)
  %d = f32[2,2] dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %g = f32[4,2] all-gather(%d), replica_groups={{0,1}}, dimensions={0}
  ROOT %n = f32[2,2] negate(%d)
}
"""
    found = work(text, chip)
    # dot: 400 operations take 4 s, 816 bytes 81.6 s; negate: 32 bytes 3.2 s; the exchange aside.
    assert (found.flops, found.bytes_accessed) == (400, 816 + 48 + 32)
    assert found.roofline_seconds == pytest.approx(81.6 + 3.2)


def test_a_tpu_s_vectors_also_sum_up_sort_and_scatter():
    text = """\
HloModule m

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%less (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %l = pred[] compare(%a, %b), direction=LT
}

ENTRY %main (x: f32[3,9], i: s32[5,1], u: f32[5,9]) -> f32[3,9] {
  %x = f32[3,9] parameter(0)
  %i = s32[5,1] parameter(1)
  %u = f32[5,9] parameter(2)
  %z = f32[] constant(0)
  %w = f32[3,9] reduce-window(%x, %z), window={size=1x9 pad=0_0x8_0}, to_apply=%add
  %o = f32[3,9] sort(%w), dimensions={0}, to_apply=%less
  ROOT %r = f32[3,9] scatter(%o, %i, %u), update_window_dims={1}, inserted_window_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add
}
"""
    program = parse(text)
    counter = Counter(program, fast_memory=True)
    entry = program.entry.instructions.values()
    found = {one.opcode: counter.vector_operations(one) for one in entry}
    assert found["reduce-window"] == 27 * 4  # 9 places: 1, 2, 4 and 8 apart
    assert found["sort"] == 27 * 2  # by comparisons of 3
    assert found["scatter"] == 5 * 9


def test_custom_kernels_are_named():
    text = """\
HloModule m

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  ROOT %k = f32[2] custom-call(%x), custom_call_target="tpu_custom_call"
}
"""
    assert work(text).opaque == {"tpu_custom_call": 1}


def test_library_products_whatever_is_transposed():
    text = """\
HloModule m

ENTRY %main (x: f32[4,5,3], y: f32[4,7,5]) -> f32[4,3,7] {
  %x = f32[4,5,3] parameter(0)
  %y = f32[4,7,5] parameter(1)
  ROOT %k = f32[4,3,7] custom-call(%x, %y), custom_call_target="__onednn$matmul"
}
"""
    assert work(text).flops == 2 * 4 * 3 * 5 * 7
