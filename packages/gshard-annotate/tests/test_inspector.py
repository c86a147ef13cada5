"""Collectives of compiled programs."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import Collective, collectives, expect_collectives, replicate, split

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
