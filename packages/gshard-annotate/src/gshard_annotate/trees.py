"""Whole trees of arrays: their shardings by rules, every fault of any of them in one error."""

import re
from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    describe,
    kind_of,
    mesh_sizes,
    raise_faults,
    report_faults,
    spec_faults,
    usable_axes,
)
from gshard_annotate.placement import AnyMesh, find_mesh, place
from gshard_annotate.rules import DEFAULT_RULES, Names, Rules, need_rules
from gshard_annotate.scope import Scope, current_scope


def annotate_tree(
    names_tree: Any, tree: Any, *, rules: Rules | None = None, mesh: AnyMesh | None = None
) -> Any:
    """The tree with each array split as the rules say for the logical names of its dimensions.

    Args:
      names_tree: The tree with a tuple of logical names (None: not split) for each array, or
        None for an array that is not split at all; `names_by_path` makes one.
      tree: The tree of arrays.
      rules: What the names mean, when not as in the scope; outside of any, `DEFAULT_RULES`.
      mesh: The mesh, when it is not that of the scope.

    Raises:
      ValueError: Everything that is wrong with any array of the tree, with its path.
    """
    scope = current_scope()
    rules = rules or (scope.rules if scope else DEFAULT_RULES)
    mesh = find_mesh("annotate_tree", mesh)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    # One device without a mesh: nothing to split over, but a wrong name is still wrong.
    on = AbstractMesh((), ()) if mesh is None else mesh
    rules = Rules(tuple((name, None) for name, _ in rules.pairs)) if mesh is None else rules
    axes = _axes_of_leaves("annotate_tree", names_tree, leaves, treedef, rules, on, scope)
    if mesh is None:
        return tree
    placed = [
        # Slashes part the operations in a name.
        place("annotate_tree", f"annotate_tree[{_path(path, '.')}]", leaf, each, mesh)
        if each is not None
        else leaf
        for (path, leaf), each in zip(leaves, axes, strict=True)
    ]
    return treedef.unflatten(placed)


def tree_specs(names_tree: Any, shapes_tree: Any, rules: Rules, mesh: AnyMesh) -> Any:
    """The PartitionSpec of each array of a tree.

    Args:
      names_tree: The tree with a tuple of logical names (None: not split) for each array, or
        None for an array that is not split at all; `names_by_path` makes one.
      shapes_tree: The tree of arrays or of `jax.ShapeDtypeStruct`.
      rules: What the names mean.
      mesh: Where the arrays go.

    Raises:
      ValueError: Everything that is wrong with any array of the tree, with its path.
    """
    leaves, treedef = jax.tree_util.tree_flatten_with_path(shapes_tree)
    axes = _axes_of_leaves("tree_specs", names_tree, leaves, treedef, rules, mesh)
    return treedef.unflatten([PartitionSpec(*each or ()) for each in axes])


def tree_shardings(names_tree: Any, shapes_tree: Any, rules: Rules, mesh: Mesh) -> Any:
    """The NamedSharding of each array of a tree, for `jit` in and out shardings; see tree_specs."""
    specs = tree_specs(names_tree, shapes_tree, rules, mesh)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def names_by_path(tree: Any, patterns: Mapping[str, Names | None]) -> Any:
    """The logical names of each array of a tree, from the first pattern that its path matches.

    Args:
      tree: The tree of arrays or of `jax.ShapeDtypeStruct`.
      patterns: Names (None: not split at all) by regular expression over the whole path, whose
        parts are joined by `/`, as in `layers/3/mlp/wi`.

    Raises:
      ValueError: Paths that no pattern matches, patterns that match no path or that an earlier
        one always forestalls, and expressions that are none.
    """
    if not isinstance(patterns, Mapping):
        raise TypeError(
            f"names_by_path: patterns is {kind_of(patterns)}; give names by regular expression"
        )
    compiled, faults = _compiled(patterns)
    faults += [
        f"pattern {pattern!r} has the names {kind_of(names)}; give a tuple"
        for pattern, names in patterns.items()
        if not isinstance(names, tuple | list | None)
    ]
    used, reached, names = set(), set(), []
    leaves, treedef = jax.tree_util.tree_flatten_with_path(tree)
    for path, leaf in leaves:
        found = [each for each, pattern in compiled.items() if pattern.fullmatch(_path(path))]
        if not found:
            faults.append(f"no pattern matches {_path(path)} {describe(leaf)}; add one")
        used |= set(found[:1])
        reached |= set(found)
        names.append(patterns[found[0]] if found else None)
    for each in compiled:
        if each not in reached:
            faults.append(f"pattern {each!r} matches no path")
        elif each not in used:
            faults.append(f"pattern {each!r} never counts: earlier ones match the same paths")
    raise_faults("names_by_path", faults)
    return treedef.unflatten([each if each is None else tuple(each) for each in names])


