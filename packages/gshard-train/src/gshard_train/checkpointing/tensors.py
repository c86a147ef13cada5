"""A tree of arrays as named tensors: what a checkpoint holds, without the classes of the tree."""

from typing import Any

import jax
import numpy as np


def nested(tree: Any) -> dict[str, Any]:
    """A tree as dicts of dicts, keyed by the keys, attributes and indices on the way to a leaf."""
    top: dict[str, Any] = {}
    for path, leaf in _leaves(tree):
        inner = top
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = leaf
    return top


def unnested(tree: dict[str, Any], like: Any) -> Any:
    """The inverse of `nested`, in the structure of `like`."""
    leaves = []
    for path, _ in _leaves(like):
        leaf: Any = tree
        for name in path:
            leaf = leaf[name]
        leaves.append(leaf)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


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


def _leaves(tree: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Each leaf with the names on its way."""
    return [
        (tuple(jax.tree_util.keystr((key,), simple=True) for key in path), leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _by_name(tree: Any) -> dict[str, str]:
    """The dtype and shape of each tensor."""
    return {
        "/".join(path): f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}"
        for path, leaf in _leaves(tree)
    }
