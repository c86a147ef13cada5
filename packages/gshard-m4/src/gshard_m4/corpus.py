"""A parallel corpus into English: pairs of each language and split, and its two vocabularies."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

SPLITS = ("train", "validation", "test", "unseen")

Pair = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Text of many languages with its English.

    Attributes:
        name: what its mixture is called; its tasks are `<name>_<language>_en`.
        pairs: language code -> split -> (source, English) pairs.
        source_vocabulary: a SentencePiece model for all source languages.
        target_vocabulary: a SentencePiece model for English.
    """

    name: str
    pairs: Mapping[str, Mapping[str, Sequence[Pair]]]
    source_vocabulary: pathlib.Path
    target_vocabulary: pathlib.Path

    def task_name(self, language: str) -> str:
        """The seqio name of one language's task."""
        return f"{self.name}_{language}_en"

    def counts(self, split: str) -> dict[str, int]:
        """Language -> number of pairs of the split."""
        return {language: len(splits[split]) for language, splits in self.pairs.items()}
