import math
import zlib
from itertools import pairwise

import pytest

from gshard_m4.report.heat_map import Row, effective_experts, heat_map, levels, palette, png

ROWS = [
    Row("de", "German", (0.5, 0.5, 0.0, 0.0)),
    Row("he", "He<b>rew", (0.25, 0.25, 0.25, 0.25)),
    Row("yo", "Yoruba", (0.0, 0.0, 0.0, 1.0)),
]


def test_colours_go_with_the_square_root_of_the_share():
    assert levels([(0.0, 0.25, 1.0)], 1.0) == [bytes([0, 128, 255])]
    assert levels([(0.0, 0.02, 0.08)], 0.08) == [bytes([0, 128, 255])]


def test_palette_gets_lighter_all_the_way():
    grey = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in palette()]
    assert len(grey) == 256
    assert all(one < other for one, other in pairwise(grey))


def test_png_has_one_pixel_a_number():
    data = png([bytes([1, 2, 3]), bytes([4, 5, 6])])
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[16:26] == bytes([0, 0, 0, 3, 0, 0, 0, 2, 8, 3])
    start = data.index(b"IDAT") + 4
    size = int.from_bytes(data[start - 8 : start - 4], "big")
    assert zlib.decompress(data[start : start + size]) == bytes([0, 1, 2, 3, 0, 4, 5, 6])


def test_effective_experts():
    assert effective_experts(ROWS[2].shares) == 1.0
    assert math.isclose(effective_experts(ROWS[1].shares), 4.0)


def test_map_says_its_numbers_in_words_and_in_a_table():
    text = heat_map(ROWS, key="k", layer="encoder <1>")
    assert "The largest is 100 %: Yoruba at expert 3" in text
    assert "evenly used, each would get 25 %" in text
    assert "Languages use 1.0 to 4.0 experts" in text
    assert '<td class="number">2.0</td><td class="number">0: 50 %</td>' in text
    assert "<b>" not in text
    assert "encoder <1>" not in text
    assert text.count("data:image/png;base64,") == 2


@pytest.mark.parametrize("count", [1, 2, 2048])
def test_any_number_of_experts(count):
    text = heat_map([Row("de", "German", (1 / count,) * count)], key="k", layer="one")
    assert text.count('text-anchor="middle"') == min(count, 16)
