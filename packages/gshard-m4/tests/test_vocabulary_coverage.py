import dataclasses

import pytest

from gshard_m4.vocabulary import Vocabulary, train
from gshard_m4.vocabulary.coverage import (
    Coverage,
    as_json,
    by_script,
    flags,
    measure,
    measure_english,
)
from gshard_m4.vocabulary.table import table

TEXTS = [f"{a} {b} arrow" for a in ("red", "green", "left") for b in ("up", "down", "heart")]
GOOD = Coverage(
    code="de", name="German", script="Latn", rows=100, words=1000, characters=5000, tokens=2000,
    unknown=2, bytes=20, english_tokens=800, lost={"☰": 2},
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    train(TEXTS, folder / "unknown.model", size=22, character_coverage=1.0)
    train(TEXTS, folder / "bytes.model", size=276, byte_fallback=True, character_coverage=1.0)
    return Vocabulary(folder / "unknown.model"), Vocabulary(folder / "bytes.model")


def test_what_is_counted(models):
    target, _ = models
    source = _Characters()
    pairs = [("ab\u00a0a", "up"), ("☰\u200bb☰", "heart")]
    assert measure("de", "German", "Latn", pairs, source, target) == Coverage(
        code="de",
        name="German",
        script="Latn",
        rows=2,
        words=3,
        characters=6,
        tokens=6,
        unknown=2,
        bytes=2,
        english_tokens=sum(map(len, target.encode_batch(["up", "heart"]))),
        lost={"b": 2, "☰": 2},
    )


class _Characters(Vocabulary):
    """One token a character: a is a piece, b a byte, anything else unknown."""

    byte_ids = frozenset([4])  # pyright: ignore[reportAssignmentType]

    def __init__(self):
        pass

    def encode_batch(self, texts):
        ids = {"a": 3, "b": 4, "☰": 2}
        return [[ids[c] for c in text if c in ids] for text in texts][: len(texts)]


def test_unknown_characters_are_listed_and_bytes_are_no_unknown_tokens(models):
    unknown, with_bytes = models
    lost = measure_english(["red ☰☰ up", "red é"], unknown)
    assert (lost.unknown, lost.bytes, lost.lost) == (2, 0, {"☰": 2, "é": 1})
    in_bytes = measure_english(["red ☰☰ up", "red é"], with_bytes)
    assert (in_bytes.unknown, in_bytes.bytes, in_bytes.lost) == (0, 8, {"☰": 2, "é": 1})
    assert in_bytes.per_english == 1.0


def test_scripts_without_spaces_have_no_tokens_per_word():
    assert GOOD.tokens_per_word == 2.0
    assert dataclasses.replace(GOOD, script="Thai").tokens_per_word is None


def test_scripts_add_up_their_languages():
    other = dataclasses.replace(GOOD, code="fr", lost={"☰": 1, "é": 5})
    latin, thai = by_script([GOOD, dataclasses.replace(GOOD, code="th", script="Thai"), other])
    assert (latin.code, latin.name, latin.rows, latin.tokens) == ("Latn", "2 languages", 200, 4000)
    assert latin.lost == {"é": 5, "☰": 3}
    assert (thai.code, thai.name) == ("Thai", "1 language")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        (
            {"unknown": 3, "lost": {"☰": 2, "é": 1, "a": 1, "b": 1}},
            "0.15% of the tokens are unknown (☰ U+2630 é U+00E9 a U+0061 and 1 more): use"
            " --byte-fallback, or raise --character-coverage for those that are in the training"
            " text",
        ),
        (
            {"bytes": 30},
            "1.50% of the tokens are single bytes (☰ U+2630): raise --character-coverage, or add"
            " training text that has them",
        ),
        (
            {"english_tokens": 799},
            "2.50 tokens for one of English: raise --source-size, or --temperature if it has"
            " little text",
        ),
        ({"rows": 19, "unknown": 2000}, None),
    ],
)
def test_what_is_flagged(changed, reason):
    assert flags(dataclasses.replace(GOOD, **changed)) == ([reason] if reason else [])


def test_the_table_has_every_language_every_script_and_what_is_bad():
    bad = dataclasses.replace(GOOD, code="th", name="Thai", script="Thai", unknown=30)
    lines = table(dataclasses.replace(GOOD, code="en", name="English", lost={}), [GOOD, bad])
    assert lines == [
        "      language    script  rows  unknown  bytes  tokens/word  tokens/character"
        "  tokens/English  not covered",
        "",
        "en    English     Latn     100    0.10%  1.00%         2.00              0.40"
        "            2.50",
        "",
        "de    German      Latn     100    0.10%  1.00%         2.00              0.40"
        "            2.50  1 character",
        "th    Thai        Thai     100    1.50%  1.00%            -              0.40"
        "            2.50  1 character",
        "",
        "Latn  1 language  Latn     100    0.10%  1.00%         2.00              0.40"
        "            2.50  1 character",
        "Thai  1 language  Thai     100    1.50%  1.00%            -              0.40"
        "            2.50  1 character",
        "",
        "flagged (1 of 3):",
        f"  th (Thai): {flags(bad)[0]}",
    ]
    assert table(GOOD, [GOOD])[-1] == "nothing to flag in 1 language and English"


def test_json_has_numbers_rates_and_flags():
    assert as_json(GOOD) == {
        "code": "de", "name": "German", "script": "Latn", "rows": 100, "words": 1000,
        "characters": 5000, "tokens": 2000, "unknown": 2, "bytes": 20, "english_tokens": 800,
        "unknown_rate": 0.001, "byte_rate": 0.01, "tokens_per_word": 2.0,
        "tokens_per_character": 0.4, "per_english": 2.5, "lost_characters": 1, "lost": {"☰": 2},
        "flags": [],
    }  # fmt: skip
