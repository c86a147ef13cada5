import re

import pytest

from gshard_m4 import mixture


def test_rates_follow_the_formula_of_m4():
    rates = mixture.temperature_rates({"a": 32, "b": 1}, temperature=5.0)
    assert rates == pytest.approx({"a": 2 / 3, "b": 1 / 3})


def test_temperature_one_follows_sizes_and_a_large_one_makes_all_equal():
    counts = {"a": 30, "b": 10}
    assert mixture.temperature_rates(counts, temperature=1.0) == pytest.approx(
        {"a": 0.75, "b": 0.25}
    )
    assert mixture.temperature_rates(counts, temperature=1e6)["a"] == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize(
    ("counts", "temperature", "message"),
    [
        ({"a": 3, "b": 0}, 5.0, "every count must be positive, got {'b': 0}"),
        ({}, 5.0, "every count must be positive, got none"),
        ({"a": 3}, 0.0, "temperature must be positive, got 0.0"),
    ],
)
def test_impossible_rates_are_refused(counts, temperature, message):
    with pytest.raises(ValueError, match=re.escape(f"temperature_rates: {message}")):
        mixture.temperature_rates(counts, temperature=temperature)


def test_the_sample_mixes_all_languages_and_favours_small_ones():
    found = mixture.find("m4_sample")
    assert sum(found.rates.values()) == pytest.approx(1.0)
    counts = found.corpus.counts("train")
    assert list(found.rates) == list(counts)
    ratio = (counts["de"] / counts["yi"]) ** (1 / 5)
    assert found.rates["de"] / found.rates["yi"] == pytest.approx(ratio)


def test_one_task_is_a_mixture_of_one_language():
    assert mixture.find("m4_sample_fil_en").rates == {"fil": 1.0}


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("m4_sampel", "m4_sample"),
        ("m4_sample_iw_en", "m4_sample_he_en, m4_sample"),
        ("m4_sample_deu_Latn_en", "m4_sample_de_en, m4_sample"),
        ("m4_sample_zz_en", "m4_sample_zu_en, m4_sample_zh_en, m4_sample_uz_en"),
        ("wmt", "m4_sample"),
    ],
)
def test_unknown_names_are_refused_with_near_ones(name, near):
    message = f"unknown mixture or task {name!r}; did you mean {near}?"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        mixture.find(name)
