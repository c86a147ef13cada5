"""To which operation of the program the work counts."""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from gshard_annotate.inspector.chips import Chip
from gshard_annotate.inspector.costs import count_work
from gshard_annotate.inspector.flow import Flow
from gshard_annotate.inspector.hlo import parse
from gshard_annotate.inspector.loops import runs
from gshard_annotate.inspector.operations import name_of

CHIP = Chip("toy", 100.0, 10.0, 1, 1.0, torus=2, source="none")


def work(text, chip=CHIP, platform="tpu"):
    parsed = parse(text)
    return count_work(Flow(parsed, {}), runs(parsed), chip, platform)


def by_scope(found):
    return {(one.scope, one.primitive): one for one in found.operations}


@pytest.mark.parametrize(
    ("op_name", "scope", "primitive", "during"),
    [
        ("jit(step)/jvp(BLM,MV->BLV)/dot_general", "", "dot_general", (False, False)),
        ("jit(step)/jvp(attention)/while/body/closed_call/projections/BM,MN->BN/dot_general",
         "attention/projections", "dot_general", (False, False)),
        ("jit(step)/transpose(jvp(experts))/while/body/closed_call/checkpoint/jit(relu)/max",
         "experts", "max", (True, False)),
        ("jit(step)/transpose(jvp())/checkpoint/rematted_computation/gating/cond/branch_1_fun/exp",
         "gating", "exp", (False, True)),
        ("jit(f)/vmap(jit(fold_in))/Context.fold/dispatch/dispatch/xor", "dispatch", "xor",
         (False, False)),
        ("jit(f)/annotate[batch,-]/sharding_constraint", "", "sharding_constraint", (False, False)),
        ("jit(f)/norm/(mul:add);jit(f)/sub", "norm", "mul", (False, False)),
        ("broadcast.1045", "", "broadcast", (False, False)),
        ("", "", "", (False, False)),
    ],
)  # fmt: skip
def test_what_an_operation_s_name_says(op_name, scope, primitive, during):
    assert name_of(op_name) == (scope, primitive, *during)


FUSED = """\
HloModule m

%two_products (x: f32[2,50], y: f32[50,3], z: f32[3,7]) -> f32[2,7] {
  %x = f32[2,50] parameter(0)
  %y = f32[50,3] parameter(1)
  %z = f32[3,7] parameter(2)
  %a = f32[2,3] dot(%x, %y), lhs_contracting_dims={1}, metadata={op_name="jit(f)/outer/one/dot"}
  ROOT %b = f32[2,7] dot(%a, %z), lhs_contracting_dims={1}, metadata={op_name="jit(f)/two/dot"}
}

%sum (x: f32[2,7]) -> f32[2,7] {
  %x = f32[2,7] parameter(0)
  %e = f32[2,7] exponential(%x), metadata={op_name="jit(f)/three/exp"}
  ROOT %n = f32[2,7] negate(%e), metadata={op_name="jit(f)/neg"}
}

ENTRY %main (x: f32[2,50], y: f32[50,3], z: f32[3,7]) -> f32[2,7] {
  %x = f32[2,50] parameter(0)
  %y = f32[50,3] parameter(1)
  %z = f32[3,7] parameter(2)
  %f = f32[2,7] fusion(%x, %y, %z), kind=kOutput, calls=%two_products
  %c = f32[2,7] copy(%f)
  %g = f32[4,7] all-gather(%c), replica_groups={{0,1}}, dimensions={0}
  ROOT %s = f32[2,7] fusion(%c), kind=kLoop, calls=%sum, metadata={op_name="jit(f)/neg"}
}
"""


def test_a_fusion_is_divided_by_the_products_inside():
    found = by_scope(work(FUSED))
    one, two = found["outer/one", "dot"], found["two", "dot"]
    assert (one.flops, two.flops) == (2 * 2 * 3 * 50, 2 * 2 * 7 * 3)
    moved = 4 * (100 + 150 + 21 + 14)
    assert one.bytes_accessed == round(moved * 600 / 684)
    assert one.seconds == pytest.approx(moved / 10 * 600 / 684)


def test_what_has_no_scope_counts_with_what_is_near():
    found = by_scope(work(FUSED))
    # The nameless copy with the product before it, the negation with what is fused with it.
    assert found["outer/one", "copy"].bytes_accessed == 2 * 4 * 14
    assert found["three", "exp"].bytes_accessed == 2 * 4 * 14
    assert len(found) == 4


def test_operations_add_up_to_the_work_without_exchanges():
    found = work(FUSED)
    assert sum(one.seconds or 0.0 for one in found.operations) == pytest.approx(
        found.roofline_seconds
    )
    assert sum(one.flops for one in found.operations) == found.flops
    gathered = 4 * (14 + 28)
    assert sum(one.bytes_accessed for one in found.operations) == found.bytes_accessed - gathered


def test_scopes_of_a_gradient_in_a_loop():
    @jax.checkpoint
    def layer(x, w):
        with jax.named_scope("hidden"):
            return jnp.sin(x @ w)

    def loss(w, x):
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, w)
        return x.sum()

    shapes = jax.ShapeDtypeStruct((6, 5, 5), "float32"), jax.ShapeDtypeStruct((3, 5), "float32")
    text = jax.jit(jax.grad(loss)).lower(*shapes).compile().as_text()
    products = Counter()
    for one in work(text, platform="cpu").operations:
        products[one.scope, one.backward, one.recomputed] += one.flops
    each = 6 * 2 * 3 * 5 * 5
    assert {key: flops for key, flops in products.items() if flops} == {
        ("hidden", False, False): each,
        ("hidden", False, True): each,
        ("hidden", True, False): 2 * each,
    }


PRODUCT = """\
HloModule m

ENTRY %main (x: f32[2,50], y: f32[50,2]) -> f32[2,2] {{
  %x = {dtype}[2,50] parameter(0)
  %y = {dtype}[50,2] parameter(1)
  ROOT %d = f32[2,2] dot(%x, %y), lhs_contracting_dims={{1}}{precision}
}}
"""


@pytest.mark.parametrize(
    ("dtype", "precision", "passes"),
    [
        ("f32", "", 1),
        ("f32", ", operand_precision={high,high}", 3),
        ("f32", ", operand_precision={highest,highest}", 6),
        ("bf16", ", operand_precision={highest,highest}", 1),
    ],
)
def test_float32_products_take_several_bfloat16_ones(dtype, precision, passes):
    chip = Chip("toy", 100.0, 1e9, 1, 1.0, torus=2, source="none", rounds=True)
    found = work(PRODUCT.format(dtype=dtype, precision=precision), chip)
    assert found.flops == 400
    assert found.roofline_seconds == pytest.approx(passes * 4.0)


def test_arithmetic_takes_as_long_as_the_vector_unit_does():
    chip = Chip("toy", 100.0, 1e9, 1, 1.0, torus=2, source="none", vector_rate=7.0)
    # The exponential and the negation of 14 numbers each, and nothing for the rest.
    assert by_scope(work(FUSED, chip))["three", "exp"].seconds == pytest.approx(4.0)
