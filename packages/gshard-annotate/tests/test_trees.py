"""Trees of arrays: one call, every fault of any array in one error."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate import (
    Rules,
    annotate,
    annotate_tree,
    make_mesh,
    names_by_path,
    rules_scope,
    tree_shardings,
    tree_specs,
)

RULES = Rules((("expert", "expert"), ("mlp", "data"), ("embed", None)))
PATTERNS = {
    r".*/wi": ("expert", "embed", "mlp"),
    r".*/wo": ("expert", "mlp", "embed"),
    r".*scale": None,
}


def parameters():
    layer = {"wi": np.ones((4, 3, 6)), "wo": np.ones((4, 6, 3)), "scale": np.ones(5)}
    return {"layers": [layer, jax.tree.map(lambda x: 2 * x, layer)], "scale": np.ones(())}


def test_names_by_path():
    names = names_by_path(parameters(), PATTERNS)
    layer = {"wi": ("expert", "embed", "mlp"), "wo": ("expert", "mlp", "embed"), "scale": None}
    assert names == {"layers": [layer, layer], "scale": None}


def test_first_pattern_counts():
    patterns = {r"layers/0/wi": (None, None, None)} | PATTERNS
    names = names_by_path(parameters(), patterns)
    assert names["layers"][0]["wi"] == (None, None, None)
    assert names["layers"][1]["wi"] == ("expert", "embed", "mlp")


def test_every_fault_of_patterns_at_once(refused):
    patterns = {r".*": None, r".*/wi": ("expert", "embed", "mlp"), r"bias": None, r"(": None}
    message = (
        "names_by_path: 3 faults:\n"
        "  pattern '(' is no regular expression: missing ), unterminated subpattern at position 0\n"
        "  pattern '.*/wi' never counts: earlier ones match the same paths\n"
        "  pattern 'bias' matches no path"
    )
    with refused(message):
        names_by_path(parameters(), patterns)


def test_paths_without_a_pattern(refused):
    message = (
        "names_by_path: 2 faults:\n"
        "  no pattern matches layers/0/wo f64[4,6,3]; add one\n"
        "  no pattern matches layers/1/wo f64[4,6,3]; add one"
    )
    with refused(message):
        names_by_path(parameters(), {r".*/wi": None, r".*scale": None})


def assert_as_asked(tree, mesh):
    np.testing.assert_array_equal(tree["layers"][1]["wo"], np.full((4, 6, 3), 2.0))
    for path, spec in (("wi", ("expert", None, "data")), ("wo", ("expert", "data")), ("scale", ())):
        for layer in tree["layers"]:
            sharding = jax.NamedSharding(mesh, PartitionSpec(*spec))
            assert layer[path].sharding.is_equivalent_to(sharding, layer[path].ndim)


def test_annotated_in_and_outside_jit(mesh):
    names = names_by_path(parameters(), PATTERNS)

    def call(tree):
        return annotate_tree(names, tree, rules=RULES, mesh=mesh)

    tree = jax.tree.map(jnp.asarray, parameters())
    for function in (call, jax.jit(call)):
        assert_as_asked(function(tree), mesh)


def test_rules_and_mesh_of_the_scope(mesh):
    names = names_by_path(parameters(), PATTERNS)
    with rules_scope(RULES, mesh):
        assert_as_asked(jax.jit(lambda tree: annotate_tree(names, tree))(parameters()), mesh)


def test_specs_and_shardings_are_the_same(mesh):
    names = names_by_path(parameters(), PATTERNS)
    specs = tree_specs(names, parameters(), RULES, mesh)
    assert specs["layers"][0]["wi"] == PartitionSpec("expert", None, "data")
    shardings = tree_shardings(names, parameters(), RULES, mesh)
    assert_as_asked(jax.device_put(parameters(), shardings), mesh)


FAULTS = (
    ": 3 faults:\n"
    "  dimension 0 of layers/0/a f32[6,3] cannot be split over mesh axis 'expert' of size 4 "
    "(6 % 4 = 2); pad it to 8 or use an axis of size 1, 2, 3 or 6\n"
    "  layers/1/a f32[4] has 1 dimension but 2 names ('expert', 'embed'); give one per dimension "
    "(None: not split)\n"
    "  top f32[3]: no rule for logical name 'embd'; did you mean 'embed'? "
    "(rules: expert, mlp, embed)"
)


@pytest.mark.parametrize("call", [tree_specs, tree_shardings, annotate_tree])
def test_every_fault_of_the_tree_in_one_error(mesh, refused, call):
    tree = {"layers": [{"a": jnp.ones((6, 3))}, {"a": jnp.ones(4)}], "top": jnp.ones(3)}
    names = {"layers": [{"a": ("expert", "embed")}, {"a": ("expert", "embed")}], "top": ("embd",)}
    who = "annotate_tree" if call is annotate_tree else "tree_specs"
    with refused(who + FAULTS):
        call(names, tree, rules=RULES, mesh=mesh)


def test_names_that_had_another_size_in_the_scope(mesh, refused):
    rules = Rules((("batch", "data"), ("length", None)))
    tree, names = {"w": jnp.ones((16, 8)), "v": jnp.ones(8)}, {"w": ("batch", "length"), "v": None}
    lines = pathlib.Path(__file__).read_text("utf-8").splitlines()
    first, second = (
        f"test_trees.py:{next(n for n, text in enumerate(lines, 1) if text.endswith(mark))}"
        for mark in ("# first use", "# swapped")
    )
    with rules_scope(rules, mesh):
        annotate(jnp.ones((8, 16)), "batch", "length")  # first use
        with refused(
            "annotate_tree: 2 faults:\n"
            f"  w f32[16,8]: 'batch' is 8 at {first} and 16 at {second}: are the dimensions "
            "swapped? If it may vary, enter `rules_scope(rules, mesh, varying=('batch',))`\n"
            f"  w f32[16,8]: 'length' is 16 at {first} and 8 at {second}: are the dimensions "
            "swapped? If it may vary, enter `rules_scope(rules, mesh, varying=('length',))`"
        ):
            annotate_tree(names, tree)  # swapped


def test_list_of_rules_stands_once(mesh, refused):
    names = {"a": ("embd",), "b": ("embad",)}
    with refused(
        "tree_specs: 2 faults:\n"
        "  a f32[3]: no rule for logical name 'embd'; did you mean 'embed'? "
        "(rules: expert, mlp, embed)\n"
        "  b f32[3]: no rule for logical name 'embad'; did you mean 'embed'?"
    ):
        tree_specs(names, {"a": jnp.ones(3), "b": jnp.ones(3)}, RULES, mesh)


def test_names_of_another_structure(mesh):
    with pytest.raises(ValueError, match=r"^annotate_tree: the tree of names does not have the st"):
        annotate_tree({"b": ("embed",)}, {"a": jnp.ones(3)}, rules=RULES, mesh=mesh)


def test_born_split_never_whole_on_one_device():
    """Under jit with out_shardings, a tensor of 8 shards is made from shards on each device."""
    mesh = make_mesh({"expert": 8})
    names = {"wi": ("expert", "embed")}

    def init(key):
        return {"wi": jax.random.normal(key, (1024, 512))}

    shapes = jax.eval_shape(init, jax.random.key(0))
    shardings = tree_shardings(names, shapes, RULES.replace(mlp=None), mesh)
    compiled = jax.jit(init, out_shardings=shardings).lower(jax.random.key(0)).compile()
    whole, memory = 1024 * 512 * 4, compiled.memory_analysis()
    assert memory.output_size_in_bytes == whole // 8
    # Random bits, their halves and the bits mixed of them: shards too.
    assert memory.temp_size_in_bytes < 4 * whole // 8
