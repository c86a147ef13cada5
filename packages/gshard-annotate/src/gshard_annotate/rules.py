"""Logical axis names to mesh axes: first match wins, and every fault of a tree in one error."""

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    axes_tuple,
    describe,
    did_you_mean,
    mesh_sizes,
    raise_faults,
    spec_faults,
)

Names = Sequence[str | None]


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which mesh axes split a dimension of a given logical name.

    Attributes:
      pairs: (logical name, mesh axis, tuple of mesh axes, or None for not split); the first
        pair of a name counts.
      optional_axes: Mesh axes that a mesh may lack; a dimension is then not split over them.
    """

    pairs: tuple[tuple[str, MeshAxes], ...]
    optional_axes: tuple[str, ...] = ("model",)

    def mesh_axes(self, name: str | None, mesh: Mesh | AbstractMesh) -> MeshAxes:
        """The mesh axes that split a dimension called `name`; None when nothing does.

        Raises:
          KeyError: No rule has this name.
        """
        if name is None:
            return None
        found = [axes_tuple(axes) for key, axes in self.pairs if key == name]
        if not found:
            raise KeyError(name)
        kept = tuple(a for a in found[0] if a in mesh.shape or a not in self.optional_axes)
        return kept[0] if len(kept) == 1 else kept or None

    def spec(self, names: Names, *, mesh: Mesh | AbstractMesh) -> PartitionSpec:
        """The PartitionSpec of an array whose dimensions have these logical names.

        Raises:
          ValueError: Names without a rule, mesh axes that the mesh lacks, or one used twice.
        """
        faults = self.unknown_names("names", names)
        axes = [] if faults else [self.mesh_axes(name, mesh) for name in names]
        what = f"({', '.join(map(str, names))})"
        raise_faults("Rules.spec", faults or spec_faults(what, [0] * len(axes), axes, mesh.shape))
        return PartitionSpec(*axes)

    def unknown_names(self, what: str, names: Names) -> list[str]:
        """One sentence for each logical name that has no rule."""
        known = list(dict.fromkeys(key for key, _ in self.pairs))
        return [
            f"{what}: no rule for logical name '{name}'{did_you_mean(name, known)} "
            f"(rules: {', '.join(known) or 'none'})"
            for name in names
            if name is not None and name not in known
        ]


DEFAULT_RULES = Rules(
    (
        # Activations. Groups are split over data and expert together: over data alone the
        # compiler gathers tokens instead of exchanging them.
        ("batch", ("data", "expert")),
        ("group", ("data", "expert")),
        ("dispatched_group", "data"),
        ("group_token", None),
        ("length", None),
        ("capacity", None),
        ("act_embed", None),
        ("act_mlp", "model"),
        ("act_heads", "model"),
        # Parameters.
        ("expert", "expert"),
        ("mlp", "model"),
        ("heads", "model"),
        ("vocab", "model"),
        ("embed", None),
        ("head_dim", None),
        ("layer", None),
        ("router", None),
        ("norm", None),
    )
)


class Scope(NamedTuple):
    """Rules and mesh that `annotate` uses where none is passed."""

    rules: Rules
    mesh: Mesh | AbstractMesh


_SCOPE: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("scope", default=None)


@contextlib.contextmanager
def rules_scope(rules: Rules, mesh: Mesh | AbstractMesh) -> Iterator[Scope]:
    """Gives `annotate` and its siblings these rules and this mesh inside the `with` block.

    Open it inside the function that is jitted: JAX reuses a traced function without looking at
    the scope, so a scope around the call does not reach a program traced under another one.
    """
    token = _SCOPE.set(Scope(rules, mesh))
    try:
        yield Scope(rules, mesh)
    finally:
        _SCOPE.reset(token)


def current_scope() -> Scope | None:
    """The innermost `rules_scope`, or None outside of all."""
    return _SCOPE.get()


def tree_specs(names_tree: Any, shapes_tree: Any, rules: Rules, mesh: Mesh | AbstractMesh) -> Any:
    """The PartitionSpec of each array of a tree.

    Args:
      names_tree: The tree with a tuple of logical names (None: not split) for each array, or
        None for an array that is not split at all.
      shapes_tree: The tree of arrays or of `jax.ShapeDtypeStruct`.
      rules: What the names mean.
      mesh: Where the arrays go.

    Raises:
      ValueError: Everything that is wrong with any array of the tree, with its path.
    """
    paths_and_leaves, treedef = jax.tree_util.tree_flatten_with_path(shapes_tree)
    names_leaves = _names_leaves(names_tree, treedef)
    faults, specs = [], []
    for (path, leaf), names in zip(paths_and_leaves, names_leaves, strict=True):
        what = f"{jax.tree_util.keystr(path, simple=True, separator='/')} {describe(leaf)}"
        names = (None,) * len(leaf.shape) if names is None else tuple(names)
        found, spec = names_faults(what, leaf.shape, names, rules, mesh)
        faults += found
        specs.append(PartitionSpec(*spec))
    raise_faults("tree_specs", faults)
    return treedef.unflatten(specs)


def tree_shardings(names_tree: Any, shapes_tree: Any, rules: Rules, mesh: Mesh) -> Any:
    """The NamedSharding of each array of a tree, for `jit` in and out shardings; see tree_specs."""
    specs = tree_specs(names_tree, shapes_tree, rules, mesh)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def names_faults(
    what: str, shape: Sequence[int], names: Names, rules: Rules, mesh: Mesh | AbstractMesh
) -> tuple[list[str], list[MeshAxes]]:
    """What is wrong with these names for an array of this shape, and the mesh axes they mean."""
    if len(names) != len(shape):
        count = f"{len(shape)} dimension{'s' if len(shape) != 1 else ''}"
        given = f"{len(names)} name{'s' if len(names) != 1 else ''} {tuple(names)}"
        return [f"{what} has {count} but {given}; give one per dimension (None: not split)"], []
    if faults := rules.unknown_names(what, names):
        return faults, []
    axes = [rules.mesh_axes(name, mesh) for name in names]
    return spec_faults(what, shape, axes, mesh_sizes(mesh)), axes


def _names_leaves(names_tree: Any, treedef: Any) -> list[Any]:
    try:
        return treedef.flatten_up_to(names_tree)
    except ValueError as error:
        raise ValueError(
            f"tree_specs: the tree of names does not have the structure of the tree of arrays "
            f"({error}); give a tuple of names for each array"
        ) from error
