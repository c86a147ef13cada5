import itertools

from hypothesis import given
from hypothesis import strategies as st

from gshard_m4.mixture import temperature_rates
from gshard_m4.vocabulary.sampling import frequent_characters, pick, quotas, spread


def test_languages_share_the_sample_at_the_rates_of_the_temperature():
    counts = {"de": 100_000, "cy": 1_000, "yi": 500}
    rates = temperature_rates(counts, temperature=5)
    assert quotas(counts, 600, 5) == {code: round(600 * rate) for code, rate in rates.items()}
    assert quotas({"de": 300, "cy": 100}, 40, 1) == {"de": 30, "cy": 10}


def test_a_small_language_gives_all_it_has_and_the_others_share_the_rest():
    assert quotas({"yi": 10, "de": 100_000, "fr": 100_000}, 310, 5) == {
        "yi": 10,
        "de": 150,
        "fr": 150,
    }
    assert quotas({"yi": 10, "de": 20, "hmn": 0}, 310, 5) == {"yi": 10, "de": 20}


def test_every_language_with_rows_gives_at_least_one():
    assert quotas({"yi": 5, "de": 10_000_000}, 2, 1) == {"yi": 1, "de": 2}


@given(rows=st.integers(0, 300), take=st.integers(1, 300))
def test_chosen_rows_are_different_evenly_spaced_and_those_between_are_others(rows, take):
    chosen = spread(rows, take)
    assert len(chosen) == min(rows, take)
    assert chosen == sorted(set(chosen))
    assert all(0 <= row < rows for row in chosen)
    steps = [b - a for a, b in itertools.pairwise(chosen)]
    assert not steps or max(steps) - min(steps) <= 1
    if 2 * take <= rows:
        assert not set(chosen) & set(spread(rows, take, between=True))


def test_rows_are_the_same_however_they_are_read():
    pairs = [(str(i), str(-i)) for i in range(100)]
    for indices in ([], [3], [0, 50, 99], list(range(0, 100, 3)), list(range(100))):
        assert list(pick(pairs, indices)) == [pairs[i] for i in indices]


def test_characters_are_those_that_make_up_the_share_of_the_text_without_spaces():
    texts = ["aaaa aaaa", "bb\u200bb", "c"]
    assert frequent_characters(texts, 8 / 12) == {"a"}
    assert frequent_characters(texts, 0.9) == {"a", "b"}
    assert frequent_characters(texts, 1.0) == {"a", "b", "c"}
    assert frequent_characters([], 1.0) == set()
