import pytest
from hypothesis import given
from hypothesis import strategies as st

from gshard_m4.report.series import (
    Point,
    Series,
    by_size,
    in_order,
    left_out,
    measured,
    moving_average,
    order_of,
    trend_rule,
    trend_window,
)
from gshard_m4.report.trend_picture import trend_places


def point(code, value=1.0, rows=None):
    return Point(code, code.upper(), value, rows)


def test_moving_average_is_of_full_windows_at_their_middles():
    assert moving_average([1, 2, 6, 3], 2) == [(0.5, 1.5), (1.5, 4.0), (2.5, 4.5)]
    assert moving_average([1, 2, 6], 3) == [(1.0, 3.0)]
    assert moving_average([1, 2], 3) == []
    assert moving_average([1, 2], 0) == []


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(1, 12))
def test_moving_average_stays_between_the_values(values, window):
    means = moving_average(values, window)
    assert len(means) == max(0, len(values) - window + 1)
    assert all(min(values) - 1e-9 <= mean <= max(values) + 1e-9 for _, mean in means)


@pytest.mark.parametrize(
    ("count", "window"), [(0, 0), (3, 0), (4, 2), (9, 4), (19, 9), (20, 10), (102, 10)]
)
def test_window_is_ten_or_half_of_the_languages(count, window):
    assert trend_window(count) == window


def test_edge_rule_is_said():
    assert trend_rule(102) == (
        "The line is the mean of 10 neighbouring languages, drawn in their middle. Only full "
        "windows count, so it begins and ends 4.5 places from the ends."
    )
    assert "begins and ends 1 place from" in trend_rule(7)
    assert trend_rule(3) == ""


def test_languages_come_by_size_and_ties_by_code():
    points = [point("a", rows=5), point("b"), point("d", rows=9), point("c", rows=9)]
    assert [each.code for each in by_size(points)] == ["c", "d", "a"]


def test_systems_with_different_languages_share_one_order():
    one = Series("one", (point("a", rows=1), point("b", rows=3), point("x")))
    other = Series("other", (point("c", rows=2), point("a", rows=1)))
    assert [each.code for each in order_of([one, other])] == ["b", "c", "a"]
    assert [[p.code for p in each.points] for each in in_order([one, other])] == [
        ["b", "a"],
        ["c", "a"],
    ]


def test_trend_of_a_system_that_lacks_languages_lies_between_those_it_has():
    codes = "abcdef"
    places = {code: place for place, code in enumerate(codes)}
    series = Series(
        "", tuple(point(code, value) for code, value in {"a": 1, "b": 3, "d": 5, "f": 9}.items())
    )
    assert trend_places(series, places) == [(0.5, 2.0), (2.0, 4.0), (4.0, 7.0)]


def test_languages_of_unknown_size_are_named():
    series = Series("", (point("b"), point("a"), point("c", rows=1)))
    assert left_out([series, series]) == "Left out, as their size is not known: a, b."
    assert left_out([Series("", (point("c", rows=1),))]) == ""


def test_axis_names_the_system_only_where_there_is_no_legend():
    one, other = Series("one", ()), Series("other", ())
    assert measured("BLEU", "", [Series("", ())]) == "BLEU"
    assert measured("BLEU", "base", [one]) == "Difference in BLEU to base: one"
    assert measured("BLEU", "base", [one, other]) == "Difference in BLEU to base"
