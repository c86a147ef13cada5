"""The model of exchanges on a torus, against traffic counted link by link.

Axes: G groups, D devices of a group.
"""

import itertools
import math
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from gshard_annotate.inspector.chips import CHIPS, Chip, exchange_seconds
from gshard_annotate.inspector.machine import Machine
from gshard_annotate.inspector.torus import Block

RINGS, LINES = 1, 1000
TORUS = Chip("torus", 1.0, 1.0, 1, link_bandwidth=1.0, torus=2, source="")


def devices(*sides, cores=1, slices=1):
    return [
        SimpleNamespace(coords=coord, slice_index=number)
        for number in range(slices)
        for coord in itertools.product(*map(range, sides))
        for _ in range(cores)
    ]


def rows(mesh, axes):
    """Groups of devices along some axes of a mesh whose last axis varies fastest."""
    numbers_GD = np.moveaxis(np.arange(math.prod(mesh)).reshape(mesh), axes, range(-len(axes), 0))
    return numbers_GD.reshape(-1, math.prod(mesh[axis] for axis in axes))


def chip_of(sides, cores, ring):
    """Every link carries a byte a second and direction."""
    return Chip("toy", 1.0, 1e9, 1, 1 / cores, len(sides), "", ring=ring)


def ways(start, end, length, ring):
    """The shortest ways along a dimension, as steps and parts of what is sent."""
    way = end - start
    if ring:
        way = (way + length // 2) % length - length // 2
    halves = ring and 2 * abs(way) == length
    return [(way, 0.5), (-way, 0.5)] if halves else [(way, 1.0)]


def along(here, dimension, way, length):
    """The links that so many steps from a place use."""
    for step in range(abs(way)):
        at = (here[dimension] + math.copysign(step, way)) % length
        yield (dimension, way > 0, *here[:dimension], at, *here[dimension + 1 :])


def sent_piece_by_piece(groups_GD, machine, sides, ring):
    """All-to-all of one byte a device, a dimension after the other: of the busiest link."""
    links = defaultdict(float)
    for group in groups_GD:
        for start, end in itertools.product(group, group):
            here, there = list(machine[start].coords), machine[end].coords
            for dimension, length in enumerate(sides):
                for way, part in ways(here[dimension], there[dimension], length, ring):
                    for link in along(here, dimension, way, length):
                        links[link] += part / len(group)
                here[dimension] = there[dimension]
    return max(links.values())


def gathered(groups_GD, machine, sides, ring, order):
    """All-gather of one byte in this order of dimensions: of the busiest link of each."""
    links = defaultdict(float)
    for group in groups_GD:
        chips = sorted({machine[one].coords for one in group})
        held = dict.fromkeys(chips, 1 / len(chips))
        for dimension in order:
            lines = {}
            for chip in chips:
                lines.setdefault((*chip[:dimension], *chip[dimension + 1 :]), []).append(chip)
            for line in lines.values():
                gather_a_line(links, line, held, dimension, sides[dimension], ring)
                held |= dict.fromkeys(line, sum(held[chip] for chip in line))
    return [
        max((sent for link, sent in links.items() if link[0] == dimension), default=0.0)
        for dimension in range(len(sides))
    ]


def gather_a_line(links, line, held, dimension, length, ring):
    """What each chip has goes both ways, to the ends of a line or half round a ring."""
    at, count = [chip[dimension] for chip in line], len(line)
    gaps = [(two - one) % length for one, two in itertools.pairwise([*at, at[0]])]
    goes_round = ring and gaps[-1] <= max(gaps[:-1], default=0)
    for number, direction, hop in itertools.product(range(count), (1, -1), range(1, count)):
        if goes_round:
            part = 1.0 if 2 * hop < count else 0.5 if 2 * hop == count else 0.0
        else:
            part = float(0 <= number + direction * hop < count)
        start, end = (line[(number + direction * each) % count] for each in (hop - 1, hop))
        way = direction * ((end[dimension] - start[dimension]) * direction % length)
        for link in along(start, dimension, way, length):
            links[link] += part * held[line[number]]


def gathered_at_best(groups_GD, machine, sides, ring):
    """A part of the array along one dimension first, the rest along the other."""
    one = gathered(groups_GD, machine, sides, ring, range(len(sides)))
    if len(sides) == 1:
        return one[0]
    other = gathered(groups_GD, machine, sides, ring, (1, 0))
    bend = one[0] - other[0] - one[1] + other[1]
    equal = (other[1] - other[0]) / bend if bend else 0.0
    parts = [0.0, 1.0, min(max(equal, 0.0), 1.0)]
    return min(
        max(part * a + (1 - part) * b for a, b in zip(one, other, strict=True)) for part in parts
    )


PLACED = [
    # Sides in chips, cores of a chip, mesh, axes of the groups.
    ((16,), 1, (16,), (0,)),
    ((16,), 1, (4, 4), (1,)),  # side by side
    ((16,), 1, (4, 4), (0,)),  # every fourth chip
    ((16,), 1, (2, 2, 4), (0, 2)),  # two blocks each
    ((15,), 1, (5, 3), (0,)),
    ((4, 8), 2, (64,), (0,)),
    ((2, 8), 1, (16,), (0,)),  # the short side has links to spare
    ((4, 8), 2, (4, 16), (0,)),  # a core of each chip of a column
    ((4, 8), 2, (8, 8), (0,)),  # every other row and every fourth column, a core each
    ((4, 8), 2, (2, 2, 2, 2, 2, 2), (0, 2, 4)),
    ((4, 8), 2, (2, 2, 2, 2, 2, 2), (1, 3, 5)),
    ((3, 5), 1, (15,), (0,)),
]


@pytest.mark.parametrize("ring", [RINGS, LINES], ids=["rings", "lines"])
@pytest.mark.parametrize(("sides", "cores", "mesh", "axes"), PLACED)
def test_the_busiest_link_carries_what_the_model_says(sides, cores, mesh, axes, ring):
    chip, machine = chip_of(sides, cores, ring), devices(*sides, cores=cores)
    groups_GD, rings = rows(mesh, axes), ring == RINGS
    block = Machine(machine, chip).block(groups_GD)

    def model(kind):
        return exchange_seconds(kind, 1, groups_GD.shape[1], chip, block)

    pieces = sent_piece_by_piece(groups_GD, machine, sides, rings)
    assert model("all-to-all") == pytest.approx(pieces)
    array = gathered_at_best(groups_GD, machine, sides, rings)
    # Groups between each other end at different places of a line, where the busiest links are.
    over = 1.0 if rings or max(block.sharing) == 1 else 1.3
    assert array * (1 - 1e-6) <= model("all-gather") <= array * over * (1 + 1e-6)
    assert model("all-reduce") == 2 * model("all-gather")


@pytest.mark.parametrize(
    ("sides", "mesh", "axes"),
    [((3, 5), (5, 3), (1,)), ((4, 6), (3, 4, 2), (0, 2)), ((2, 6), (3, 2, 2), (0, 2))],
)
def test_groups_that_fill_no_block_take_up_to_twice_too_long_but_not_less(sides, mesh, axes):
    chip, machine, groups_GD = chip_of(sides, 1, LINES), devices(*sides), rows(mesh, axes)
    block = Machine(machine, chip).block(groups_GD)
    found = exchange_seconds("all-to-all", 1, groups_GD.shape[1], chip, block)
    pieces = sent_piece_by_piece(groups_GD, machine, sides, ring=False)
    assert pieces <= found * (1 + 1e-6) <= 2 * pieces


def test_a_group_of_every_fourth_chip_takes_four_times_as_long():
    chip, machine = chip_of((16,), 1, LINES), devices(16)
    seconds = [
        exchange_seconds(kind, 1, 4, chip, Machine(machine, chip).block(rows((4, 4), (axis,))))
        for kind in ("all-reduce", "all-to-all")
        for axis in (1, 0)
    ]
    assert seconds == pytest.approx([1.5, 6.0, 1.0, 4.0])


@pytest.mark.parametrize(
    ("pairs", "ring", "seconds"),
    [
        # To the next of 8; what goes back to the first crosses all other arrays' links.
        ([(at, (at + 1) % 8) for at in range(8)], RINGS, 1.0),
        ([(at, (at + 1) % 8) for at in range(8)], LINES, 1.0),
        ([(at, (at + 3) % 8) for at in range(8)], RINGS, 3.0),
        ([(at, at + 4) for at in range(4)], LINES, 4.0),
        ([(0, 2)], LINES, 1.0),
    ],
)
def test_a_permutation_takes_what_its_busiest_link_carries(pairs, ring, seconds):
    chip = chip_of((8,), 1, ring)
    block = Machine(devices(8), chip).path(np.array(pairs))
    assert exchange_seconds("collective-permute", 1, 8, chip, block) == seconds


def test_cores_of_a_chip_permute_through_its_memory():
    chip = chip_of((8,), 2, LINES)
    block = Machine(devices(8, cores=2), chip).path(np.array([(0, 1), (1, 0)]))
    assert exchange_seconds("collective-permute", 1, 2, chip, block) == 1 / chip.memory_bandwidth


def test_pairs_of_different_slices_use_the_network_alone():
    chip = chip_of((4,), 1, LINES)
    machine = Machine(devices(4, slices=2), chip)
    assert machine.path(np.array([(0, 4), (1, 5)])) == Block((1,), (True,), slices=2)


def test_dimensions_of_a_machine_are_rings_where_its_links_close_them():
    v5e, v5p = CHIPS["v5e"], CHIPS["v5p"]
    machine, everyone = Machine(devices(8, 16), v5e), np.arange(128)
    assert machine.block(everyone[None]) == Block((8, 16), (False, True))
    assert machine.block(everyone.reshape(8, 16)) == Block((16,), (True,))
    half_a_ring = machine.block(everyone.reshape(16, 8))
    assert half_a_ring == Block((8,), (False,))
    for sides, rings in (((4, 4, 8), True), ((2, 4, 4), False)):
        count = math.prod(sides)
        found = Machine(devices(*sides), v5p).block(np.arange(count)[None])
        assert found == Block(sides, (rings,) * 3)


def test_a_group_over_two_slices():
    machine = Machine(devices(4, 4, cores=2, slices=2), TORUS)
    block = machine.block(rows((2, 4, 8), (0, 1)))
    assert block == Block((4,), (True,), slices=2)


def test_devices_without_coordinates_count_as_a_compact_block():
    nowhere = [SimpleNamespace() for _ in range(9)]
    assert Machine(nowhere, TORUS).block(np.arange(9)[None]) == Block((3, 3), (True, True))
    assert Machine(nowhere, TORUS).path(np.array([(0, 1)])) is None
