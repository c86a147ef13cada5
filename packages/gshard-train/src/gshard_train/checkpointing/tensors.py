"""A tree of arrays as named tensors: what a checkpoint holds, without the classes of the tree."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

Path = tuple[str, ...]


def nested(tree: Any) -> dict[str, Any]:
    """A tree as dicts of dicts, keyed by the keys, attributes and indices on the way to a leaf."""
    return _nest(_leaves(tree))


def unnested(tree: dict[str, Any], like: Any, *, otherwise: dict[str, Any] | None = None) -> Any:
    """The inverse of `nested`, in the structure of `like`; what `tree` lacks is in `otherwise`."""
    found = dict(_leaves(otherwise or {})) | dict(_leaves(tree))
    leaves = [found[path] for path, _ in _leaves(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def fitting(saved: Any, wanted: Any) -> dict[str, Any]:
    """The part of the nested tensors `wanted` that is saved with the same shape and dtype."""
    have, want = _by_name(saved), _by_name(wanted)
    return _nest(
        (path, leaf)
        for path, leaf in _leaves(wanted)
        if have.get("/".join(path)) == want["/".join(path)]
    )


def without(tree: Any, part: Any) -> dict[str, Any]:
    """The nested tensors of a tree that are not among those of another."""
    names = {path for path, _ in _leaves(part)}
    return _nest((path, leaf) for path, leaf in _leaves(tree) if path not in names)


def differences(saved: Any, wanted: Any) -> list[str]:
    """One sentence for each tensor that only one tree has, or that has another shape or dtype."""
    have, want = _by_name(saved), _by_name(wanted)
    lines = []
    # Parameters first: what the optimizer holds differs wherever they do.
    for name in sorted({*have, *want}, key=lambda name: (not name.startswith("params"), name)):
        if name not in have:
            lines.append(f"{name} {want[name]} is not in the checkpoint")
        elif name not in want:
            lines.append(f"{name} {have[name]} is not in the model")
        elif have[name] != want[name]:
            lines.append(f"{name} is {have[name]} in the checkpoint and {want[name]} in the model")
    return lines


def listed(tree: Any) -> list[tuple[str, Any]]:
    """Each tensor with its name, such as "params/output"."""
    return [("/".join(path), leaf) for path, leaf in _leaves(tree)]


def _nest(leaves: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    top: dict[str, Any] = {}
    for path, leaf in leaves:
        inner = top
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = leaf
    return top


def _leaves(tree: Any) -> list[tuple[Path, Any]]:
    """Each leaf with the names on its way."""
    return [
        (tuple(jax.tree_util.keystr((key,), simple=True) for key in path), leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _by_name(tree: Any) -> dict[str, str]:
    """The dtype and shape of each tensor."""
    return {name: f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}" for name, leaf in listed(tree)}
