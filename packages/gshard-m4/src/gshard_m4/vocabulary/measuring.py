"""The coverage of a prepared directory's languages.

Measured on rows that were held out, and on training rows where a language has few of those.
"""

from collections.abc import Callable, Iterable, Sequence

from gshard_m4.corpus import Pair
from gshard_m4.prepared import Prepared
from gshard_m4.vocabulary.coverage import Coverage, measure, measure_english
from gshard_m4.vocabulary.model import Vocabulary
from gshard_m4.vocabulary.sampling import pick, spread

CHECK_ROWS = 1_000
"""Rows of a language's validation set, and as many of its test set, that are measured."""

FEWEST_HELD_OUT = 200
"""Below so many, training rows make up the number."""

Track = Callable[[Sequence[str], str], Iterable[str]]
"""Shows how far it is: `track(codes, what)` gives the codes."""


def cover(
    prepared: Prepared,
    codes: Sequence[str],
    source: Vocabulary,
    target: Vocabulary,
    track: Track = lambda codes, what: codes,
) -> tuple[Coverage, list[Coverage]]:
    """The coverage of English, over the different sentences of all rows, and of each language.

    Languages without any row are left out.
    """
    english: dict[str, None] = {}
    found = []
    for code in track(codes, "coverage"):
        if pairs := rows_to_measure(prepared, code):
            entry = prepared.manifest.languages[code]
            found.append(measure(code, entry.name, entry.script, pairs, source, target))
            english.update(dict.fromkeys(text for _, text in pairs))
    return measure_english(list(english), target), found


def rows_to_measure(prepared: Prepared, code: str) -> list[Pair]:
    """Rows of a language that say what its vocabulary makes of it."""
    rows: list[Pair] = []
    for split in ("validation", "test"):
        pairs = prepared.pairs(code, split)
        rows += pick(pairs, spread(len(pairs), CHECK_ROWS))
    if len(rows) < FEWEST_HELD_OUT:
        train = prepared.pairs(code, "train")
        rows += pick(train, spread(len(train), FEWEST_HELD_OUT - len(rows), between=True))
    return rows
