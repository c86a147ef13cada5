import pytest
from hypothesis import given
from hypothesis import strategies as st

from gshard_m4.report.axes import extent, linear_ticks, log_ticks, short_count, signed
from gshard_m4.report.labels import place_labels


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (-1.3, 13.9, [0, 2.5, 5, 7.5, 10, 12.5]),
        (-0.02, 0.03, [-0.02, -0.01, 0, 0.01, 0.02, 0.03]),
        (31, 32, [31, 31.2, 31.4, 31.6, 31.8, 32]),
    ],
)
def test_linear_ticks_are_round(low, high, ticks):
    assert linear_ticks(low, high) == ticks


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4))
def test_linear_ticks_lie_inside_and_are_few(low, size):
    ticks = linear_ticks(low, low + size)
    assert 2 <= len(ticks) <= 8
    assert all(low - 1e-6 <= tick <= low + size + 1e-6 for tick in ticks)


def test_log_ticks_enclose():
    assert log_ticks(2_000, 9_000_000) == [1000, 10_000, 100_000, 1_000_000, 10_000_000]
    assert log_ticks(1000, 1000) == [1000, 10_000]
    assert log_ticks(0, 1) == [1, 10]


def test_extent_has_room_and_zero():
    assert extent([10.0, 20.0], zero=False) == (9.6, 20.4)
    assert extent([10.0, 20.0], zero=True) == (-0.8, 20.8)
    assert extent([5.0], zero=False) == (4.0, 6.0)


def test_numbers_as_people_write_them():
    assert [short_count(n) for n in (950, 12_000, 2_500_000, 13e9, 1e12)] == [
        "950", "12k", "2.5M", "13B", "1T",
    ]  # fmt: skip
    assert [signed(v) for v in (1.26, -0.25, 0.0, -0.04)] == ["+1.3", "−0.2", "0.0", "0.0"]
    assert signed(-0.0126, 3) == "−0.013"


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 60)), min_size=1, max_size=40))
def test_labels_lie_on_no_other_label_and_on_no_point(points):
    words = [f"w{number}" for number in range(len(points))]
    placed = place_labels(points, words, letter=4, height=7, gap=2, area=(0, 0, 100, 60))
    boxes = [(x, y - 0.82 * 7, x + len(words[i]) * 4, y + 0.18 * 7) for i, x, y in placed]
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert right <= 100
        for other in boxes[:number]:
            apart = left >= other[2] or other[0] >= right or top >= other[3] or other[1] >= bottom
            assert apart or min(right - other[0], other[2] - left) < 1e-6


def test_first_points_choose_first():
    points = [(10.0, 10.0), (13.0, 10.0), (50.0, 10.0)]
    placed = place_labels(points, ["a", "b", "c"], letter=4, height=7, gap=2, area=(0, 0, 60, 20))
    assert [index for index, _, _ in placed] == [0, 1, 2]
    assert placed[0][1] == 4.0  # left of its point: the second point is in the way on the right
    assert placed[2][1] == 52.0
