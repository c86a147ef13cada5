"""What users of other systems reported about shardings, done here: each gets one clear answer.

Each test names the report that it repeats.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import (
    DEFAULT_RULES,
    AnnotationWarning,
    Rules,
    annotate,
    checks,
    make_mesh,
    mesh_split,
    pad_to_split,
    rules_scope,
    split,
    tree_shardings,
)


@pytest.mark.parametrize("jit", [False, True])
def test_indivisible_dimension_is_refused_not_replicated(refused, jit):
    """jax-ml/jax#26946: a constraint inside jit that does not divide replicates without a word."""
    mesh = make_mesh({"expert": 8})

    def call(x):
        return split(x, 0, "expert", mesh=mesh)

    message = (
        "split: dimension 0 of x f32[17,3] cannot be split over mesh axis 'expert' of size 8 "
        "(17 % 8 = 1); pad it to 24 or use an axis of size 1 or 17"
    )
    with refused(message):
        (jax.jit(call) if jit else call)(jnp.ones((17, 3)))


def test_indivisible_output_names_tensor_dimension_axis_and_good_sizes(refused):
    """jax-ml/jax#27808: the message about an output that does not divide is hard to read."""
    mesh = make_mesh({"data": 2, "expert": 4})
    shapes = {"encoder": {"wi": jax.ShapeDtypeStruct((6, 512, 10), jnp.bfloat16)}}
    names = {"encoder": {"wi": ("expert", "embed", "mlp")}}
    message = (
        "tree_specs: dimension 0 of encoder/wi bf16[6,512,10] cannot be split over mesh axis "
        "'expert' of size 4 (6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6"
    )
    with refused(message):
        tree_shardings(names, shapes, DEFAULT_RULES, mesh)


def test_check_runs_at_the_annotation(refused):
    """jax-ml/jax#15788: the error appears only when the array is printed."""
    mesh = make_mesh({"expert": 8})
    message = (
        "split: dimension 1 of x f32[8,12] cannot be split over mesh axis 'expert' of size 8 "
        "(12 % 8 = 4); pad it to 16 or use an axis of size 1, 2, 3, 4, 6 or 12"
    )
    with refused(message):
        split(jnp.ones((8, 12)), 1, "expert", mesh=mesh)


def test_no_mesh_is_refused_or_warned_of(refused):
    """google/flax#2938: a logical constraint outside of a mesh does nothing and says nothing."""
    message = (
        "annotate: no mesh, and 8 devices; pass mesh=, or enter `rules_scope(rules, mesh)` or "
        "`jax.set_mesh(mesh)`"
    )
    with refused(message):
        annotate(jnp.ones((8, 3)), "batch", "embed")
    with checks("warn"), pytest.warns(AnnotationWarning, match="^annotate: no mesh, and 8 devices"):
        annotate(jnp.ones((8, 3)), "batch", "embed")


def test_empty_rules_are_one_line(mesh, refused):
    """google/flax#5124: an empty mesh and rules fail deep inside."""
    with (
        rules_scope(Rules(()), mesh),
        refused("annotate: x f32[8,3]: no rule for logical name 'batch' (rules: none)"),
    ):
        jax.jit(lambda x: annotate(x, "batch", None))(jnp.ones((8, 3)))
    with refused(
        "make_mesh: axes are no axes; give at least one axis, each of size 1 or more, at most one "
        "of size -1 (what is left)"
    ):
        make_mesh({})


def test_one_unknown_axis_is_an_error_not_a_dropped_constraint(mesh, refused):
    """NVIDIA/TransformerEngine#2128: one unknown axis drops the whole constraint."""
    message = (
        "mesh_split: dimension 1 of x f32[8,4] cannot be split over mesh axis 'modl': the mesh "
        "has data=2, expert=4"
    )
    with refused(message):
        mesh_split(jnp.ones((8, 4)), [0, 1], ["data", "modl"], mesh=mesh)


def test_sharded_initialisation_never_holds_the_whole():
    """jax-ml/jax#19893, google/flax#3701: initialising a split array allocates all of it."""
    mesh = make_mesh({"expert": 8})
    rules = Rules((("expert", "expert"), ("embed", None), ("mlp", None)))
    names = {"wi": ("expert", "embed", "mlp")}

    def init(key):
        return {"wi": jax.random.normal(key, (8, 128, 1024))}

    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = tree_shardings(names, shapes, rules, mesh)
    memory = (
        jax.jit(init, out_shardings=shardings).lower(jax.random.key(0)).compile().memory_analysis()
    )
    part = 128 * 1024 * 4
    assert memory.output_size_in_bytes == part
    assert memory.temp_size_in_bytes < 4 * part  # random bits in several steps; the whole is 8


@pytest.mark.parametrize(("experts", "devices"), [(16, 8), (4, 4), (6, 2)])
def test_experts_need_not_equal_devices(experts, devices):
    """deepspeedai/DeepSpeed#7535: the number of experts is used as the expert-parallel size."""
    mesh = make_mesh({"data": -1, "expert": devices})
    w = np.arange(experts * 3 * 2.0).reshape(experts, 3, 2)
    y = annotate(jnp.asarray(w), "expert", "embed", None, rules=DEFAULT_RULES, mesh=mesh)
    np.testing.assert_array_equal(y, w)
    assert {part.data.shape for part in y.addressable_shards} == {(experts // devices, 3, 2)}


@pytest.mark.parametrize(
    ("experts", "axis", "rest"),
    [
        (4, 8, "4 % 8 = 4); pad it to 8 or use an axis of size 1, 2 or 4"),
        (6, 4, "6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6"),
    ],
)
def test_experts_that_do_not_divide(refused, experts, axis, rest):
    """deepspeedai/DeepSpeed#7535: 4 experts on 8 devices, 6 on 4."""
    mesh = make_mesh({"data": -1, "expert": axis})
    message = (
        f"annotate: dimension 0 of x f32[{experts},3] cannot be split over mesh axis 'expert' of "
        f"size {axis} ({rest}"
    )
    with refused(message):
        annotate(jnp.ones((experts, 3)), "expert", "embed", rules=DEFAULT_RULES, mesh=mesh)


def test_axis_that_does_not_divide_the_devices(refused):
    """pytorch/torchtitan#4258: expert parallelism that does not divide truncates the mesh."""
    with refused(
        "make_mesh: axes data=-1, expert=3 need a multiple of 3 devices, 8 are present; change the "
        "sizes (-1 takes what is left), pass devices=, or cpu_devices= for virtual CPU devices"
    ):
        make_mesh({"data": -1, "expert": 3})


def test_minus_one_is_what_is_left():
    """AI-Hypercomputer/maxtext#1638: an expert axis of -1 is misread."""
    assert dict(make_mesh({"data": 2, "expert": -1}).shape) == {"data": 2, "expert": 4}


def test_padding_instead_keeps_the_numbers():
    """jax-ml/jax#26946 again: what our message advises."""
    mesh = make_mesh({"expert": 8})
    x = jnp.arange(17 * 3.0).reshape(17, 3)
    padded = pad_to_split(x, 0, "expert", mesh=mesh)
    np.testing.assert_array_equal(padded.sum(0), x.sum(0))
    np.testing.assert_array_equal(padded.unpad(), x)


def test_raw_jax_still_does_what_the_first_report_says():
    """When this fails, JAX has changed and the reason for our check with it."""
    mesh = make_mesh({"expert": 8})
    sharding = NamedSharding(mesh, PartitionSpec("expert"))
    y = jax.jit(lambda x: jax.lax.with_sharding_constraint(x, sharding))(jnp.ones((17, 3)))
    assert y.sharding.is_fully_replicated
