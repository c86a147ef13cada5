"""Parameters seen as matrices, as Adafactor does, and the names of what it keeps of them."""

import math
from typing import NamedTuple

import numpy as np

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
