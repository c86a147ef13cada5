"""The compiled program is the one that raw JAX gives, instruction for instruction."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import Rules, annotate, mesh_split, replicate, rules_scope, split

RULES = Rules(
    (
        ("group", ("data", "expert")),
        ("dispatched_group", "data"),
        ("expert", "expert"),
        ("token", None),
        ("capacity", None),
        ("embed", None),
    )
)
SHAPES = (
    jax.ShapeDtypeStruct((8, 6, 5), jnp.float32),  # groups, tokens, width
    jax.ShapeDtypeStruct((4, 5, 7), jnp.float32),  # experts' first matrix
    jax.ShapeDtypeStruct((4, 7, 5), jnp.float32),  # experts' second matrix
)


def moe(annotation):
    """Dispatch, experts and combine, with every array annotated by `annotation(x, *names)`."""

    def loss(x, wi, wo):
        x = annotation(x, "group", "token", "embed")
        wi = annotation(wi, "expert", "embed", None)
        gates = jax.nn.softmax(x @ wi[:, :, 0].T)
        sent = annotation(jnp.einsum("GSE,GSM->EGSM", gates, x), None, "group", None, None)
        sent = annotation(sent, "expert", "dispatched_group", "capacity", "embed")
        hidden = jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", sent, wi))
        back = jnp.einsum("EGCH,EHM->EGCM", hidden, annotation(wo, "expert", None, "embed"))
        back = annotation(back, "expert", "dispatched_group", "capacity", "embed")
        back = annotation(back, None, "group", None, None)
        return annotation(jnp.einsum("EGSM->GSM", back), "group", "token", "embed").sum()

    return loss


def instructions(function):
    """The compiled program's instructions without what only says where they come from.

    Instructions and parameters are named anew in the order in which they appear: XLA numbers them
    by what it built before in the process.
    """
    text = jax.jit(jax.value_and_grad(function, (0, 1, 2))).lower(*SHAPES).compile().as_text()
    text = re.sub(r", metadata=\{[^}]*\}", "", text)
    names = {}
    text = re.sub(
        r"%[\w.-]+|\b[\w.-]+(?=: \(?[a-z]+\d*\[)",
        lambda name: names.setdefault(name[0].lstrip("%"), f"%{len(names)}"),
        text,
    )
    return [line.strip() for line in text.splitlines() if re.match(r"\s*(ROOT )?%|ENTRY", line)]


def raw(mesh):
    def annotation(x, *names):
        sharding = NamedSharding(mesh, RULES.spec(names, mesh=mesh))
        return jax.lax.with_sharding_constraint(x, sharding)

    return annotation


def test_logical_names_compile_to_what_raw_constraints_do(mesh):
    def ours(*arguments):
        with rules_scope(RULES, mesh):
            return moe(annotate)(*arguments)

    expected = instructions(moe(raw(mesh)))
    assert instructions(ours) == expected
    assert sum("all-to-all" in line for line in expected) > 0


def test_labels_stand_in_the_metadata(mesh):
    def ours(x):
        with rules_scope(RULES, mesh):
            return annotate(x, "expert", None) * 2

    text = jax.jit(ours).lower(jnp.ones((8, 3))).as_text(debug_info=True)
    assert '"jit(ours)/annotate[expert,-]/sharding_constraint"' in text


@pytest.mark.parametrize(
    ("ours", "spec"),
    [
        (lambda x, mesh: replicate(x, mesh=mesh), PartitionSpec(None, None, None)),
        (lambda x, mesh: split(x, 0, "expert", mesh=mesh), PartitionSpec("expert", None, None)),
        (
            lambda x, mesh: mesh_split(x, [0, 1], ["expert", "data"], mesh=mesh),
            PartitionSpec("expert", "data", None),
        ),
    ],
)
@pytest.mark.parametrize("explicit", [False, True])
def test_primitives_compile_to_what_raw_jax_does(mesh, ours, spec, explicit):
    mesh = jax.make_mesh((2, 4), ("data", "expert")) if explicit else mesh
    constrain = jax.sharding.reshard if explicit else jax.lax.with_sharding_constraint

    def program(annotation):
        def function(x, wi, wo):
            return jnp.tanh(annotation(x * 2)).sum() + wi.sum() + wo.sum()

        return function

    with jax.set_mesh(mesh):
        expected = instructions(program(lambda x: constrain(x, NamedSharding(mesh, spec))))
        assert instructions(program(lambda x: ours(x, mesh))) == expected
