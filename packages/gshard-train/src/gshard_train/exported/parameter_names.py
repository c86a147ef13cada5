"""The names of a model's tensors outside of this package: the way to a parameter, with dots.

`encoder.first.attention.wq` holds all layers of a stack, `encoder.0.first.attention.wq` is one of
them.
"""

from typing import Any, NamedTuple

import jax

from gshard_train.state import Model, Params

Path = tuple[str, ...]


class Tensor(NamedTuple):
    """What a name stands for: a parameter, or one layer of it."""

    path: Path
    layer: int | None


def tensors(model: Model, *, split_layers: bool) -> dict[str, Tensor]:
    """All names of a model; with `split_layers` one for each layer of a stack."""
    shapes, found = by_path(model.shapes()), {}
    all_names = by_path(model.names(), is_leaf=lambda node: isinstance(node, tuple))
    for path, names in all_names.items():
        if not (split_layers and names[0] == "layer"):
            found[".".join(path)] = Tensor(path, None)
            continue
        for layer in range(shapes[path].shape[0]):
            found[".".join((path[0], str(layer), *path[1:]))] = Tensor(path, layer)
    return found


def by_path(tree: Any, is_leaf: Any = None) -> dict[Path, Any]:
    """The leaves of nested dicts by the keys on their way."""
    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)[0]
    return {
        tuple(jax.tree_util.keystr((key,), simple=True) for key in path): leaf
        for path, leaf in leaves
    }


def nested(leaves: dict[Path, Any]) -> Params:
    """The inverse of `by_path`."""
    top: Params = {}
    for path, leaf in leaves.items():
        inner = top
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = leaf
    return top
