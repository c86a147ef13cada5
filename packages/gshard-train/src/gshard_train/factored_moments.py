"""Adafactor's second moments: of a matrix only the means of its rows and of its columns.

The numbers are those of `optax.scale_by_factored_rms` for each matrix.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from gshard_train.matrix_views import MatrixView


class Moments(NamedTuple):
    """Second moments of one tensor, as optax keeps them: zeros where a field is not used."""

    v_row: Array
    v_col: Array
    v: Array


class Tensor(NamedTuple):
    """A gradient in the shape of its view, and its moments so far."""

    view: MatrixView
    grad: Array
    moments: Moments


def directions(
    tensors: Sequence[Tensor], *, decay: Array, epsilon: float, min_dim_size_to_factor: int
) -> list[tuple[Array, Moments]]:
    """Each gradient over the root of its second moment, and the new moments.

    Args:
      tensors: in any order.
      decay: how much of the moments so far is kept, of 1.
      epsilon: added to squared gradients.
      min_dim_size_to_factor: matrices with a smaller side keep their whole second moment.
    """
    found: dict[int, tuple[Array, Moments]] = {}
    for view in dict.fromkeys(each.view for each in tensors):
        at = [i for i, each in enumerate(tensors) if each.view == view]
        alike = [tensors[i] for i in at]
        matrix = view.shape[view.mapped :]
        is_factored = len(matrix) >= 2 and sorted(matrix)[-2] >= min_dim_size_to_factor
        made = (_factored if is_factored else _whole)(alike, decay, epsilon)
        found |= dict(zip(at, made, strict=True))
    return [found[i] for i in range(len(tensors))]


def _factored(alike: Sequence[Tensor], decay: Array, epsilon: float) -> list[tuple[Array, Moments]]:
    """Of tensors with one view: their rows and columns are computed together."""
    view = alike[0].view
    second, largest = (view.mapped + int(i) for i in np.argsort(view.shape[view.mapped :])[-2:])
    squares = [jnp.square(each.grad) + epsilon for each in alike]

    def updated(kept: Sequence[Array], gone: int) -> Array:
        means = jnp.stack([each.sum(gone) for each in squares]) / view.shape[gone]
        return decay * jnp.stack(kept) + (1.0 - decay) * means

    rows = updated([each.moments.v_row for each in alike], largest)
    columns = updated([each.moments.v_col for each in alike], second)
    # Of a stack, whose dimensions are one further on, without the largest.
    left = second + 1 - (second > largest)
    row_factors = (rows / rows.mean(left, keepdims=True)) ** -0.5
    column_factors = columns**-0.5
    return [
        (
            each.grad
            * jnp.expand_dims(row_factors[i], largest)
            * jnp.expand_dims(column_factors[i], second),
            Moments(rows[i], columns[i], each.moments.v),
        )
        for i, each in enumerate(alike)
    ]


def _whole(alike: Sequence[Tensor], decay: Array, epsilon: float) -> list[tuple[Array, Moments]]:
    made = []
    for each in alike:
        v = decay * each.moments.v + (1.0 - decay) * (jnp.square(each.grad) + epsilon)
        made.append((each.grad * v**-0.5, each.moments._replace(v=v)))
    return made
