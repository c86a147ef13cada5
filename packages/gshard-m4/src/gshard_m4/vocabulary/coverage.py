"""How well vocabularies fit each language: unknown pieces, and how finely words are cut."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from gshard_m4.vocabulary.model import UNK, Vocabulary, normalize

# Scripts that put no spaces between words: tokens are counted per character there.
UNSPACED = frozenset(("Hani", "Hans", "Hant", "Jpan", "Khmr", "Laoo", "Mymr", "Thai", "Tibt"))

MOST_UNKNOWN = 0.001
"""A language is flagged where more of its tokens are unknown: one in a thousand, which is about one
sentence in forty at the lengths of translation corpora."""

MOST_BYTES = 0.01
"""A language is flagged where more of its tokens are single bytes."""

MOST_PER_ENGLISH = 2.5
"""A language is flagged where it takes more tokens than this for one of the English side. Of nine
languages, none took more with 32,000 pieces shared with English, four did with 8,000."""

FEWEST_ROWS = 20
"""Nothing is said of a language with fewer rows to measure on."""

_LISTED = 50  # characters of a language in coverage.json


@dataclasses.dataclass(frozen=True)
class Coverage:
    """What a vocabulary makes of one language's text.

    Attributes:
        code: the language; `en` is the target side.
        name: its English name.
        script: the script it is written in.
        rows: sentences that were measured.
        words: between spaces.
        characters: without spaces, after the model's own normalisation.
        tokens: pieces, without end of sentence.
        unknown: tokens that are the unknown piece.
        bytes: tokens that are one byte of a character without a piece.
        english_tokens: what the target vocabulary takes for the same rows.
        lost: characters without a piece, and how often they occur; the most frequent first.
    """

    code: str
    name: str
    script: str
    rows: int
    words: int
    characters: int
    tokens: int
    unknown: int
    bytes: int
    english_tokens: int
    lost: dict[str, int]

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown."""
        return self.unknown / max(1, self.tokens)

    @property
    def byte_rate(self) -> float:
        """Share of the tokens that are bytes."""
        return self.bytes / max(1, self.tokens)

    @property
    def tokens_per_word(self) -> float | None:
        """None for scripts without spaces."""
        return None if self.script in UNSPACED else self.tokens / max(1, self.words)

    @property
    def tokens_per_character(self) -> float:
        """Near 1 where nothing but single characters was learnt."""
        return self.tokens / max(1, self.characters)

    @property
    def per_english(self) -> float:
        """Tokens for one of the English side."""
        return self.tokens / max(1, self.english_tokens)


def measure(
    code: str,
    name: str,
    script: str,
    pairs: Sequence[tuple[str, str]],
    source: Vocabulary,
    target: Vocabulary,
) -> Coverage:
    """The coverage of one language's (source, English) rows."""
    texts = [text for text, _ in pairs]
    english = sum(map(len, target.encode_batch([text for _, text in pairs])))
    return _measure(code, name, script, texts, source, english)


def measure_english(texts: Sequence[str], target: Vocabulary) -> Coverage:
    """The coverage of the English side."""
    return _measure("en", "English", "Latn", texts, target, None)


def _measure(
    code: str,
    name: str,
    script: str,
    texts: Sequence[str],
    vocabulary: Vocabulary,
    english_tokens: int | None,
) -> Coverage:
    plain = [normalize(text) for text in texts]
    ids = collections.Counter(i for row in vocabulary.encode_batch(texts) for i in row)
    characters = collections.Counter("".join(plain))
    characters.pop(" ", None)
    return Coverage(
        code=code,
        name=name,
        script=script,
        rows=len(texts),
        words=sum(len(text.split()) for text in plain),
        characters=characters.total(),
        tokens=ids.total(),
        unknown=ids[UNK],
        bytes=sum(ids[i] for i in vocabulary.byte_ids),
        english_tokens=ids.total() if english_tokens is None else english_tokens,
        lost=_lost(characters, vocabulary),
    )


def _lost(characters: collections.Counter[str], vocabulary: Vocabulary) -> dict[str, int]:
    bad = vocabulary.byte_ids | {UNK}
    common = [character for character, _ in sorted(characters.items(), key=lambda x: (-x[1], x[0]))]
    pieces = vocabulary.encode_batch(common)
    return {c: characters[c] for c, ids in zip(common, pieces, strict=True) if bad & set(ids)}


def by_script(parts: Iterable[Coverage]) -> list[Coverage]:
    """The coverage of the languages of each script together, under the code of the script."""
    groups: dict[str, list[Coverage]] = {}
    for part in parts:
        groups.setdefault(part.script, []).append(part)
    return [_total(script, groups[script]) for script in sorted(groups)]


def _total(script: str, parts: Sequence[Coverage]) -> Coverage:
    lost: collections.Counter[str] = collections.Counter()
    for part in parts:
        lost.update(part.lost)
    name = "1 language" if len(parts) == 1 else f"{len(parts)} languages"
    numbers = (field.name for field in dataclasses.fields(Coverage) if field.type is int)
    sums = {number: sum(getattr(part, number) for part in parts) for number in numbers}
    return Coverage(code=script, name=name, script=script, lost=dict(lost.most_common()), **sums)


def as_json(coverage: Coverage) -> dict[str, Any]:
    """The numbers of a language with its rates and flags, as `coverage.json` has them."""
    fields = dataclasses.asdict(coverage)
    lost = fields.pop("lost")
    rates = ("unknown_rate", "byte_rate", "tokens_per_word", "tokens_per_character", "per_english")
    return (
        fields
        | {rate: _rounded(getattr(coverage, rate)) for rate in rates}
        | {"lost_characters": len(lost), "lost": dict(list(lost.items())[:_LISTED])}
        | {"flags": flags(coverage)}
    )


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 6)


def flags(coverage: Coverage) -> list[str]:
    """What is bad about it and what to do, one sentence each."""
    found = []
    if coverage.rows < FEWEST_ROWS:
        return found
    if coverage.unknown_rate > MOST_UNKNOWN:
        found.append(
            f"{coverage.unknown_rate:.2%} of the tokens are unknown"
            f" ({_shown(coverage.lost)}): use --byte-fallback, or raise --character-coverage"
            " for those that are in the training text"
        )
    if coverage.byte_rate > MOST_BYTES:
        found.append(
            f"{coverage.byte_rate:.2%} of the tokens are single bytes ({_shown(coverage.lost)}):"
            " raise --character-coverage, or add training text that has them"
        )
    if coverage.per_english > MOST_PER_ENGLISH:
        found.append(
            f"{coverage.per_english:.2f} tokens for one of English: raise --source-size, or"
            " --temperature if it has little text"
        )
    return found


def _shown(lost: dict[str, int]) -> str:
    """The most frequent lost characters, with their code points where they are hard to see."""
    shown = " ".join(f"{c} U+{ord(c):04X}" for c in list(lost)[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return shown + more
