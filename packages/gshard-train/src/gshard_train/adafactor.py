"""Adafactor's direction (arXiv 1804.04235) for stacked layers and experts.

Each layer of a stack and each expert is a matrix of its own: statistics, clipping and parameter
scale are those of optax for one matrix, mapped over the dimensions named "layer" and "expert".
GShard's authors' code factors over the two largest dimensions instead, which for its experts
[E=2048, M=1024, H=8192] are H and E: one expert's update then depends on the others.

Axes: R rows, C columns of one matrix.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

MAPPED = ("layer", "expert")
# One dimension of a matrix, as T5X's rules have it: [embed, heads, head_dim] is embed x the rest.
JOINED = ("heads", "head_dim")

Names = tuple[str | None, ...]


class MatrixView(NamedTuple):
    """A parameter seen as matrices (or vectors), one for each index of its first dimensions."""

    mapped: int  # how many dimensions are mapped over
    shape: tuple[int, ...]
    names: Names

    @property
    def matrix_size(self) -> int:
        """Entries of one matrix."""
        return math.prod(self.shape[self.mapped :])


def matrix_view(shape: tuple[int, ...], names: Names) -> MatrixView:
    """How a parameter is seen: layers and experts first, heads joined with their width."""
    mapped = next((i for i, name in enumerate(names) if name not in MAPPED), len(names))
    for i in range(mapped, len(names) - 1):
        if names[i : i + 2] == JOINED:
            joined = math.prod(shape[i : i + 2])
            return MatrixView(
                mapped, (*shape[:i], joined, *shape[i + 2 :]), names[: i + 1] + names[i + 2 :]
            )
    return MatrixView(mapped, shape, names)


def scale_by_adafactor(
    names: Any,
    *,
    decay_rate: float,
    clipping_threshold: float | None,
    multiply_by_parameter_scale: bool,
    min_dim_size_to_factor: int,
    epsilon1: float,
    epsilon2: float,
) -> optax.GradientTransformation:
    """The update's direction without a learning rate; the state is optax's `FactoredState`.

    Args:
      names: tree with the tuple of names of each parameter's dimensions.
      decay_rate: the second moment's decay at update t, from 1, is 1 - t ** -decay_rate.
      clipping_threshold: highest root mean square of a matrix's update; None for no limit.
      multiply_by_parameter_scale: whether updates are relative to the matrix's own size.
      min_dim_size_to_factor: matrices with a smaller side keep their whole second moment.
      epsilon1: added to squared gradients.
      epsilon2: the least size of a matrix that updates are relative to.
    """
    moments = optax.scale_by_factored_rms(
        decay_rate=decay_rate,
        min_dim_size_to_factor=min_dim_size_to_factor,
        epsilon=epsilon1,
    )

    def first(param_RC: Array) -> tuple[Array, ...]:
        made: Any = moments.init(param_RC)
        return made[1:]

    def one(count: Array, param_RC: Array, grad_RC: Array, *kept: Array) -> tuple[Array, ...]:
        before: Any = optax.FactoredState(count, *kept)
        made: Any = moments.update(grad_RC, before, param_RC)
        update_RC, after = made
        # An array that optax makes anew to hold nothing stays the one that was there.
        nothing = _unused(param_RC.shape, min_dim_size_to_factor)
        fields = (
            old if name in nothing else getattr(after, name)
            for name, old in zip(after._fields[1:], kept, strict=True)
        )
        return update_RC, jnp.square(update_RC).sum(), jnp.square(param_RC).sum(), *fields

    def limits(of_updates: Array, of_params: Array, sizes: Array) -> tuple[Array, Array]:
        divisor, factor = jnp.ones_like(of_updates), jnp.ones_like(of_params)
        if clipping_threshold is not None:
            divisor = jnp.maximum(1.0, jnp.sqrt(of_updates / sizes) / clipping_threshold)
        if multiply_by_parameter_scale:
            # optax's function takes the mean twice, for the sake of a gradient that nobody takes.
            factor = jnp.maximum(jnp.sqrt(of_params / sizes), epsilon2)
        return divisor, factor

    def init(params: Any) -> optax.FactoredState:
        leaves, treedef = jax.tree.flatten(params)
        made = [
            _mapped(first, view)(leaf.reshape(view.shape))
            for leaf, view in zip(leaves, _views(leaves, treedef, names), strict=True)
        ]
        return optax.FactoredState(
            jnp.zeros((), jnp.int32),
            *(treedef.unflatten(field) for field in zip(*made, strict=True)),
        )

    def update(updates: Any, state: Any, params: Any = None):
        if params is None:
            raise ValueError("scale_by_adafactor: update needs the parameters too")
        leaves, treedef = jax.tree.flatten(params)
        views = _views(leaves, treedef, names)
        kept = zip(*(treedef.flatten_up_to(field) for field in state[1:]), strict=True)
        rows = zip(views, leaves, treedef.flatten_up_to(updates), kept, strict=True)
        made = [
            _mapped(functools.partial(one, state.count), view)(
                param.reshape(view.shape), grad.reshape(view.shape), *moment
            )
            for view, param, grad, moment in rows
        ]
        new, of_updates, of_params, *fields = zip(*made, strict=True)
        sizes = [view.matrix_size for view in views]
        found = _at_once(limits, of_updates, of_params, sizes)
        limited = zip(new, leaves, found, strict=True)
        new = [
            (update / _to_rank(divisor, update) * _to_rank(factor, update)).reshape(leaf.shape)
            for update, leaf, (divisor, factor) in limited
        ]
        count = optax.safe_increment(state.count)
        return treedef.unflatten(new), optax.FactoredState(
            count, *(treedef.unflatten(field) for field in fields)
        )

    return optax.GradientTransformation(init, update)


def moment_names(field: str, view: MatrixView, shape: tuple[int, ...]) -> Names | None:
    """The names of the dimensions of one array of a `FactoredState`; None when it is no such.

    Args:
      field: `v_row`, `v_col` or `v`.
      view: of the parameter that the array belongs to.
      shape: of the array.
    """
    if shape == view.shape:
        return view.names
    if shape == (*view.shape[: view.mapped], 1):  # what optax keeps where it keeps nothing
        return (*view.names[: view.mapped], None)
    matrix = view.shape[view.mapped :]
    if len(matrix) < 2 or field not in ("v_row", "v_col"):
        return None
    # The mean over its largest dimension makes v_row, that over the second largest v_col.
    largest = np.argsort(matrix)[::-1]
    gone = view.mapped + int(largest[0 if field == "v_row" else 1])
    left = view.shape[:gone] + view.shape[gone + 1 :]
    return view.names[:gone] + view.names[gone + 1 :] if shape == left else None


def _views(leaves: list[Any], treedef: Any, names: Any) -> list[MatrixView]:
    return [
        matrix_view(leaf.shape, tuple(each))
        for leaf, each in zip(leaves, treedef.flatten_up_to(names), strict=True)
    ]


def _mapped(function: Callable, view: MatrixView) -> Callable:
    for _ in range(view.mapped):
        function = jax.vmap(function)
    return function


def _unused(shape: tuple[int, ...], min_dim_size_to_factor: int) -> tuple[str, ...]:
    """The fields of optax's state that hold nothing for a matrix of this shape."""
    is_factored = len(shape) >= 2 and sorted(shape)[-2] >= min_dim_size_to_factor
    return ("v",) if is_factored else ("v_row", "v_col")


def _at_once(
    function: Callable[[Array, Array, Array], tuple[Array, Array]],
    left: Sequence[Array],
    right: Sequence[Array],
    sizes: Sequence[int],
) -> list[tuple[Array, Array]]:
    """`function` of each tensor's numbers, computed together for all of one shape.

    Each operation on the few numbers of one tensor would be a kernel to compile and to start.
    Stacked and not joined, the numbers stay split as they are.
    """
    found: dict[int, tuple[Array, Array]] = {}
    for shape in dict.fromkeys(each.shape for each in left):
        at = [i for i, each in enumerate(left) if each.shape == shape]
        of_shape = jnp.array([sizes[i] for i in at], left[at[0]].dtype)
        lefts, rights = (jnp.stack([each[i] for i in at]) for each in (left, right))
        first, second = function(lefts, rights, of_shape.reshape(-1, *[1] * len(shape)))
        found |= {i: (first[position], second[position]) for position, i in enumerate(at)}
    return [found[i] for i in range(len(left))]


def _to_rank(number: Array, x: Array) -> Array:
    """A number for each matrix, to compute with all of its entries."""
    return number.reshape(*number.shape, *[1] * (x.ndim - number.ndim))
