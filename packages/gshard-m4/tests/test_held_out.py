"""Drawing held-out sets and filtering training text, against the plainest way of doing both."""

import collections

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gshard_m4.preparing.drawing import Keyed, Lowest, apart, drawn_split, may_be_drawn, sizes
from gshard_m4.preparing.held_out import HeldOut, filtered, union
from gshard_m4.preparing.keys import keys
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.spool import Spool, partition, read_spool, spool_file

WORDS = st.sampled_from(["a", "A", "b", "a!", "c d", "C d", "e"])
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=30)


def keyed(pairs):
    return [Keyed(*keys(a, b), a, b, "", order) for order, (a, b) in enumerate(pairs)]


def rows_with(english_keys):
    return [Keyed(7 * n % 11, 0, key, "s", "e", "", n) for n, key in enumerate(english_keys)]


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 8))
def test_lowest_keeps_what_sorting_would(english_keys, size):
    rows = rows_with(english_keys)
    best = {}
    for row in sorted(rows, key=lambda row: (row.english_key, row.pair, row.order)):
        best.setdefault(row.english_key, row)
    lowest = Lowest(size)
    lowest.add_all(rows)
    assert lowest.rows(size) == [best[key] for key in sorted(best)[:size]]
    backwards = Lowest(size)
    backwards.add_all(reversed(rows))
    assert backwards.rows(size) == lowest.rows(size)


@given(PAIRS, PAIRS, PAIRS)
def test_filtered_is_what_a_plain_loop_finds(pairs, held_pairs, elsewhere_pairs):
    held_rows, elsewhere = keyed(held_pairs), keyed(elsewhere_pairs)
    held = HeldOut.of(
        {"test": held_rows},
        {"validation": keyed(pairs[:1])},
        (frozenset(), frozenset()),
        union([[row.english_key for row in elsewhere]]),
    )
    found = filtered(iter(keyed(pairs)), held)
    kept, seen, removed, drawn = {}, set(), collections.Counter(), 0
    for row in keyed(pairs):
        if (row.source, row.english) in seen:
            removed["duplicate"] += 1
        elif (row.source, row.english) == pairs[0]:
            drawn += 1
        elif row.source_key in {r.source_key for r in [*held_rows, *keyed(pairs[:1])]}:
            removed["held out source"] += 1
        elif row.english_key in {r.english_key for r in [*held_rows, *keyed(pairs[:1])]}:
            removed["held out English"] += 1
        elif row.english_key in {r.english_key for r in elsewhere}:
            removed["held out English elsewhere"] += 1
        elif row.pair in kept:
            removed["near duplicate"] += 1
        else:
            kept[row.pair] = row
        seen.add((row.source, row.english))
    assert found.rows() == [kept[key] for key in sorted(kept)]
    assert (found.removed, found.drawn, found.read) == (removed, drawn, len(pairs))


def test_sizes_are_shares_up_to_a_limit():
    settings = Settings(test_size=50, validation_size=9)
    assert sizes(settings, 0) == {"validation": 0, "test": 0}
    assert sizes(settings, 100) == {"validation": 2, "test": 4}
    assert sizes(settings, 10**6) == {"validation": 9, "test": 50}


def test_a_source_is_in_one_drawn_set_only():
    one, two, three = keyed([("hund", "a dog"), ("Hund!", "the dog"), ("katze", "the cat")])
    drawn = {"test": [one], "validation": [two, three]}
    assert apart(drawn) == {"test": [one], "validation": [three]}
    assert apart({"validation": [two]}) == {"validation": [two]}


def test_a_sentence_has_its_set_in_every_language():
    for english in ("the dog is here", "the cat", "what a day"):
        (one,), (other,) = keyed([("hund", english)]), keyed([("chien", english.upper())])
        assert drawn_split(one.english_key) == drawn_split(other.english_key)
    (four,), (five,) = keyed([("x", "a b c d")]), keyed([("x", "a b c d e")])
    assert [may_be_drawn(row, Settings()) for row in (four, five)] == [False, True]


def test_spool_gives_rows_back_by_the_first_bits_of_their_keys(tmp_path, monkeypatch):
    from gshard_m4.preparing import spool

    monkeypatch.setattr(spool, "_BUFFERED_ROWS", 7)
    rows = keyed([(f"s{n}", f"e{n % 5}") for n in range(40)])
    with Spool(tmp_path, 4) as opened:
        for row in rows:
            opened.add(row)
    found = [list(read_spool(spool_file(tmp_path, number))) for number in range(4)]
    assert sorted(row.order for part in found for row in part) == list(range(40))
    for number, part in enumerate(found):
        assert {partition(row.pair, 4) for row in part} <= {number}
        assert [row.order for row in part] == sorted(row.order for row in part)
    assert [partition(key, 4) for key in (0, 2**62, 2**63, 2**64 - 1)] == [0, 1, 2, 3]
    assert list(read_spool(tmp_path / "none")) == []


def test_shards_are_a_power_of_two():
    rows = (0, 1, 250_000, 250_001, 500_001, 10**6, 10**6 + 1)
    assert [Settings().shards(n) for n in rows] == [1, 1, 1, 2, 4, 4, 8]


def test_union_is_sorted_and_without_repetition():
    whole = union([[3, 2**64 - 1], np.array([3, 1], np.uint64), []])
    assert whole.tolist() == [1, 3, 2**64 - 1]
    assert union([]).tolist() == []
