"""Logical names to mesh axes, for one array and for trees."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import (
    DEFAULT_RULES,
    Rules,
    make_mesh,
    rules_scope,
    tree_shardings,
    tree_specs,
)
from gshard_annotate.scope import current_scope

RULES = Rules((("batch", ("data", "expert")), ("mlp", "model"), ("embed", None)))


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


def test_first_match_wins(mesh):
    assert RULES.spec(("batch", None, "embed"), mesh=mesh) == PartitionSpec(
        ("data", "expert"), None, None
    )


def test_optional_axis_is_dropped_from_a_mesh_without_it(mesh):
    assert RULES.spec(("embed", "mlp"), mesh=mesh) == PartitionSpec(None, None)
    with_model = make_mesh({"data": 2, "expert": 2, "model": 2})
    assert RULES.spec(("embed", "mlp"), mesh=with_model) == PartitionSpec(None, "model")


def test_optional_axis_is_dropped_from_among_several(mesh):
    rules = Rules((("heads", ("expert", "model")),))
    assert rules.spec(("heads",), mesh=mesh) == PartitionSpec("expert")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("bach", "embed", "mpl"),
            "Rules.spec: 2 faults:\n"
            "  names: no rule for logical name 'bach'; did you mean 'batch'? "
            "(rules: batch, mlp, embed)\n"
            "  names: no rule for logical name 'mpl'; did you mean 'mlp'? "
            "(rules: batch, mlp, embed)",
        ),
        (
            ("batch", "batch"),
            "Rules.spec: 2 faults:\n"
            "  mesh axis 'data' splits dimensions 0 and 1 of (batch, batch); "
            "a mesh axis can split one dimension only, replicate the other\n"
            "  mesh axis 'expert' splits dimensions 0 and 1 of (batch, batch); "
            "a mesh axis can split one dimension only, replicate the other",
        ),
    ],
)
def test_wrong_names(mesh, names, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        RULES.spec(names, mesh=mesh)


def test_axis_that_neither_mesh_nor_optional_axes_have(mesh):
    rules = Rules((("batch", "dta"),))
    message = (
        "Rules.spec: dimension 0 of (batch) cannot be split over mesh axis 'dta': "
        "the mesh has data=2, expert=4; did you mean 'data'?"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        rules.spec(("batch",), mesh=mesh)


def test_empty_rules(mesh):
    message = "Rules.spec: names: no rule for logical name 'batch' (rules: none)"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Rules(()).spec(("batch",), mesh=mesh)


def test_default_rules_split_groups_over_data_and_expert(mesh):
    assert DEFAULT_RULES.spec(("group", "group_token", "act_embed"), mesh=mesh) == PartitionSpec(
        ("data", "expert"), None, None
    )
    assert DEFAULT_RULES.spec(
        ("expert", "dispatched_group", "capacity", "act_mlp"), mesh=mesh
    ) == PartitionSpec("expert", "data", None, None)
    assert DEFAULT_RULES.spec(("layer", "expert", "embed", "mlp"), mesh=mesh) == PartitionSpec(
        None, "expert", None, None
    )


def test_tree(mesh):
    names = {"moe": {"wi": ("expert", "embed", "mlp")}, "step": None, "scale": ["norm"]}
    shapes = {"moe": {"wi": shape(8, 3, 5)}, "step": shape(), "scale": shape(3)}
    specs = tree_specs(names, shapes, DEFAULT_RULES, mesh)
    assert specs["moe"]["wi"] == PartitionSpec("expert", None, None)
    assert specs["step"] == PartitionSpec()
    assert specs["scale"] == PartitionSpec(None)
    shardings = tree_shardings(names, shapes, DEFAULT_RULES, mesh)
    assert shardings["moe"]["wi"] == NamedSharding(mesh, specs["moe"]["wi"])
    assert jax.device_put(jnp.ones((8, 3, 5)), shardings["moe"]["wi"]).addressable_shards[
        0
    ].data.shape == (2, 3, 5)


def test_every_fault_of_a_tree_in_one_error(mesh):
    names = {"a": ("expert", None), "b": {"c": ("embd",), "d": ("embed", "mlp", None)}, "e": ()}
    shapes = {"a": shape(6, 2), "b": {"c": shape(3), "d": shape(4, 4)}, "e": shape()}
    rules = Rules((("expert", "expert"), ("embed", None), ("mlp", "model")))
    message = (
        "tree_specs: 3 faults:\n"
        "  dimension 0 of a f32[6,2] cannot be split over mesh axis 'expert' of size 4 "
        "(6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6\n"
        "  b/c f32[3]: no rule for logical name 'embd'; did you mean 'embed'? "
        "(rules: expert, embed, mlp)\n"
        "  b/d f32[4,4] has 2 dimensions but 3 names ('embed', 'mlp', None); "
        "give one per dimension (None: not split)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tree_specs(names, shapes, rules, mesh)


def test_tree_of_names_with_another_structure(mesh):
    message = (
        "tree_specs: the tree of names does not have the structure of the tree of arrays "
        "(Dict key mismatch; expected keys: ['a', 'b']; present keys: ['a'].); "
        "give a tuple of names for each array"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tree_specs({"a": None}, {"a": shape(), "b": shape()}, RULES, mesh)


def test_scopes_nest_and_end(mesh):
    assert current_scope() is None
    with rules_scope(DEFAULT_RULES, mesh):
        with rules_scope(RULES, mesh) as inner:
            assert current_scope() == inner
            assert inner.rules == RULES
        scope = current_scope()
        assert scope is not None
        assert scope.rules == DEFAULT_RULES
    assert current_scope() is None
