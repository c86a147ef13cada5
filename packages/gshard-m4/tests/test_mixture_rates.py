import re

import pytest

from gshard_m4.rates import temperature_rates


def test_rates_follow_the_formula_of_m4():
    rates = temperature_rates({"a": 32, "b": 1}, temperature=5.0)
    assert rates == pytest.approx({"a": 2 / 3, "b": 1 / 3})


def test_temperature_one_follows_sizes_and_a_large_one_makes_all_equal():
    counts = {"a": 30, "b": 10}
    assert temperature_rates(counts, temperature=1.0) == pytest.approx({"a": 0.75, "b": 0.25})
    assert temperature_rates(counts, temperature=1e6)["a"] == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("counts", "temperature", "message"),
    [
        ({"a": 3, "b": 0}, 5.0, "every count must be positive, got {'b': 0}"),
        ({}, 5.0, "every count must be positive, got none"),
        ({"a": 3}, 0.0, "temperature must be positive, got 0.0"),
        ({"a": 3}, float("nan"), "temperature must be positive, got nan"),
    ],
)
def test_impossible_rates_are_refused(counts, temperature, message):
    with pytest.raises(ValueError, match=f"^{re.escape(f'temperature_rates: {message}')}$"):
        temperature_rates(counts, temperature=temperature)


def test_the_maximum_acts_before_the_temperature():
    # As seqio's mixing_rate_num_examples: min(n, maximum) ** (1 / T).
    rates = temperature_rates({"a": 1000, "b": 32, "c": 1}, temperature=5.0, maximum=32)
    assert rates == pytest.approx({"a": 0.4, "b": 0.4, "c": 0.2})


def test_a_floor_lifts_the_small_and_takes_from_the_others_in_proportion():
    counts = {"a": 60, "b": 30, "c": 9, "d": 1}
    rates = temperature_rates(counts, temperature=1.0, minimum_share=0.1)
    assert rates == pytest.approx({"a": 0.8 * 2 / 3, "b": 0.8 / 3, "c": 0.1, "d": 0.1})
    assert temperature_rates(counts, minimum_share=0.25) == pytest.approx(
        dict.fromkeys("abcd", 1 / 4)
    )


def test_lifting_one_below_the_floor_may_bring_the_next_below_it():
    counts = {"a": 80, "b": 11, "c": 9}
    rates = temperature_rates(counts, temperature=1.0, minimum_share=0.108)
    assert rates == pytest.approx({"a": 0.784, "b": 0.108, "c": 0.108})


def test_every_bound_that_is_broken_is_named_at_once():
    message = (
        "temperature_rates: temperature must be positive, got -1; maximum must be at least 1, got"
        " 0; minimum_share must be from 0 to 0.5 for 2 languages, got 0.6"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        temperature_rates({"a": 1, "b": 1}, temperature=-1, maximum=0, minimum_share=0.6)
