"""Collectives of compiled programs."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import Collective, collectives, expect_collectives, replicate, split
from gshard_annotate.inspector import inspect

TEXT = """\
HloModule jit_f, is_scheduled=true

%body.1 (p: (f32[2,4], u32[])) -> (f32[2,4], u32[]) {
  %p = (f32[2,4]{1,0}, u32[]) parameter(0)
  %ag = (bf16[2,4]{1,0:T(8,128)}, bf16[8,4]{1,0}) all-gather-start(%x), metadata={op_name="a/b"}
  %agd = bf16[8,4]{1,0} all-gather-done(%ag), metadata={op_name="a/b"}
  %cp = (f32[3]{0}, f32[3]{0}, u32[], u32[]) collective-permute-start(%y)
  ROOT %ar = (f32[2]{0}, /*index=1*/s8[5]{0}) all-reduce-start(%a, %b)
}

ENTRY %main.7 (x: f32[2,4]) -> f32[] {
  %name = f32[2,4]{1,0} add(%all-gather, %all-reduce), metadata={op_name="all-to-all(x)"}
  ROOT %rs = pred[] reduce-scatter(%z), metadata={op_name="jit(f)/c"}
}
"""


def test_reads_synchronous_and_asynchronous_instructions():
    assert collectives(TEXT) == [
        Collective("all-gather", "bf16[8,4]", 64, "body.1", "a/b"),
        Collective("collective-permute", "f32[3]", 12, "body.1", ""),
        Collective("all-reduce", "f32[2], s8[5]", 13, "body.1", ""),
        Collective("reduce-scatter", "pred[]", 1, "main.7", "jit(f)/c"),
    ]


def test_matmul_over_a_split_contracting_dimension_is_one_all_reduce(mesh):
    def product(a, b):
        a, b = split(a, 1, "expert", mesh=mesh), split(b, 0, "expert", mesh=mesh)
        return replicate(a @ b, mesh=mesh)

    compiled = jax.jit(product).lower(jnp.ones((3, 8)), jnp.ones((8, 5))).compile()
    (one,) = expect_collectives(compiled, {"all-reduce": 1, "all-gather": 0, "all-to-all": 0})
    assert (one.kind, one.shape, one.bytes) == ("all-reduce", "f32[3,5]", 60)
    assert one.op_name.endswith("dot_general")


def test_collective_of_a_loop_names_its_body(mesh):
    sharding = NamedSharding(mesh, PartitionSpec("expert"))

    def step(total, _):
        return total + replicate(split(total * total, 0, "expert", mesh=mesh), mesh=mesh), ()

    scan = jax.jit(lambda x: jax.lax.scan(step, x, length=3), in_shardings=sharding)
    compiled = scan.lower(jnp.ones(8)).compile()
    inside = [one.computation for one in collectives(compiled) if "body" in one.op_name]
    assert inside
    assert "main" not in inside[0]


# What a TPU's compiler makes of collectives: a sum of which each device keeps its part, and one
# that runs beside the fusions between its start and its end, in each of which it stands.
FUSED = """\
HloModule jit_f, num_partitions=4

%all-reduce-scatter (p: f32[8,4]) -> f32[2,4] {
  %p = f32[8,4] parameter(0)
  %all-reduce.1 = f32[8,4] all-reduce(%p), channel_id=3, replica_groups=[1,4]<=[4], to_apply=%add
  %i = s32[] constant(0)
  ROOT %d = f32[2,4] dynamic-slice(%all-reduce.1, %i, %i), dynamic_slice_sizes={2,4}
}

%started (q: f32[2]) -> f32[8] {
  %q = f32[2] parameter(0)
  ROOT %ag.1 = f32[8] all-gather(%q), channel_id=7, replica_groups=[1,4]<=[4], dimensions={0}
}

%ended (q: f32[2]) -> f32[8] {
  %q = f32[2] parameter(0)
  ROOT %ag.2 = f32[8] all-gather(%q), channel_id=7, replica_groups=[1,4]<=[4], dimensions={0}
}

ENTRY %main (x: f32[8,4], y: f32[2]) -> f32[2,4] {
  %x = f32[8,4] parameter(0)
  %y = f32[2] parameter(1)
  %s = f32[8] fusion(%y), kind=kCustom, calls=%started
  %e = f32[8] fusion(%y), kind=kCustom, calls=%ended
  %t = (f32[2], f32[2], s8[3]) all-to-all(%y, %y, %y), replica_groups={{0,1,2,3}}
  ROOT %r = f32[2,4] fusion(%x), kind=kCustom, calls=%all-reduce-scatter, metadata={op_name="r"}
}
"""


def test_fused_collectives_count_once_and_under_their_real_kind():
    assert collectives(FUSED) == [
        Collective("reduce-scatter", "f32[2,4]", 32, "main", "r"),
        Collective("all-gather", "f32[8]", 32, "main", ""),
        Collective("all-to-all", "2 x f32[2], s8[3]", 19, "main", ""),
    ]


def exchanging(mesh):
    def exchange(x):
        return replicate(split(x, 0, "expert", mesh=mesh) * 2, mesh=mesh)

    return exchange


def test_expects_of_functions_lowered_programs_and_reports(mesh):
    exchange, x = exchanging(mesh), jnp.ones((8, 4))
    wanted = {"all-gather": 1, "all-to-all": 0}
    expected = expect_collectives(jax.jit(exchange).lower(x).compile(), wanted)
    assert [one.kind for one in expected] == ["all-gather"]
    for program, args in [
        (exchange, [x]),
        (jax.jit(exchange), [jax.ShapeDtypeStruct((8, 4), jnp.float32)]),
        (exchange, x),
        (jax.jit(exchange).lower(x), None),
        (inspect(exchange, x, mesh=mesh), None),
    ]:
        assert expect_collectives(program, wanted, args=args) == expected


def test_failure_names_the_lines_of_the_program(mesh):
    exchange = exchanging(mesh)
    line = exchange.__code__.co_firstlineno + 1
    message = (
        "the compiled program has 1 all-gather instead of 2"
        "\n  all-gather f32[8,4] (128 bytes) in main.0_spmd: "
        f"jit(exchange)/mul at test_inspector.py:{line}"
    )
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        expect_collectives(exchange, {"all-gather": 2}, args=[jnp.ones((8, 4))])


@pytest.mark.parametrize(("program", "what"), [(3, "'int'"), (len, "a function without args=")])
def test_no_program(program, what):
    message = (
        f"expect_collectives: the program is {what}; give a compiled function, its HLO text, a "
        "Report, or a function with args="
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        expect_collectives(program, {})


def test_failure_lists_what_was_found():
    message = (
        "the compiled program has 1 all-gather instead of 0, 0 all-to-all instead of 2"
        "\n  all-gather bf16[8,4] (64 bytes) in body.1: a/b"
    )
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        expect_collectives(TEXT, {"all-gather": 0, "all-to-all": 2, "all-reduce": 1})


def test_misspelt_kind():
    message = (
        "expect_collectives: no collective is called 'all-togather'; did you mean 'all-gather'?"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        expect_collectives(TEXT, {"all-togather": 0})
