"""Where the state of an optimizer lives on the mesh."""

from typing import Any

import jax
import optax
from jax.sharding import Mesh
from jax.tree_util import DictKey, GetAttrKey

from gshard_annotate import Rules, tree_shardings
from gshard_train.matrix_views import MatrixView, Names, matrix_view, moment_names


def state_shardings(
    optimizer: optax.GradientTransformation, shapes: Any, names: Any, rules: Rules, mesh: Mesh
) -> Any:
    """A sharding for each array of the optimizer's state.

    An array that stands in the state under a parameter's path is split like the parameter if it
    has its shape, and like what is left of it if it is a factored second moment of optax or of
    `adafactor`. Counters and everything else are replicated.

    Args:
      optimizer: the transformation.
      shapes: tree of `jax.ShapeDtypeStruct`, nested dicts.
      names: tree of the same structure with the names of each parameter's dimensions.
      rules: what the names mean.
      mesh: where the arrays go.

    Raises:
      ValueError: what does not fit, with its path in the state.
    """
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    flat_names = jax.tree.structure(shapes).flatten_up_to(names)
    params = {
        path: (leaf.shape, tuple(each))
        for (path, leaf), each in zip(leaves, flat_names, strict=True)
    }
    state = jax.eval_shape(optimizer.init, shapes)
    found = jax.tree_util.tree_map_with_path(
        lambda path, leaf: _names_of(path, leaf.shape, params), state
    )
    return tree_shardings(found, state, rules, mesh)


def _names_of(path: tuple, shape: tuple[int, ...], params: dict[tuple, tuple]) -> Names:
    """The names of the dimensions of one array of the state."""
    # The parameter's path is the run of dict keys at the end; before it stands the field.
    start = len(path)
    while start and isinstance(path[start - 1], DictKey):
        start -= 1
    belongs = params.get(path[start:])
    if belongs is not None:
        before: Any = path[start - 1] if start else None
        field = before.name if isinstance(before, GetAttrKey) else ""
        for view in (matrix_view(*belongs), MatrixView(0, *belongs)):
            if (found := moment_names(field, view, shape)) is not None:
                return found
    return (None,) * len(shape)
