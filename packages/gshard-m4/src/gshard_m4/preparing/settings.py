"""What decides which rows are prepared, apart from the input itself."""

import dataclasses
from typing import Any

from gshard_m4.preparing.cleaning import Cleaning

FORMAT = 2
"""Changes when the same input and settings would give other rows than before."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How text is cleaned, split and kept apart.

    Attributes:
        cleaning: what is allowed in a training pair.
        validation_size: pairs drawn for a language whose source has no validation set.
        test_size: the same for a test set.
        validation_share: of a language's pairs, at most, that are drawn.
        test_share: the same for a test set.
        min_words: of the English of a drawn pair.
        across_languages: English of a held-out set of one language is in no training text of any.
        clean_held_out: clean the validation and test sets of the source as well. By default they
            stay whole and as published, so that scores compare; empty rows alone are removed.
        rows_per_shard: at most about this many.
    """

    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)
    validation_size: int = 500
    test_size: int = 500
    validation_share: float = 0.02
    test_share: float = 0.04
    min_words: int = 5
    across_languages: bool = True
    clean_held_out: bool = False
    rows_per_shard: int = 250_000

    def flat(self) -> dict[str, Any]:
        """All of them by name, for the manifest and for telling two runs apart."""
        values = dataclasses.asdict(self)
        return {"format": FORMAT, **values.pop("cleaning"), **values}

    def shards(self, rows: int) -> int:
        """The number of shards for a number of rows read: a power of two, so that hashes split."""
        count = 1
        while rows > count * self.rows_per_shard:
            count *= 2
        return count
