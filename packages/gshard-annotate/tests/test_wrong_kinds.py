"""Arguments of the wrong kind get a sentence, not what Python stumbles over later."""

import jax
import jax.numpy as jnp
import pytest

from gshard_annotate import (
    DEFAULT_RULES,
    Rules,
    annotate,
    annotate_tree,
    make_mesh,
    mesh_split,
    names_by_path,
    pad_to_split,
    partial,
    replicate,
    rules_scope,
    shard,
    split,
    tree_specs,
)

X = jnp.ones((8, 4, 6))


def enter(context):
    with context:
        pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda mesh: split([1, 2], 0, "data", mesh=mesh),
            "split: x is a list; give a jax.Array (for a tree of them: annotate_tree)",
        ),
        (
            lambda mesh: replicate({"a": X}, mesh=mesh),
            "replicate: x is a dict; give a jax.Array (for a tree of them: annotate_tree)",
        ),
        (
            lambda mesh: partial(3, "data", mesh=mesh),
            "partial: x is an int; give a jax.Array (for a tree of them: annotate_tree)",
        ),
        (
            lambda mesh: split(X, 0, "data", mesh="data"),
            "split: mesh is 'data' (str); give a Mesh, as make_mesh makes one",
        ),
        (
            lambda mesh: mesh_split(X, 0, "data", mesh=mesh),
            "mesh_split: dims is 0 (int); give a list, [0]",
        ),
        (
            lambda mesh: mesh_split(X, [0], "data", mesh=mesh),
            "mesh_split: mesh_axes is 'data' (str); give a list, ['data']",
        ),
        (
            lambda mesh: annotate(X, "batch", None, None, rules=[("batch", "data")], mesh=mesh),
            "annotate: rules is [('batch', 'data')] (list); give gshard_annotate.Rules(...)",
        ),
        (
            lambda mesh: enter(rules_scope(DEFAULT_RULES, None)),
            "rules_scope: mesh is None (NoneType); give a Mesh, as make_mesh makes one",
        ),
        (
            lambda mesh: enter(rules_scope({"batch": "data"}, mesh)),
            "rules_scope: rules is {'batch': 'data'} (dict); give gshard_annotate.Rules(...)",
        ),
        (
            lambda mesh: make_mesh({"data": 2.0, "expert": 4}),
            "make_mesh: axes is {'data': 2.0, 'expert': 4} (dict); give sizes by name, as "
            "{'data': 2, 'expert': -1}",
        ),
        (
            lambda mesh: make_mesh([2, 4]),
            "make_mesh: axes is [2, 4] (list); give sizes by name, as {'data': 2, 'expert': -1}",
        ),
        (
            lambda mesh: names_by_path({"a": X}, ["a"]),
            "names_by_path: patterns is ['a'] (list); give names by regular expression",
        ),
        (
            lambda mesh: annotate_tree({"a": ()}, {"a": X}, rules={"batch": "data"}, mesh=mesh),
            "annotate_tree: rules is {'batch': 'data'} (dict); give gshard_annotate.Rules(...)",
        ),
        (
            lambda mesh: tree_specs({"a": ()}, {"a": X}, DEFAULT_RULES, None),
            "tree_specs: mesh is None (NoneType); give a Mesh, as make_mesh makes one",
        ),
        (
            lambda mesh: Rules((("a", "data"),), optional_axes="data"),
            "Rules: optional_axes is 'data' (str); give a tuple",
        ),
        (
            lambda mesh: enter(rules_scope(DEFAULT_RULES, mesh, varying="batch")),
            "rules_scope: varying is 'batch' (str); give a tuple",
        ),
        (
            lambda mesh: DEFAULT_RULES.spec("batch", mesh=mesh),
            "Rules.spec: names is 'batch' (str); give a tuple",
        ),
        (
            lambda mesh: replicate(pad_to_split(X, 2, "expert", mesh=mesh), mesh=mesh),
            "replicate: x is a Padded; give a jax.Array",
        ),
        (
            lambda mesh: annotate(pad_to_split(X, 2, "expert", mesh=mesh), mesh=mesh),
            "annotate: x is a Padded; give a jax.Array",
        ),
    ],
)
def test_kinds(mesh, refused, call, message):
    with refused(message, TypeError):
        call(mesh)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda mesh: split(X, "0", "data", mesh=mesh),
            "split: dimension '0' (str) is no integer",
        ),
        (
            lambda mesh: split(jnp.ones(()), 0, "data", mesh=mesh),
            "split: x f32[] is a scalar and has no dimension 0",
        ),
        (
            lambda mesh: split(X, 0, {"data"}, mesh=mesh),
            "split: mesh axis {'data'} (set) of dimension 0 of x f32[8,4,6] is no name",
        ),
        (
            lambda mesh: names_by_path({"a": X}, {"a": "mlp"}),
            "names_by_path: pattern 'a' has the names 'mlp' (str); give a tuple",
        ),
        (
            lambda mesh: split(X, 0, 3, mesh=mesh),
            "split: mesh axis 3 (int) of dimension 0 of x f32[8,4,6] is no name",
        ),
        (
            lambda mesh: split(X, 0, ("data", "data"), mesh=mesh),
            "split: mesh axis 'data' stands twice for dimension 0 of x f32[8,4,6]; name it once",
        ),
        (
            lambda mesh: mesh_split(X, ["a"], ["data"], names=("a", "a", "b"), mesh=mesh),
            "mesh_split: names ('a', 'a', 'b') have 'a' 2 times; name each dimension once",
        ),
        (
            lambda mesh: annotate(X, ("batch", None, "embed"), mesh=mesh),
            "annotate: x f32[8,4,6]: ('batch', None, 'embed') is given as one name; give names "
            "one by one",
        ),
        (
            lambda mesh: annotate(X, "batch", 3, None, mesh=mesh),
            "annotate: x f32[8,4,6]: logical name 3 (int) is no text",
        ),
        (
            lambda mesh: Rules((("batch",), ("mlp", 3), (None, "data"))),
            "Rules: 3 faults:\n"
            "  pair 1 is ('batch',) (tuple); give (logical name, mesh axes)\n"
            "  pair 2 has mesh axis 3 (int); give the name of a mesh axis\n"
            "  pair 3 names None (NoneType); give the logical name as text",
        ),
        (
            lambda mesh: annotate_tree(
                {"a": ("batch",), "b": "batch"}, {"a": 3, "b": jnp.ones(8)}, mesh=mesh
            ),
            "annotate_tree: 2 faults:\n"
            "  a is 3 (int); give an array or jax.ShapeDtypeStruct\n"
            "  b f32[8] has the names 'batch' (str); give a tuple",
        ),
    ],
)
def test_values(mesh, refused, call, message):
    with refused(message):
        call(mesh)


def test_ragged_assignment():
    with pytest.raises(
        TypeError, match=r"^shard: device_assignment is \[\[0, 1\], \[2\]\] \(list\), no"
    ):
        shard(X, [[0, 1], [2]])


def test_rules_from_a_mapping(mesh):
    rules = Rules({"batch": ("data", "expert"), "embed": None})
    assert rules.spec(("batch", "embed"), mesh=mesh) == jax.P(("data", "expert"), None)
    assert rules == Rules((("batch", ("data", "expert")), ("embed", None)))
