"""`checks("warn")`: faults become warnings, what is right still counts."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate import (
    AnnotationWarning,
    Rules,
    annotate,
    annotate_tree,
    checks,
    mesh_split,
    rules_scope,
    shard,
    split,
)

X = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)
RULES = Rules((("batch", "expert"), ("embed", "data")))


def enter(context):
    with context:
        pass


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    ("call", "message", "spec"),
    [
        (
            lambda x, mesh: mesh_split(x, [0, 1], ["expert", "data"], mesh=mesh),
            "mesh_split: dimension 0 of x f32[6,8] cannot be split over mesh axis 'expert' of "
            "size 4 (6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6",
            PartitionSpec(None, "data"),
        ),
        (
            lambda x, mesh: mesh_split(x, [0, 1], ["dat", "expert"], mesh=mesh),
            "mesh_split: dimension 0 of x f32[6,8] cannot be split over mesh axis 'dat': the mesh "
            "has data=2, expert=4; did you mean 'data'?",
            PartitionSpec(None, "expert"),
        ),
        (
            lambda x, mesh: mesh_split(x, [0, 1], ["data", "data"], mesh=mesh),
            "mesh_split: mesh axis 'data' splits dimensions 0 and 1 of x f32[6,8]; "
            "a mesh axis can split one dimension only, replicate the other",
            PartitionSpec("data", None),
        ),
        (
            lambda x, mesh: annotate(x, "batch", "embed", rules=RULES, mesh=mesh),
            "annotate: dimension 0 of x f32[6,8] cannot be split over mesh axis 'expert' of size "
            "4 (6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6",
            PartitionSpec(None, "data"),
        ),
    ],
)
def test_faulty_dimension_stays_whole(mesh, jit, call, message, spec):
    def inside(x):
        with checks("warn"):
            return call(x, mesh)

    with pytest.warns(AnnotationWarning, match=f"^{re.escape(message)}$") as caught:
        y = (jax.jit(inside) if jit else inside)(jnp.asarray(X))
    np.testing.assert_array_equal(y, X)
    assert y.sharding.is_equivalent_to(jax.NamedSharding(mesh, spec), 2)
    # It names the line that annotates.
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize(
    "call",
    [
        lambda x, mesh: split(x, 2, "data", mesh=mesh),
        lambda x, mesh: mesh_split(x, ["heads"], ["data"], names=("batch", "embed"), mesh=mesh),
        lambda x, mesh: annotate(x, "batch", rules=RULES, mesh=mesh),
        lambda x, mesh: annotate(x, "batch", "embd", rules=RULES, mesh=mesh),
        lambda x, mesh: split(x, 0, "data"),  # no mesh
        lambda x, mesh: split(x, 0, num_partitions=3, mesh=mesh),
        lambda x, mesh: shard(x, [[0, 1], [2, 2]], mesh=mesh),
    ],
)
def test_annotation_that_means_nothing_does_nothing(mesh, call):
    x = jnp.asarray(X)
    with checks("warn"), pytest.warns(AnnotationWarning):
        assert call(x, mesh) is x


def test_no_mesh_is_warned_of_once():
    with warnings.catch_warnings(record=True) as caught, checks("warn"):
        warnings.simplefilter("default")
        for _ in range(3):
            split(jnp.asarray(X), 0, "data")
    (one,) = caught
    assert str(one.message) == (
        "split: no mesh, and 8 devices; pass mesh=, or enter `rules_scope(rules, mesh)` or "
        "`jax.set_mesh(mesh)`"
    )


def test_tree_with_a_fault_is_annotated_where_it_is_right(mesh):
    tree = {"a": jnp.ones((6, 8)), "b": jnp.ones((8, 4))}
    names = {"a": ("batch", "embed"), "b": ("batch", "embed")}
    with checks("warn"), pytest.warns(AnnotationWarning, match=r"dimension 0 of a f32\[6,8\]"):
        y = annotate_tree(names, tree, rules=RULES, mesh=mesh)
    assert y["a"].sharding.spec == PartitionSpec(None, "data")
    assert y["b"].sharding.spec == PartitionSpec("expert", "data")


def test_leaf_that_is_no_array_stays(mesh):
    names = {"a": ("batch", "embed"), "b": ("batch",)}
    with checks("warn"), pytest.warns(AnnotationWarning, match=r"b is 3 \(int\)"):
        y = annotate_tree(names, {"a": jnp.ones((8, 4)), "b": 3}, rules=RULES, mesh=mesh)
    assert y["b"] == 3
    assert y["a"].sharding.spec == PartitionSpec("expert", "data")


def test_rules_are_warned_of(mesh):
    with checks("warn"):
        with pytest.warns(AnnotationWarning, match=r"rule \('pipe', 'pipe'\) names mesh axis"):
            enter(rules_scope(RULES.replace(pipe="pipe"), mesh))
        with pytest.warns(AnnotationWarning, match="never counts"):
            rules = Rules((("batch", "data"), ("batch", None)))
    assert rules.spec(("batch",), mesh=mesh) == PartitionSpec("data")


def test_swapped_dimensions_are_warned_of(mesh):
    with checks("warn"), rules_scope(RULES, mesh):
        annotate(jnp.ones((4, 8)), "batch", "embed")
        with pytest.warns(AnnotationWarning, match="'batch' is 4 at .* and 8 at"):
            y = annotate(jnp.ones((8, 8)), "batch", "embed")
    assert y.sharding.spec == PartitionSpec("expert", "data")


def test_strict_again_within(mesh, refused):
    with (
        checks("warn"),
        checks("strict"),
        refused("split: x f32[6,8] has no dimension 2; give one of -2 to 1"),
    ):
        split(jnp.asarray(X), 2, "data", mesh=mesh)


def test_warned_before_is_an_error_afterwards(mesh, refused):
    message = (
        "split: dimension 0 of x f32[6,8] cannot be split over mesh axis 'expert' of size 4 "
        "(6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6"
    )
    with checks("warn"), pytest.warns(AnnotationWarning):
        split(jnp.asarray(X), 0, "expert", mesh=mesh)
    with refused(message):
        split(jnp.asarray(X), 0, "expert", mesh=mesh)


def test_unknown_mode(refused):
    with refused("checks: mode is 'lax'; give 'strict' or 'warn'"), checks("lax"):
        pass
