"""Held-out sets for many languages that share their English, without leaks between them.

A table has one English phrase a row and one language a column. Three sets are held out, all by
hash, so that they do not depend on the order of rows or languages:

- `unseen`: the English phrase stands in no other split of any language;
- `test`, `validation`: the phrase is new in this language, its English is not: training has it
  through other languages.

Texts are compared by `key`, which drops case, spaces and punctuation. A held-out source never
stands in its language's training text, not even with another English.
"""

import collections
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence

UNSEEN_SHARE = 0.03
VALIDATION_SHARE = 0.02
TEST_SHARE = 0.05
TEST_SIZE = 80  # for a language with enough pairs: the same for all, so that scores compare
TEST_SIZE_FROM = 1_000
MOST_WORDS = 10  # of English: a held-out phrase is never cut at the lengths of small models
MIN_LANGUAGES = 8  # that share the English of a test phrase


class _LettersMarksDigits(dict[int, int | None]):
    """A translation table that deletes everything else; filled as characters are met."""

    def __missing__(self, code_point: int) -> int | None:
        is_kept = unicodedata.category(chr(code_point))[0] in "LMN"
        self[code_point] = kept = code_point if is_kept else None
        return kept


_LETTERS_MARKS_DIGITS = _LettersMarksDigits()


def key(text: str) -> str:
    """Letters, marks and digits of a text, case-folded: what makes two texts the same."""
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return folded.casefold().translate(_LETTERS_MARKS_DIGITS)


def split_table(
    english: Sequence[str], origins: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """The split of each cell of a table of translations.

    Args:
        english: the English phrase of each row.
        origins: what each row comes from; `unseen` takes its share of every origin.
        columns: language -> its phrase of each row, '' where it has none.

    Returns:
        language -> for each row 'train', 'validation', 'test', 'unseen', or '' where the language
        has no phrase or the pair is left out (a repetition, or a second English for a phrase of
        `unseen`).
    """
    keys = [key(phrase) for phrase in english]
    short = {k for k, phrase in zip(keys, english, strict=True) if _is_short(phrase)}
    spread = collections.Counter(
        k for cells in columns.values() for k in {k for k, c in zip(keys, cells, strict=True) if c}
    )
    allowed = {k for k in short if spread[k] >= MIN_LANGUAGES}
    unseen = _unseen(keys, origins, allowed)
    return {lang: _split(lang, keys, cells, allowed, unseen) for lang, cells in columns.items()}


def _is_short(english: str) -> bool:
    return len(english.split()) <= MOST_WORDS


def _rank(*parts: str) -> bytes:
    return hashlib.blake2b("\t".join(parts).encode(), digest_size=8).digest()


def _unseen(keys: Sequence[str], origins: Sequence[str], allowed: set[str]) -> set[str]:
    by_origin = collections.defaultdict(set)
    for k, origin in zip(keys, origins, strict=True):
        by_origin[origin].add(k)
    chosen = set()
    for members in by_origin.values():
        ranked = sorted(members & allowed, key=lambda k: _rank("unseen", k))
        chosen.update(ranked[: round(UNSEEN_SHARE * len(members))])
    return chosen


def _split(
    language: str, keys: Sequence[str], cells: Sequence[str], allowed: set[str], unseen: set[str]
) -> list[str]:
    english_of = collections.defaultdict(set)
    for k, cell in zip(keys, cells, strict=True):
        if cell:
            english_of[key(cell)].add(k)
    train_size = sum(not english & unseen for english in english_of.values())
    candidates = sorted(
        (
            source
            for source, english in english_of.items()
            if len(english) == 1 and source not in english and english <= allowed - unseen
        ),
        key=lambda source: _rank("pairs", language, source),
    )
    test = TEST_SIZE if train_size >= TEST_SIZE_FROM else max(2, round(TEST_SHARE * train_size))
    validation = max(1, round(VALIDATION_SHARE * train_size))
    held = dict.fromkeys(candidates[:test], "test")
    held |= dict.fromkeys(candidates[test : test + validation], "validation")
    result, seen = [], set()
    for k, cell in zip(keys, cells, strict=True):
        pair = key(cell), k
        if not cell or pair in seen or not pair[0]:
            split = ""
        elif k in unseen:
            split = "unseen" if len(english_of[pair[0]]) == 1 and pair[0] != k else ""
        else:
            split = held.get(pair[0], "train")
        seen.add(pair)
        result.append(split)
    return result
