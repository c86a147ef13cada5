"""A parallel corpus into English: pairs of each language and split, and its two vocabularies."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

SPLITS = ("train", "validation", "test", "unseen")
PREPARED_SPLITS = SPLITS[:3]
PREPARED_NAME = "m4"
SOURCE_MODEL, TARGET_MODEL = "source.model", "target.model"

Pair = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Text of many languages with its English.

    Attributes:
        name: how the names of its mixtures begin; its tasks are `<name>_<language>_en`.
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

    def with_vocabulary(self, folder: str | pathlib.Path) -> "Corpus":
        """The corpus with the models of a folder, `source.model` and `target.model`."""
        folder = pathlib.Path(folder)
        return dataclasses.replace(
            self,
            source_vocabulary=folder / SOURCE_MODEL,
            target_vocabulary=folder / TARGET_MODEL,
        )

    def counts(self, split: str) -> dict[str, int]:
        """Language -> number of pairs of the split."""
        return {language: len(splits.get(split, ())) for language, splits in self.pairs.items()}


def open_corpus(path: str | pathlib.Path, *, name: str = PREPARED_NAME) -> Corpus:
    """A prepared directory as a corpus; its files are opened when their rows are read.

    Args:
        path: what `gshard-m4 prepare` wrote.
        name: of the corpus, whatever its manifest calls it: `m4`, so that tasks are `m4_de_en`.

    Raises:
        InputError: naming all that is wrong with the directory.
    """
    from gshard_m4.prepared import open_prepared

    prepared = open_prepared(path)
    return Corpus(
        name=name,
        pairs={
            code: {split: prepared.pairs(code, split) for split in PREPARED_SPLITS}
            for code in prepared.manifest.languages
        },
        source_vocabulary=prepared.source_vocabulary,
        target_vocabulary=prepared.target_vocabulary,
    )
