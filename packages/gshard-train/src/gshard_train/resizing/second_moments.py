"""Factored second moments (Adafactor) as whole ones, and back.

Of a matrix two vectors are kept: the means of its second moment over its largest and its second
largest dimension. The whole moment is taken for their product over their mean (arXiv 1804.04235,
section 3), which has these very means. So what is cut out of it or joined has the means that would
have been kept of it, to the last bits: nothing is lost by going through the whole.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gshard_train.matrix_views import MatrixView, Names, matrix_view, moment_names

FIELDS = ("v_row", "v_col", "v")


class Moments(NamedTuple):
    """The three arrays of a parameter in optax's `FactoredState`; of some only one 0 is kept."""

    v_row: Any
    v_col: Any
    v: Any


def view_of(kept: Moments, shape: tuple[int, ...], names: Names) -> MatrixView | None:
    """How the optimizer sees a parameter of which it keeps these; None when it is no such."""
    for view in (matrix_view(shape, names), MatrixView(0, shape, names)):
        if all(
            moment_names(field, view, tuple(each.shape)) is not None
            for field, each in zip(FIELDS, kept, strict=True)
        ):
            return view
    return None


def whole(kept: Moments, view: MatrixView, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """The second moment of each number of a parameter of this shape."""
    if tuple(kept.v.shape) == tuple(view.shape):
        return kept.v.reshape(shape)
    largest, second = _factored(view)
    rows = jnp.expand_dims(kept.v_row, largest)
    mean = rows.mean(second, keepdims=True)
    # Before the first step all are 0. Divided first: the product of two may be too small.
    share = jnp.where(mean > 0, rows / jnp.where(mean > 0, mean, 1), 0)
    return (share * jnp.expand_dims(kept.v_col, second)).reshape(shape)


def kept_of(
    moment: Float[Array, "..."], field: str, view: MatrixView, shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """The array of this shape that is kept of a whole moment.

    Args:
      moment: in the parameter's shape.
      field: one of `FIELDS`.
      view: how the optimizer sees the parameter.
      shape: of the array; where it is that of nothing, 0 is kept.
    """
    if shape == tuple(view.shape):
        return moment.reshape(shape)
    if is_nothing(shape, view):
        return jnp.zeros(shape, moment.dtype)
    largest, second = _factored(view)
    return moment.reshape(view.shape).mean(largest if field == "v_row" else second)


def is_nothing(shape: tuple[int, ...], view: MatrixView) -> bool:
    """Whether an array of this shape stands for one that is not kept."""
    return shape != tuple(view.shape) and shape == (*view.shape[: view.mapped], 1)


def _factored(view: MatrixView) -> tuple[int, int]:
    """The largest and the second largest dimension of the matrices."""
    order = np.argsort(view.shape[view.mapped :])
    return view.mapped + int(order[-1]), view.mapped + int(order[-2])
