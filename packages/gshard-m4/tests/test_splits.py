import collections
import random

import pytest

from gshard_m4.corpus import SPLITS
from gshard_m4.sample.corpus import corpus
from gshard_m4.splits import MIN_LANGUAGES, MOST_WORDS, TEST_SIZE, TEST_SIZE_FROM, key, split_table


@pytest.fixture(scope="module")
def sample():
    return corpus().pairs


def test_key_drops_case_spaces_and_punctuation_but_not_marks():
    assert key("“On!” Arrow") == key("on arrow") == "onarrow"
    assert key("ＡＢ１") == "ab1"
    assert key("कि") != key("क")
    assert key("— … !") == ""


def test_unseen_english_stands_in_no_other_split_of_any_language(sample):
    unseen = {key(e) for splits in sample.values() for _, e in splits["unseen"]}
    others = {
        key(e) for splits in sample.values() for s in SPLITS if s != "unseen" for _, e in splits[s]
    }
    assert not unseen & others
    assert 0.025 < len(unseen) / len(unseen | others) < 0.035


def test_held_out_sources_stand_in_no_other_split_of_their_language(sample):
    for splits in sample.values():
        sources = {name: {key(source) for source, _ in splits[name]} for name in SPLITS}
        for held_out in ("validation", "test", "unseen"):
            for other in SPLITS:
                assert other == held_out or not sources[held_out] & sources[other]


def test_english_of_held_out_pairs_is_trained_on_in_other_languages(sample):
    trained = collections.defaultdict(set)
    for language, splits in sample.items():
        for _, english in splits["train"]:
            trained[key(english)].add(language)
    for language, splits in sample.items():
        for _, english in splits["validation"] + splits["test"]:
            assert len(trained[key(english)] - {language}) >= MIN_LANGUAGES // 2


def test_no_pair_is_repeated_and_held_out_ones_are_short_and_no_copies(sample):
    for splits in sample.values():
        pairs = [(key(s), key(e)) for name in SPLITS for s, e in splits[name]]
        assert len(set(pairs)) == len(pairs)
        for name in ("validation", "test", "unseen"):
            for source, english in splits[name]:
                assert key(source) != key(english)
                assert len(english.split()) <= MOST_WORDS


def test_sizes_of_the_splits(sample):
    sizes = {name: {lang: len(of[name]) for lang, of in sample.items()} for name in SPLITS}
    for language, size in sizes["train"].items():
        assert size >= 40
        if size >= TEST_SIZE_FROM:
            assert sizes["test"][language] == TEST_SIZE
        assert sizes["validation"][language] < max(sizes["test"][language], 2)
        assert min(sizes[name][language] for name in SPLITS) >= 1
    assert sum(size == TEST_SIZE for size in sizes["test"].values()) == 86


def table(words=120, codes="abcdefghij"):
    english = [f"word number {i}" for i in range(words)]
    columns = {code: [f"{code} {i}" for i in range(words)] for code in codes}
    return english, ["made"] * words, columns


def test_splits_do_not_depend_on_the_order_of_rows_or_languages():
    english, origins, columns = table()
    straight = split_table(english, origins, columns)
    shuffled = random.Random(0).sample(range(len(english)), len(english))
    other = split_table(
        [english[i] for i in shuffled],
        origins,
        {code: [columns[code][i] for i in shuffled] for code in reversed(columns)},
    )
    assert {c: [straight[c][i] for i in shuffled] for c in straight} == other


def test_a_source_with_two_english_phrases_is_never_held_out():
    english, origins, columns = table()
    columns["a"] = ["the same"] * len(english)
    assert set(split_table(english, origins, columns)["a"]) <= {"train", ""}


def test_english_that_few_languages_share_is_never_held_out():
    english, origins, columns = table(codes="abcdefg")
    splits = split_table(english, origins, columns)
    assert {split for of in splits.values() for split in of} == {"train"}


def test_repeated_and_empty_cells_are_left_out():
    english, origins, columns = table()
    english[1], columns["a"][1] = "Word, number 0!", "A 0"
    columns["b"][5] = ""
    splits = split_table(english, origins, columns)
    assert splits["a"][1] == splits["b"][5] == ""
