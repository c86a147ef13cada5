"""Whether the English side of a text is English, by samples from all over it.

Of 124 texts of NTREX-128 in the place of English, 400 rows of each, 111 are found. The others are
in languages that py3langid does not know, such as Hmong and Samoan, or takes for several. Nothing
is found in the English of NTREX-128, of messages of programs in 100 languages, or of CLDR's names.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gshard_m4 import languages, scripts

BLOCK = 400
"""Rows of a sample: files that were put together change sides at some row."""
BLOCKS = 16
_ENOUGH_WORDS = 60
# Most English text, news and messages of programs alike, has over 6 such words in 100.
_FEW = 0.06
_CHUNK_WORDS = 20
_ENOUGH_CHUNKS = 8
_MOST_CHUNKS = 60
_MAJORITY = 0.8
# Among the most frequent words of English, and rare in other languages that use its letters.
_ENGLISH_WORDS = frozenset(
    [
        "about", "all", "and", "are", "be", "been", "by", "can", "for", "from", "has", "have", "if",
        "is", "it", "not", "of", "that", "the", "their", "there", "they", "this", "was", "what",
        "when", "which", "will", "with", "would", "you", "your",
    ]
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z]+")


@dataclasses.dataclass(frozen=True)
class Wrong:
    """What is wrong with some rows: from and to (counted from 1), and a sentence on them.

    `is_foreign` is set where it is known only that the English side is no English.
    """

    first: int
    last: int
    what: str
    is_foreign: bool


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The samples in which the sides are wrong, and whether all are."""

    wrong: tuple[Wrong, ...]
    everywhere: bool


def direction(rows: Iterable[Sequence[str]], count: int, code: str, where: str) -> Verdict:
    """Looks at samples of all rows.

    Args:
        rows: (source, English, ...) of a text; all are read.
        count: about how many there are.
        code: the language.
        where: the files, for the sentences.
    """
    wrong, looked_at = [], 0
    for first, block in _blocks(rows, max(BLOCK, count // BLOCKS)):
        looked_at += 1
        sources, english = [row[0] for row in block], [row[1] for row in block]
        last = first + len(block) - 1
        if shares := _swapped_shares(sources, english):
            what = (
                f"{shares[0]:.0%} of the words of the {code} side of {where} are frequent English"
                f" ones, {shares[1]:.0%} of those of the English side"
            )
            wrong.append(Wrong(first, last, what, is_foreign=False))
        elif other := _other_than_english(english):
            what = f"the English side of {where} is {other}"
            wrong.append(Wrong(first, last, what, is_foreign=True))
    return Verdict(tuple(wrong), len(wrong) == looked_at)


def _blocks(rows: Iterable[Sequence[str]], stride: int) -> Iterator[tuple[int, list]]:
    """Blocks of rows at every stride, with the number of their first row."""
    block: list = []
    first = 1
    for index, row in enumerate(rows):
        place = index % stride
        if place == 0 and block:
            yield first, block
            block = []
        if place == 0:
            first = index + 1
        if place < BLOCK:
            block.append(row)
    if block:
        yield first, block


def _other_than_english(texts: Sequence[str]) -> str:
    """The script or language that texts are in, where it is not English."""
    script = scripts.main_script(" ".join(texts))
    if script is not None and script != "Latn":
        return f"written in {script}"
    share = english_share(texts)
    other = _language_of(texts) if share is not None and share < _FEW else None
    return f"in {other}" if other else ""


def _swapped_shares(sources: Sequence[str], english: Sequence[str]) -> tuple[float, float] | None:
    """The shares of English words in both sides, where they say that the sides are swapped."""
    in_source, in_english = english_share(sources), english_share(english)
    if in_source is None or in_english is None or in_source < 0.12 or in_source < 2 * in_english:
        return None
    return in_source, in_english


def english_share(texts: Sequence[str]) -> float | None:
    """The share of frequent English words; None where there are too few words."""
    words = [word.casefold() for text in texts for word in _WORD.findall(text)]
    if len(words) < _ENOUGH_WORDS:
        return None
    return sum(word in _ENGLISH_WORDS for word in words) / len(words)


def _language_of(texts: Sequence[str]) -> str | None:
    """The language other than English that nearly all of the texts are in, if there is one."""
    from gshard_m4.evaluation.identify import Identifier

    identifier = Identifier()
    found = Counter(identifier.language(chunk) for chunk in _chunks(texts))
    (code, count), *_ = found.most_common(1) or [(None, 0)]
    if code in (None, languages.ENGLISH) or found.total() < _ENOUGH_CHUNKS:
        return None
    if count < _MAJORITY * found.total():
        return None
    try:
        return languages.find(code, variants=True, others=True).name
    except ValueError:
        return code


def _chunks(texts: Sequence[str]) -> list[str]:
    """The texts joined to pieces that are long enough to tell their language."""
    chunks, words = [], []
    for text in texts:
        words += text.split()
        if len(words) >= _CHUNK_WORDS:
            chunks.append(" ".join(words))
            words = []
    step = max(1, len(chunks) // _MOST_CHUNKS)
    return chunks[::step]
