"""Several examples in a row: which tokens belong together, and their places in their example.

Axes: B rows, T source length, L target length.
"""

from collections.abc import Mapping
from typing import NamedTuple

from jaxtyping import Array, Int

from gshard_train.data import PACKED_FEATURES


class Packing(NamedTuple):
    """Segments count the examples of a row from 1, 0 is padding; positions start at 0 in each.

    Without any of them a row is one example.
    """

    source_segments_BT: Int[Array, "B T"] | None = None
    source_positions_BT: Int[Array, "B T"] | None = None
    target_segments_BL: Int[Array, "B L"] | None = None
    target_positions_BL: Int[Array, "B L"] | None = None


def packing_of(batch: Mapping[str, Array]) -> Packing | None:
    """The packing of a batch; None where each row is one example.

    Raises:
      ValueError: some of the four arrays are there and others are missing.
    """
    there = [name for name in PACKED_FEATURES if name in batch]
    if not there:
        return None
    if lacking := [name for name in PACKED_FEATURES if name not in batch]:
        raise ValueError(
            f"a packed batch has {', '.join(there)} and lacks {', '.join(lacking)}; "
            "give all four or none"
        )
    return Packing(*(batch[name] for name in PACKED_FEATURES))
