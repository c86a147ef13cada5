"""What can be wrong with a translation that a mean score hides, told from the text alone."""

import re

from gshard_m4.evaluation.translations import Translation

# How a reader of the numbers is told what each share counts.
MEANINGS = {
    "exact": "the translation is the reference, character for character, outer spaces aside",
    "short": "the reference has fewer than the four tokens that BLEU compares",
    "empty": "the translation has no text",
    "copied": "the translation is the source, although the reference is not",
    "truncated": "the decoder reached its longest length before the end of the translation",
    "repeated": "one to eight words come three times or more in a row, six words at least in all, "
    "or up to four characters fifteen times in a row, and the reference has no such loop",
    "over_long": "more than twice as many words as the reference, and at least ten more",
    "tokenized": "the last sign stands apart, as tokenizers leave it, and not in the reference",
    "wrong_language": "the translation is not in English; texts too short to tell are left out",
}

_CHARACTER_LOOP = re.compile(r"(\S{1,4}?)\1{14,}")
_LONGEST_LOOP = 8
_LOOP_WORDS = 6
_LONGER_BY = 10
_APART = (" .", " !", " ?")


def is_exact(row: Translation) -> bool:
    """Whether the translation is the reference, spaces around them aside."""
    return row.prediction.strip() == row.reference.strip()


def is_empty(row: Translation) -> bool:
    """Whether the translation has no text."""
    return not row.prediction.strip()


def is_copied(row: Translation) -> bool:
    """Whether the source came out untranslated where the reference differs from it."""
    source = row.source
    return source is not None and row.prediction.strip() == source.strip() and not is_exact(row)


def is_repeated(row: Translation) -> bool:
    """Whether the translation went round in a loop that the reference does not have."""
    return has_loop(row.prediction) and not has_loop(row.reference)


def is_over_long(row: Translation) -> bool:
    """Whether the translation has far more words than the reference."""
    said, wanted = len(row.prediction.split()), len(row.reference.split())
    return said > 2 * wanted and said >= wanted + _LONGER_BY


def is_tokenized(row: Translation) -> bool:
    """Whether the last sign stands apart, as tokenizers leave it, and that of the reference not.

    Metrics take text that was not joined up again as other words.
    """
    return row.prediction.rstrip().endswith(_APART) and not row.reference.rstrip().endswith(_APART)


def has_loop(text: str) -> bool:
    """Whether words, or characters, repeat again and again (`MEANINGS` has the bounds)."""
    if _CHARACTER_LOOP.search(text):
        return True
    words = text.casefold().split()
    # Six words of a loop that comes three times leave at least four repetitions of a word.
    if len(words) - len(set(words)) < 4:
        return False
    return any(_repeats(words, length) for length in range(1, _LONGEST_LOOP + 1))


def _repeats(words: list[str], length: int) -> bool:
    """Whether `length` words come three times in a row, and make `_LOOP_WORDS` words at least."""
    wanted = max(2 * length, _LOOP_WORDS - length)
    run = 0
    for now, before in zip(words[length:], words, strict=False):
        run = run + 1 if now == before else 0
        if run >= wanted:
            return True
    return False
