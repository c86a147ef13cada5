import pytest

from gshard_m4.evaluation.defects import (
    has_loop,
    is_copied,
    is_empty,
    is_exact,
    is_over_long,
    is_repeated,
    is_tokenized,
)
from gshard_m4.evaluation.translations import Translation


def row(prediction, reference="a red rose", source: str | None = "Rose"):
    return Translation(0, source, reference, prediction, None)


@pytest.mark.parametrize(
    "text",
    [
        "no no no no no no",
        "he said that he said that he said that",
        "and The end and the End and the end of it",
        "of the of the of the",
        "so it went " + "on and on and up " * 3,
        "one two three four five six seven eight " * 3,
        "ha" * 15,
        "wait" + "." * 15,
    ],
)
def test_loops(text):
    assert has_loop(text)


@pytest.mark.parametrize(
    "text",
    [
        "no no no no no",
        "of the of the",
        "a b c a b c a b",
        "one two three four five six seven eight nine " * 3,
        "ha" * 14,
        "it is very very very good",
        "the man and the dog and the cat and the bird and the fish",
        "",
    ],
)
def test_no_loops(text):
    assert not has_loop(text)


def test_a_loop_that_the_reference_has_is_right():
    assert is_repeated(row("row " * 6))
    assert not is_repeated(row("row " * 6, "row, row, row your boat " + "row " * 6))


def test_over_long_needs_twice_the_words_and_ten_more():
    assert is_over_long(row("w " * 13, "a b c"))
    assert not is_over_long(row("w " * 12, "a b c"))
    assert is_over_long(row("w " * 25, "a " * 12))
    assert not is_over_long(row("w " * 24, "a " * 12))


def test_copied_needs_a_source_and_another_reference():
    assert is_copied(row(" Rose "))
    assert not is_copied(row("Rose", "Rose"))
    assert not is_copied(row("Rose", source=None))


def test_tokenized_text_is_told_by_its_last_sign():
    assert is_tokenized(row("a rose .", "a rose."))
    assert is_tokenized(row("a rose ?\n"))
    assert not is_tokenized(row("a rose.", "a rose."))
    assert not is_tokenized(row("a rose .", "a rose ."))


def test_exact_and_empty():
    assert is_exact(row(" a red rose\n"))
    assert not is_exact(row("A red rose"))
    assert is_empty(row(" \t"))
    assert not is_empty(row("."))
