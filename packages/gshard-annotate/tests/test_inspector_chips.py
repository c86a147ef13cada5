"""Chips and the model of exchanges."""

import dataclasses
import re
from types import SimpleNamespace

import pytest

from gshard_annotate.inspector.chips import (
    CHIPS,
    Chip,
    chip_of,
    compact_sides,
    exchange_seconds,
    find_chip,
)
from gshard_annotate.inspector.torus import Block

TORUS = Chip("torus", 1.0, 1.0, 1, link_bandwidth=10.0, torus=2, source="")
SWITCH = Chip("switch", 1.0, 1.0, 1, 10.0, torus=0, source="", node=8, network_bandwidth=2.0)


@pytest.mark.parametrize(
    ("name", "found"),
    [("v3", "TPU v3 core"), ("TPU v4", "TPU v4"), ("v5e", "TPU v5e"), ("H100", "NVIDIA H100"),
     ("TPU v3 core", "TPU v3 core"), ("nvidia-a100", "NVIDIA A100")],
)  # fmt: skip
def test_finds_chips_by_name(name, found):
    assert find_chip(name).name == found


def test_a_chip_may_be_given_with_its_figures():
    assert find_chip(TORUS) is TORUS


def test_unknown_chip_with_the_nearest():
    message = (
        "inspect: no figures for chip 'H10'; did you mean 'h100'? (known: v3, v4, v5e, v5p, v6e, "
        "a100, h100, h200); or give a Chip with its figures"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        find_chip("H10")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("TPU v3", "TPU v3 core"), ("TPU v4", "TPU v4"), ("TPU v5 lite", "TPU v5e"),
     ("TPU v5", "TPU v5p"), ("TPU v6 lite", "TPU v6e"), ("NVIDIA H100 80GB HBM3", "NVIDIA H100")],
)  # fmt: skip
def test_chosen_from_what_jax_calls_the_device(kind, name):
    chip = chip_of([SimpleNamespace(device_kind=kind)])
    assert chip is not None
    assert chip.name == name


def test_a_v4_whose_cores_are_devices_is_half_a_chip():
    chip = chip_of([SimpleNamespace(device_kind="TPU v4", core_on_chip=core) for core in (0, 1)])
    assert chip is not None
    assert (chip.name, chip.flops) == ("TPU v4 core", CHIPS["v4"].flops / 2)


def test_a_cpu_is_no_chip():
    assert chip_of([SimpleNamespace(device_kind="cpu")]) is None
    assert chip_of([]) is None


def test_figures_of_a_v3_are_those_of_a_core():
    core = CHIPS["v3"]
    assert (core.flops, core.memory_bandwidth, core.memory_bytes) == (61.5e12, 450e9, 16 * 2**30)


def test_every_chip_says_where_its_figures_are_from():
    assert all(re.search(r"\w\.(com|io)\b", chip.source) for chip in CHIPS.values())


def test_blocks_are_as_compact_as_the_number_allows():
    cube = Chip("cube", 1.0, 1.0, 1, 1.0, torus=3, source="")
    assert compact_sides(16, TORUS) == (4, 4)
    assert compact_sides(8, TORUS) == (2, 4)
    assert compact_sides(7, TORUS) == (7,)
    assert compact_sides(64, cube) == (4, 4, 4)
    assert compact_sides(1, cube) == (1,)


# 1000 bytes, links of 10 bytes per second and direction, a network of 2.
@pytest.mark.parametrize(
    ("kind", "group", "block", "seconds"),
    [
        # A line of 4: what its end has to get comes over one link, twice what a ring takes.
        ("all-gather", 4, Block((4,), (False,)), 75.0),
        ("all-to-all", 4, Block((4,), (False,)), 100.0),
        ("all-reduce", 8, Block((2, 4), (False, True)), 2 * 1000 * 7 / 8 / 30),
        # Two cores on each of 4 chips: the links carry what both have added up.
        ("all-reduce", 8, Block((4,), (True,)), 2 * 1000 * 3 / 4 / 40),
        ("all-to-all", 8, Block((4,), (True,)), 50.0),
        # Two cores of one chip, whose memory moves 5 bytes a second.
        ("all-reduce", 2, Block((1,), (True,)), 1000 / 5),
        # Two slices: the sums of an eighth each cross the network once in each direction.
        ("all-reduce", 16, Block((2, 4), (True, True), slices=2), 1750 / 40 + 1000 / 8 / 2),
        ("all-to-all", 2, Block((1,), (True,), slices=2), 250.0),
    ],
)
def test_time_on_lines_chips_of_two_cores_and_between_slices(kind, group, block, seconds):
    chip = dataclasses.replace(TORUS, network_bandwidth=2.0, memory_bandwidth=5.0)
    assert exchange_seconds(kind, 1000, group, chip, block) == pytest.approx(seconds)


# 1000 bytes, links of 10 bytes per second and direction.
@pytest.mark.parametrize(
    ("kind", "group", "sides", "seconds"),
    [
        # A ring of 4: 750 bytes through two links.
        ("all-gather", 4, (4,), 37.5),
        ("reduce-scatter", 4, (4,), 37.5),
        ("all-reduce", 4, (4,), 75.0),
        # A quarter of the ring on average: half of the array over each of the two links.
        ("all-to-all", 4, (4,), 50.0),
        # A torus of 4 x 4 has twice the links.
        ("all-gather", 16, (4, 4), 1000 * 15 / 16 / 40),
        ("all-to-all", 16, (4, 4), 50.0),
        ("all-to-all", 8, (8,), 100.0),
        ("collective-permute", 4, (4,), 100.0),
        ("all-gather", 1, (1,), 0.0),
    ],
)
def test_time_on_a_torus(kind, group, sides, seconds):
    assert exchange_seconds(kind, 1000, group, TORUS, sides) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("kind", "group", "seconds"),
    [
        ("all-gather", 8, 87.5),
        ("all-reduce", 8, 175.0),
        ("all-to-all", 4, 75.0),
        ("collective-permute", 4, 100.0),
        ("all-gather", 16, 1000 * 15 / 16 / 2),  # beyond the node: the network
    ],
)
def test_time_behind_a_switch(kind, group, seconds):
    assert exchange_seconds(kind, 1000, group, SWITCH) == pytest.approx(seconds)