def _compiled(patterns: Mapping[str, Any]) -> tuple[dict[str, re.Pattern[str]], list[str]]:
    compiled, faults = {}, []
    for pattern in patterns:
        try:
            compiled[pattern] = re.compile(pattern)
        except re.error as error:
            faults.append(f"pattern {pattern!r} is no regular expression: {error}")
    return compiled, faults


def _axes_of_leaves(
    who: str,
    names_tree: Any,
    leaves: list[Any],
    treedef: Any,
    rules: Rules,
    mesh: AnyMesh,
    scope: Scope | None = None,
) -> list[list[MeshAxes] | None]:
    """What splits each dimension of each array (None: no array); all faults at once."""
    need_rules(who, rules)
    if not isinstance(mesh, AnyMesh):
        raise TypeError(f"{who}: mesh is {kind_of(mesh)}; give a Mesh, as make_mesh makes one")
    sizes, faults, found = mesh_sizes(mesh), [], []
    for (path, leaf), names in zip(leaves, _names_leaves(who, names_tree, treedef), strict=True):
        if not hasattr(leaf, "shape") or isinstance(names, str):
            faults.append(_no_array_or_names(path, leaf, names))
            found.append(None)
            continue
        names = (None,) * len(leaf.shape) if names is None else tuple(names)
        axes: list[MeshAxes] = [None] * len(leaf.shape)
        if wrong := rules.names_faults("", leaf.shape, names):
            # Described only when needed: a tree has thousands of arrays, most of them right.
            wrong = rules.names_faults(_describe(path, leaf), leaf.shape, names)
        else:
            axes = [rules.mesh_axes(name, mesh) for name in names]
            if scope is not None:
                wrong = scope.size_faults(names, leaf.shape)
                wrong = [f"{_describe(path, leaf)}: {fault}" for fault in wrong]
            if spec_faults("", leaf.shape, axes, sizes):
                wrong += spec_faults(_describe(path, leaf), leaf.shape, axes, sizes)
                axes = usable_axes(leaf.shape, axes, sizes)
        faults += wrong
        found.append(axes)
    report_faults(who, _rules_once(faults))
    return found


def _rules_once(faults: list[str]) -> list[str]:
    """The faults without the list of all rules, but for the first that has it."""
    with_list = [fault for fault in faults if " (rules: " in fault]
    return [
        fault if fault not in with_list[1:] else fault[: fault.rindex(" (rules: ")]
        for fault in faults
    ]


def _no_array_or_names(path: Any, leaf: Any, names: Any) -> str:
    if not hasattr(leaf, "shape"):
        return f"{_path(path)} is {kind_of(leaf)}; give an array or jax.ShapeDtypeStruct"
    return f"{_describe(path, leaf)} has the names {kind_of(names)}; give a tuple"


def _describe(path: Any, leaf: Any) -> str:
    return f"{_path(path)} {describe(leaf)}".strip()


def _path(path: Any, separator: str = "/") -> str:
    return jax.tree_util.keystr(path, simple=True, separator=separator)


def _names_leaves(who: str, names_tree: Any, treedef: Any) -> list[Any]:
    try:
        return treedef.flatten_up_to(names_tree)
    except ValueError as error:
        raise ValueError(
            f"{who}: the tree of names does not have the structure of the tree of arrays "
            f"({error}); give a tuple of names for each array"
        ) from error
