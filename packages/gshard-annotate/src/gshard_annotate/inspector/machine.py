"""Where groups of devices lie on the links of a machine, and how many of them share a link.

Axes: G groups, D devices of a group, T torus dimensions.
"""

import math
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from gshard_annotate.inspector.chip_figures import Chip
from gshard_annotate.inspector.torus import Block, compact_block


class Machine:
    """The devices of a program and the links between them.

    Devices without coordinates (a CPU that stands for them) count as the most compact block.

    Args:
      devices: In the order by which the program numbers them.
      chip: What they are.
    """

    def __init__(self, devices: Sequence[Any], chip: Chip):
        self._chip = chip
        coords = [getattr(device, "coords", None) for device in devices]
        known = bool(coords) and all(each is not None for each in coords) and chip.torus > 0
        self._places = np.array(coords if known else np.zeros((0, 0)), int)
        if known:
            self._places = self._places - self._places.min(axis=0)
        self._slices = np.array([getattr(device, "slice_index", None) or 0 for device in devices])
        self._lengths = [int(side) for side in self._places.max(axis=0, initial=0) + 1]
        self._cores = len(devices) / max(1, len(set(map(tuple, self._places.tolist()))))
        self._rings = self._closed()
        self._blocks: dict[tuple[Any, ...], Block] = {}

    def block(self, rows_GD: np.ndarray) -> Block:
        """That of the first group while all of them exchange at once.

        Groups that are no blocks of the torus, or are unlike each other, count as the blocks
        around them.

        Args:
          rows_GD: The groups, as positions among the devices.
        """
        if not self._places.size or rows_GD.max() >= len(self._places):
            return compact_block(rows_GD.shape[1], self._chip)
        key = rows_GD.shape, rows_GD.tobytes()
        if key not in self._blocks:
            self._blocks[key] = self._found(rows_GD)
        return self._blocks[key]

    def path(self, pairs: np.ndarray) -> Block | None:
        """For a collective-permute: what its busiest link carries, as the share of two neighbours.

        An array goes the shortest way along one dimension after the other.

        Args:
          pairs: Rows of a sender and a receiver, as positions among the devices.
        """
        if not self._places.size or not pairs.size or pairs.max() >= len(self._places):
            return None
        key = "path", pairs.tobytes()
        if key not in self._blocks:
            self._blocks[key] = self._routed(pairs)
        return self._blocks[key]

    def _routed(self, pairs: np.ndarray) -> Block:
        across = self._slices[pairs[:, 0]] != self._slices[pairs[:, 1]]
        slices = 1 + int(across.any())
        carried: Counter[tuple[Any, ...]] = Counter()
        for start, end in self._places[pairs[~across]].tolist():
            here = list(start)
            for dimension in range(len(here)):
                for step in self._steps(dimension, here[dimension], end[dimension]):
                    carried[dimension, step, *here] += 1
                    here[dimension] = (here[dimension] + step) % self._lengths[dimension]
        if not carried:
            return Block((1,), (True,), slices)
        return Block((2,), (False,), slices, (max(carried.values()) / self._cores,))

    def _steps(self, dimension: int, start: int, end: int) -> list[int]:
        way, length = end - start, self._lengths[dimension]
        if self._rings[dimension] and 2 * abs(way) > length:
            way -= math.copysign(length, way)
        return [1 if way > 0 else -1] * int(abs(way))

    def _closed(self) -> list[bool]:
        """Which dimensions are rings."""
        closed = [side % self._chip.ring == 0 for side in self._lengths]
        # The switches that close a torus of three dimensions connect faces of whole cubes.
        return [all(closed)] * len(closed) if self._chip.torus == 3 else closed

    def _found(self, rows_GD: np.ndarray) -> Block:
        held = [self._held(rows_GD, dimension) for dimension in range(len(self._lengths))]
        sides = [int(each[0].sum()) for each in held]
        rings = [
            ring and _goes_round(each[0]) for ring, each in zip(self._rings, held, strict=True)
        ]
        slices = len(np.unique(self._slices[rows_GD[0]]))
        # Of each chip of the block; less than one where the block has gaps.
        cores = rows_GD.shape[1] / math.prod(sides)
        longer = [dimension for dimension, side in enumerate(sides) if side > 1]
        return Block(
            tuple(sides[dimension] for dimension in longer) or (1,),
            tuple(rings[dimension] for dimension in longer) or (True,),
            slices,
            tuple(
                _most_groups(held, dimension, rings[dimension]) * cores / self._cores
                for dimension in longer
            )
            or (1.0,),
        )

    def _held(self, rows_GD: np.ndarray, dimension: int) -> np.ndarray:
        """Whether a group has a device at each place along a dimension, by group."""
        held = np.zeros((len(rows_GD), self._lengths[dimension]), np.int64)
        held[np.arange(len(rows_GD))[:, None], self._places[rows_GD, dimension]] = 1
        return held


def _goes_round(held: np.ndarray) -> bool:
    """Whether a group on a ring is no farther apart behind its ends than somewhere between them."""
    at = np.flatnonzero(held)
    gaps = np.diff(at, append=at[0] + len(held))
    return len(at) > 1 and bool(gaps[-1] <= gaps[:-1].max())


def _most_groups(held: list[np.ndarray], dimension: int, ring: bool) -> int:
    """How many groups send over the busiest link along a dimension."""
    spans = np.ones_like(held[dimension])
    if not ring:  # links between the ends of a group, one fewer than places
        ends = held[dimension][:, ::-1].cumsum(axis=1)[:, ::-1]
        spans = (held[dimension].cumsum(axis=1) > 0)[:, :-1] & (ends > 0)[:, 1:]
    factors = [spans.astype(np.int64) if at == dimension else each for at, each in enumerate(held)]
    names = string.ascii_lowercase[: len(held)]
    total = np.einsum(f"{','.join('Z' + name for name in names)}->{names}", *factors, optimize=True)
    return int(total.max(initial=0))
