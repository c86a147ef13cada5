"""Findings before tracing."""

import re

import jax.numpy as jnp
import pytest

from gshard_annotate.checks import describe, raise_faults, spec_faults

SIZES = {"data": 2, "expert": 4}


def test_no_fault():
    assert spec_faults("x", (8, 5, 2), ("expert", None, "data"), SIZES) == []
    assert spec_faults("x", (8, 5), (("data", "expert"),), SIZES) == []


@pytest.mark.parametrize(
    ("shape", "spec", "faults"),
    [
        (
            (6, 16, 8),
            ("expert",),
            [
                "dimension 0 of x cannot be split over mesh axis 'expert' of size 4 "
                "(6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6"
            ],
        ),
        (
            (5, 17),
            (None, ("data", "expert")),
            [
                "dimension 1 of x cannot be split over mesh axes ('data', 'expert') of size 8 "
                "(17 % 8 = 1); pad it to 24 or use an axis of size 1 or 17"
            ],
        ),
        (
            (1,),
            ("data",),
            [
                "dimension 0 of x cannot be split over mesh axis 'data' of size 2 "
                "(1 % 2 = 1); pad it to 2 or use an axis of size 1"
            ],
        ),
        (
            (2310,),
            ("expert",),
            [
                "dimension 0 of x cannot be split over mesh axis 'expert' of size 4 (2310 % 4 = 2);"
                " pad it to 2312 or use an axis of size 1, 2, 3, 5, 6, 7, 10, ... or 2310"
            ],
        ),
        (
            (8, 8),
            ("experts", "data"),
            [
                "dimension 0 of x cannot be split over mesh axis 'experts': "
                "the mesh has data=2, expert=4; did you mean 'expert'?"
            ],
        ),
        (
            (8, 7, 8),
            ("data", "y", "data"),
            [
                "dimension 1 of x cannot be split over mesh axis 'y': "
                "the mesh has data=2, expert=4",
                "mesh axis 'data' splits dimensions 0 and 2 of x; "
                "a mesh axis can split one dimension only, replicate the other",
            ],
        ),
    ],
)
def test_faults(shape, spec, faults):
    assert spec_faults("x", shape, spec, SIZES) == faults


def test_describe():
    assert describe(jnp.zeros((6, 16, 8))) == "f32[6,16,8]"
    assert describe(jnp.zeros((), jnp.bfloat16)) == "bf16[]"
    assert describe(jnp.zeros((3,), bool)) == "bool[3]"
    assert describe(jnp.zeros((2, 1), jnp.uint8)) == "u8[2,1]"


def test_all_faults_at_once():
    raise_faults("split", [])
    with pytest.raises(ValueError, match=r"^split: one$"):
        raise_faults("split", ["one"])
    with pytest.raises(ValueError, match=f"^{re.escape('split: 2 faults:')}\n  one\n  two$"):
        raise_faults("split", ["one", "two"])
