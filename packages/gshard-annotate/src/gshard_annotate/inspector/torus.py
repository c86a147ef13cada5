"""A model of the time that an exchange takes on the links between accelerators.

A floor as well: bandwidth alone, without latency, contention or what else is under way.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from gshard_annotate.inspector.chip_figures import Chip

_ALL_TO_ALL = ("all-to-all", "ragged-all-to-all")


@dataclasses.dataclass(frozen=True)
class Block:
    """Where the devices of a group lie on the links.

    Attributes:
      sides: How far they reach along each torus dimension, in chips.
      closed: Whether that dimension is a ring; otherwise it is a line.
      slices: Over how many slices they are spread, which only the network connects.
    """

    sides: tuple[int, ...]
    closed: tuple[bool, ...]
    slices: int = 1


def block_of(group: Sequence[Any], machine: Sequence[Any], chip: Chip) -> Block:
    """The block of a group of devices of a machine.

    Devices without coordinates (a CPU that stands for them) count as the most compact block.
    """
    sides, whole = _sides(group), _sides(machine)
    if not sides:
        return _block(compact_sides(len(group), chip), chip)
    closed = [
        side == all_of_it and side % chip.ring == 0
        for side, all_of_it in zip(sides, whole, strict=True)
    ]
    if chip.torus == 3:  # cubes whose faces switches connect
        closed = [each and all(side % chip.ring == 0 for side in whole) for each in closed]
    longer = [(side, ring) for side, ring in zip(sides, closed, strict=True) if side > 1]
    return Block(
        tuple(side for side, _ in longer) or (1,),
        tuple(ring for _, ring in longer) or (True,),
        len({getattr(device, "slice_index", None) for device in group}),
    )


def compact_sides(count: int, chip: Chip) -> tuple[int, ...]:
    """Sides of the block of `count` devices that is nearest to a cube."""
    sides, left = [], count
    for dims in range(max(chip.torus, 1), 0, -1):
        side = max(1, round(left ** (1 / dims)))
        while left % side:
            side -= 1
        # The largest side comes last, so that a prime number of devices is a line.
        sides.append(side if dims > 1 else left)
        left //= side
    return tuple(side for side in sides if side > 1) or (1,)


def exchange_seconds(
    kind: str,
    num_bytes: int,
    group: int,
    chip: Chip,
    block: Block | tuple[int, ...] | None = None,
) -> float:
    """Estimated time of one exchange; a model of bandwidth alone, without latency or contention.

    With n devices in a group and `num_bytes` the whole array on one device:

    - Torus: the group is a block of it with these sides. all-gather and reduce-scatter move
      (n-1)/n of the array through the links of each dimension that the block spans (two of a ring,
      one of a line), all-reduce twice that. In an all-to-all a piece travels a quarter of each
      ring on average, so that side/8 of the array crosses each link of the longest side; of a
      line side/4 crosses the link in its middle. A collective-permute sends the array over one
      link. Cores of one chip add and gather among themselves first, so that their links carry a
      sum or an array once and not for each core; within one chip all goes through its memory.
    - Switch: the same without hops: (n-1)/n of the array at the device's bandwidth, that of the
      network when the group is larger than a node.
    - Several slices: what leaves a slice goes over the network besides.

    Args:
      kind: all-gather, all-reduce and so on.
      num_bytes: The array: the gathered result, the operand of a reduce-scatter, otherwise what
        each device has.
      group: How many devices exchange.
      chip: Their figures.
      block: Where they lie, or the block's sides in chips; the most compact one when not given.
    """
    if group <= 1 or not num_bytes:
        return 0.0
    if not chip.torus:
        bandwidth = chip.link_bandwidth if group <= chip.node else chip.network_bandwidth
        return _crossing(kind, num_bytes, group) / bandwidth
    if not isinstance(block, Block):
        block = _block(block or compact_sides(group, chip), chip)
    between = 0.0
    if block.slices > 1 and chip.network_bandwidth:
        # A sum is scattered within each slice first, and a gathered array crosses once.
        whole = kind in _ALL_TO_ALL or kind == "collective-permute"
        share = 1 if whole else max(group // block.slices, 1)
        between = _crossing(kind, num_bytes, block.slices) / share / chip.network_bandwidth
    return _on_torus(kind, num_bytes, group // block.slices, chip, block) + between


def _crossing(kind: str, num_bytes: int, parts: int) -> float:
    if kind == "collective-permute":
        return num_bytes
    return num_bytes * (parts - 1) / parts * (2 if kind == "all-reduce" else 1)


def _on_torus(kind: str, num_bytes: int, group: int, chip: Chip, block: Block) -> float:
    if group <= 1:
        return 0.0
    cores = max(1, group // math.prod(block.sides))
    if cores == group:
        return _crossing(kind, num_bytes, group) / chip.memory_bandwidth
    if kind == "collective-permute":
        return num_bytes / chip.link_bandwidth
    dims = list(zip(block.sides, block.closed, strict=True))
    if kind in _ALL_TO_ALL:
        farthest = max(max(side, 2) / (8 if closed else 4) for side, closed in dims)
        return num_bytes * farthest / chip.link_bandwidth
    links = cores * sum(2 if closed else 1 for _, closed in dims)
    return _crossing(kind, num_bytes, group // cores) / (links * chip.link_bandwidth)


def _block(sides: tuple[int, ...], chip: Chip) -> Block:
    """A block of these sides that is all of its machine."""
    return Block(sides, tuple(side % chip.ring == 0 for side in sides))


def _sides(devices: Sequence[Any]) -> list[int]:
    coords = {tuple(coord) for device in devices if (coord := getattr(device, "coords", None))}
    return [len(set(column)) for column in zip(*coords, strict=True)]
