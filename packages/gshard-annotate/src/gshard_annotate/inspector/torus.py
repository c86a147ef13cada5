"""A model of the time that an exchange takes on the links between accelerators.

Bytes over the links at their published bandwidth, with the best use of all links of a block and
without latency or whatever else is under way. What the GShard paper measured on a TPU v3 (Figure 9)
took longer: all-to-alls 1.7 to 4.1 times, all-reduces 1.8 to 5.3 times. It is no bound, though:
groups that do not fill a block of the torus may take less.
"""

import dataclasses
import itertools
import math

from gshard_annotate.inspector.chip_figures import Chip

_ALL_TO_ALL = ("all-to-all", "ragged-all-to-all")


@dataclasses.dataclass(frozen=True)
class Block:
    """Where the devices of a group lie on the links.

    Attributes:
      sides: How many chips they are along each torus dimension.
      closed: Whether they lie round a ring of that dimension; otherwise on a line.
      slices: Over how many slices they are spread, which only the network connects.
      sharing: How many groups send over the busiest link of each dimension at once, more than one
        where they lie between each other's chips; 1 for each when not given. Cores of one chip in
        different groups have half of its links each, which is not counted again; a group counts
        less where its block has gaps.
    """

    sides: tuple[int, ...]
    closed: tuple[bool, ...]
    slices: int = 1
    sharing: tuple[float, ...] = ()

    def __post_init__(self):
        if not self.sharing:
            object.__setattr__(self, "sharing", (1.0,) * len(self.sides))


def compact_block(count: int, chip: Chip) -> Block:
    """The block of `count` devices of which nobody knows where they lie."""
    return _block(compact_sides(count, chip), chip)


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

    - Torus: the group is a block of it with these sides, one link each way between neighbours, the
      bandwidth of a dimension divided by the groups that share it. all-gather and reduce-scatter
      move (n-1)/n of the array through the links of all dimensions (two of a ring, one of a line),
      each part of it along another order of dimensions so that all are busy; longer where one
      dimension or some cannot bring what an end of the block needs. all-reduce takes twice that.
      In an all-to-all a piece goes the shortest way, so that side/8 of the array crosses each link
      of a ring; of a line side/4 crosses the link in its middle; the slowest dimension counts. A
      collective-permute sends the array over one link, or as often as the busiest one carries.
      Cores of one chip add and gather among themselves first, so that their links carry a sum or
      an array once and not for each core; within one chip all goes through its memory.
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
        return num_bytes * max(block.sharing) / chip.link_bandwidth
    if kind in _ALL_TO_ALL:
        return num_bytes * _farthest(block) / chip.link_bandwidth
    bandwidth = cores * chip.link_bandwidth
    return _gathered(block) * num_bytes * (2 if kind == "all-reduce" else 1) / bandwidth


def _farthest(block: Block) -> float:
    """The part of a device's array that crosses the busiest link of the slowest dimension."""
    return max(
        (side - side % 2 / side) / (8 if closed else 4) * sharing
        for side, closed, sharing in zip(block.sides, block.closed, block.sharing, strict=True)
    )


def _gathered(block: Block) -> float:
    """The part of an array of which each chip had a piece that crosses a link until all have it.

    Along some dimensions first, their links carry least: what the chips along them lack of their
    own pieces. So no order does better than that for any set of dimensions; parts of the array in
    different orders reach the largest of these bounds.
    """
    dims = [
        (side, (2 if closed else 1) / sharing)
        for side, closed, sharing in zip(block.sides, block.closed, block.sharing, strict=True)
    ]
    chips = math.prod(block.sides)
    return max(
        (math.prod(side for side, _ in some) - 1) / chips / sum(links for _, links in some)
        for count in range(1, len(dims) + 1)
        for some in itertools.combinations(dims, count)
    )


def _block(sides: tuple[int, ...], chip: Chip) -> Block:
    """A block of these sides that is all of its machine."""
    return Block(sides, tuple(side % chip.ring == 0 for side in sides))
