import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_m4.order import WINDOW, Order, _feistel, _hash

SIZES, RATES = [1, 3, 100, 45, 1860], [0.1, 0.15, 0.2, 0.25, 0.3]


@pytest.fixture(scope="module")
def order():
    return Order(SIZES, RATES, seed=7)


def splitmix64(*words):
    x = words[0]
    for word in (0, *words[1:]):
        x = ((x ^ word) + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        x ^= x >> 31
    return x


def test_hash_is_the_same_on_every_machine():
    # The order of a run that started elsewhere must be found again: this number never changes.
    assert splitmix64(1, 1) == 0xE9FD6049D65AF21E
    words = [0, 1, 2**63, 2**64 - 1]
    hashed = _hash(np.uint64(1), np.asarray(words, np.uint64))
    assert hashed.tolist() == [splitmix64(1, word) for word in words]


def test_places_are_the_same_however_they_are_asked_for(order):
    part, row = order[WINDOW - 50 : WINDOW + 30]
    again = Order(SIZES, RATES, seed=7)
    for i in range(80):
        one = again[WINDOW - 50 + i : WINDOW - 49 + i]
        assert (part[i], row[i]) == (one[0][0], one[1][0])


def test_shares_are_the_rates(order):
    part, _ = order[0 : 2 * WINDOW]
    assert np.bincount(part) / (2 * WINDOW) == pytest.approx(RATES, abs=1 / WINDOW)


def test_parts_are_spread_evenly_over_batches(order):
    counts = np.array(
        [np.bincount(order[i : i + 200][0], minlength=5) for i in range(0, 20000, 200)]
    )
    assert abs(counts - 200 * np.array(RATES)).max() <= 2


def test_every_pass_over_a_part_has_each_row_once_in_another_order(order):
    part, row = order[0 : 3 * WINDOW]
    for k, size in enumerate(SIZES):
        mine = row[part == k]
        passes = mine[: len(mine) // size * size].reshape(-1, size)[:20]
        assert (np.sort(passes, axis=1) == np.arange(size)).all()
        if size >= 45:
            assert len({tuple(p) for p in passes}) == len(passes)


def test_rows_are_shuffled_well():
    _, row = Order([1000], [1.0], seed=0)[0:20000]
    passes = row.reshape(20, 1000)
    neighbours = np.abs(np.diff(passes, axis=1))
    assert 310 < neighbours.mean() < 357  # 333 for random permutations
    first_half = (passes[:, :500] < 500).sum(axis=1)
    assert abs(first_half.mean() - 250) < 8


def test_seeds_give_different_orders():
    rows = {seed: Order(SIZES, RATES, seed=seed)[0:300] for seed in (0, 1, 2)}
    for a, b in itertools.combinations(rows.values(), 2):
        assert not (a[0] == b[0]).all()
        assert not (a[1] == b[1]).all()


@settings(max_examples=30, deadline=None)
@given(half=st.integers(1, 5), key=st.integers(0, 2**64 - 1))
def test_feistel_is_a_permutation(half, key):
    size = 1 << (2 * half)
    x = np.arange(size, dtype=np.uint64)
    y = _feistel(x, np.full(size, key, np.uint64), np.full(size, half, np.uint64))
    assert collections.Counter(y.tolist()) == collections.Counter(range(size))


def test_a_part_that_would_never_be_seen_is_refused():
    with pytest.raises(ValueError, match="order: part 1 with 5 rows at a rate of 1e-06 is never"):
        Order([5, 5], [1.0, 1e-6], seed=0)
    with pytest.raises(ValueError, match="order: part 0 with 0 rows at a rate of 1 is never seen"):
        Order([0], [1.0], seed=0)
