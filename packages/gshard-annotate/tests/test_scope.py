"""Within a scope a logical name has one size; rules fit the mesh."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from gshard_annotate import DEFAULT_RULES, Rules, annotate, mesh_split, rules_scope
from gshard_annotate.scope import current_scope

RULES = Rules((("batch", ("data", "expert")), ("length", None), ("embed", None)))
HERE = pathlib.Path(__file__).name


def line_of(text):
    lines = pathlib.Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))


def swapped(first, second):
    return (
        f"annotate: 'batch' is 8 at {HERE}:{first} and 16 at {HERE}:{second}: are the dimensions "
        "swapped? If it may vary, enter `rules_scope(rules, mesh, varying=('batch',))`"
    )


def test_swapped_dimensions_name_both_lines(mesh, refused):
    first, second = line_of("# first use"), line_of("# swapped")
    message = (
        "annotate: 2 faults:\n  "
        + swapped(first, second).removeprefix("annotate: ")
        + f"\n  'length' is 16 at {HERE}:{first} and 8 at {HERE}:{second}: are the dimensions "
        "swapped? If it may vary, enter `rules_scope(rules, mesh, varying=('length',))`"
    )

    def model(x):
        with rules_scope(RULES, mesh):
            x = annotate(x, "batch", "length", "embed")  # first use
            return annotate(x.swapaxes(0, 1), "batch", "length", "embed")  # swapped

    with refused(message):
        jax.jit(model)(jnp.ones((8, 16, 3)))


# What traces its function apart from the program around it.
TRACED_APART = {
    "scan": lambda f, x: jax.lax.scan(lambda c, _: (f(c), None), x, length=2)[0],
    "vmap": lambda f, x: jax.vmap(f)(jnp.stack([x, x])),
    "remat": lambda f, x: jax.checkpoint(f)(x),
    "jit": lambda f, x: jax.jit(f)(x),
    "grad": lambda f, x: jax.grad(lambda x: f(x).sum())(x),
    "cond": lambda f, x: jax.lax.cond(x.sum() > 0, f, f, x),
}


@pytest.mark.parametrize("case", TRACED_APART)
def test_holds_through_what_traces_apart(mesh, refused, case):
    def inner(x):
        return annotate(x.T, "batch", "length").T  # inside

    def model(x):
        with rules_scope(RULES, mesh):
            annotate(x, "batch", None)  # outside
            return TRACED_APART[case](inner, x)

    with refused(swapped(line_of("# outside"), line_of("# inside"))):
        jax.jit(model)(jnp.ones((8, 16)))


def test_mesh_split_by_name_counts_too(mesh, refused):
    with rules_scope(RULES, mesh):
        annotate(jnp.ones((8, 5)), "batch", "length")  # eager
        with refused(
            f"mesh_split: 'length' is 5 at {HERE}:{line_of('# eager')} and 6 at "
            f"{HERE}:{line_of('# other')}: are the dimensions swapped? If it may vary, enter "
            "`rules_scope(rules, mesh, varying=('length',))`"
        ):
            mesh_split(jnp.ones((6, 8)), ["length"], [None], names=("length", "batch"))  # other


@pytest.mark.parametrize("where", ["scope", "rules"])
def test_declared_names_may_vary(mesh, where):
    rules = RULES if where == "scope" else Rules(RULES.pairs, varying=("length",))
    with rules_scope(rules, mesh, varying=("length",) if where == "scope" else ()):
        for length in (3, 5):
            annotate(jnp.ones((8, length)), "batch", "length")


def test_groups_may_vary_by_default(mesh):
    with rules_scope(DEFAULT_RULES, mesh):
        annotate(jnp.ones((8, 5, 3)), "group", "group_token", "act_embed")
        annotate(jnp.ones((16, 7, 3)), "group", "group_token", "act_embed")


def test_each_scope_begins_anew(mesh):
    for batch in (8, 16):
        with rules_scope(RULES, mesh):
            annotate(jnp.ones((batch, 3)), "batch", None)
            with rules_scope(RULES, mesh):
                annotate(jnp.ones((batch * 2, 3)), "batch", None)
            annotate(jnp.ones((batch, 3)), "batch", None)


def test_outside_of_any_scope_sizes_are_free(mesh):
    for batch in (8, 16):
        annotate(jnp.ones((batch, 3)), "batch", None, rules=RULES, mesh=mesh)


def test_scope_ends_with_its_block(mesh):
    with rules_scope(RULES, mesh) as scope:
        assert current_scope() is scope
    assert current_scope() is None


def test_mesh_split_takes_its_axes_from_the_rules_of_the_scope(mesh, refused):
    q = jnp.arange(4 * 6 * 8.0).reshape(4, 6, 8)
    names = ("length", "embed", "batch")
    with rules_scope(RULES, mesh):
        y = jax.jit(lambda q: mesh_split(q, ["batch"], names=names))(q)
        with refused(
            "mesh_split: dimension 0 is given by position; give its mesh_axes, or its name"
        ):
            mesh_split(q, [0], names=names)
        with refused(
            "mesh_split: dims: no rule for logical name 'heads' (rules: batch, length, embed)"
        ):
            mesh_split(q, ["heads"], names=("length", "heads", "batch"))
    np.testing.assert_array_equal(y, q)
    assert y.sharding.spec == PartitionSpec(None, None, ("data", "expert"))
    with refused("mesh_split: no mesh_axes; give them, or enter `rules_scope(rules, mesh)`"):
        mesh_split(q, ["batch"], names=names, mesh=mesh)


def test_every_rule_that_names_no_axis_of_the_mesh(mesh, refused):
    rules = Rules((("batch", ("dat", "expert")), ("mlp", "model"), ("heads", "pipe")))
    message = (
        "rules_scope: 3 faults:\n"
        "  rule ('batch', ('dat', 'expert')) names mesh axis 'dat': the mesh has data=2, expert=4; "
        "did you mean 'data'?\n"
        "  rule ('heads', 'pipe') names mesh axis 'pipe': the mesh has data=2, expert=4\n"
        "  varying: no rule for logical name 'head'; did you mean 'heads'? "
        "(rules: batch, mlp, heads)"
    )
    with refused(message), rules_scope(rules, mesh, varying=("head",)):
        pass


def test_rule_that_never_counts(refused):
    message = (
        "Rules: pair 3 ('batch', None) never counts: pair 1 ('batch', 'data') has that name too; "
        "keep one, or use rules.replace(batch=...)"
    )
    with refused(message):
        Rules((("batch", "data"), ("embed", None), ("batch", None)))


def test_replace(mesh):
    rules = RULES.replace(batch="data", heads="expert")
    assert rules.spec(("batch", "heads", "embed"), mesh=mesh) == PartitionSpec(
        "data", "expert", None
    )
    assert RULES.spec(("batch",), mesh=mesh) == PartitionSpec(("data", "expert"))


def test_lists_as_a_configuration_gives_them(mesh):
    rules = Rules([["batch", ["data", "expert"]], ["embed", None]])
    y = annotate(jnp.ones((8, 3)), "batch", "embed", rules=rules, mesh=mesh)
    assert y.sharding.spec == PartitionSpec(("data", "expert"), None)
