"""Adafactor's direction (arXiv 1804.04235) for stacked layers and experts.

Each layer of a stack and each expert is a matrix of its own: statistics, clipping and parameter
scale are those of optax for one matrix, mapped over the dimensions named "layer" and "expert". The
short arrays of tensors that are alike are computed together: one by one, as optax does it, they are
a third of a large model's kernels.
GShard's authors' code factors over the two largest dimensions instead, which for its experts
[E=2048, M=1024, H=8192] are H and E: one expert's update then depends on the others.

Axes: R rows, C columns of one matrix.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from gshard_train.factored_moments import Moments, Tensor, directions
from gshard_train.matrix_views import MatrixView, matrix_view


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
    moments = optax.scale_by_factored_rms(min_dim_size_to_factor=min_dim_size_to_factor)

    def first(param_RC: Array) -> tuple[Array, ...]:
        made: Any = moments.init(param_RC)
        return made[1:]

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
        views = _views(leaves, treedef, names)
        viewed = zip(_viewed(leaves, views), views, strict=True)
        made = [_mapped(first, view)(each) for each, view in viewed]
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
        grads = _viewed(treedef.flatten_up_to(updates), views)
        made = directions(
            [Tensor(*each) for each in zip(views, grads, map(Moments._make, kept), strict=True)],
            decay=1.0 - (state.count + 1.0) ** -decay_rate,
            epsilon=epsilon1,
            min_dim_size_to_factor=min_dim_size_to_factor,
        )
        new, fields = [each for each, _ in made], zip(*(kept for _, kept in made), strict=True)
        of_updates, of_params = _sums_of_squares(new, views), _sums_of_squares(leaves, views)
        found = _at_once(limits, of_updates, of_params, [view.matrix_size for view in views])
        new = [
            (update / _to_rank(divisor, update) * _to_rank(factor, update)).reshape(leaf.shape)
            for update, leaf, (divisor, factor) in zip(new, leaves, found, strict=True)
        ]
        count = optax.safe_increment(state.count)
        return treedef.unflatten(new), optax.FactoredState(
            count, *(treedef.unflatten(field) for field in fields)
        )

    return optax.GradientTransformation(init, update)


def _views(leaves: list[Any], treedef: Any, names: Any) -> list[MatrixView]:
    return [
        matrix_view(leaf.shape, tuple(each))
        for leaf, each in zip(leaves, treedef.flatten_up_to(names), strict=True)
    ]


def _viewed(tensors: Sequence[Array], views: Sequence[MatrixView]) -> list[Array]:
    return [each.reshape(view.shape) for each, view in zip(tensors, views, strict=True)]


def _sums_of_squares(tensors: Sequence[Array], views: Sequence[MatrixView]) -> list[Array]:
    """Of each matrix of each tensor."""
    return [
        jnp.square(each).sum(range(view.mapped, each.ndim))
        for each, view in zip(_viewed(tensors, views), views, strict=True)
    ]


def _mapped(function: Callable, view: MatrixView) -> Callable:
    for _ in range(view.mapped):
        function = jax.vmap(function)
    return function


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
