"""Held-out sets of other prepared directories, which training text must not repeat either."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gshard_m4.input_error import InputError
from gshard_m4.prepared import open_prepared
from gshard_m4.preparing.drawing import DRAWN_SPLITS, Keyed
from gshard_m4.preparing.keys import keys_as_cleaned


@dataclasses.dataclass(frozen=True)
class KeptOut:
    """The keys of held-out sets.

    Attributes:
        sources: language -> keys of its sources.
        by_language: language -> keys of its English.
        english: keys of the English of all languages.
        identity: what identifies them all, '' for none.
    """

    sources: Mapping[str, frozenset[int]] = dataclasses.field(default_factory=dict)
    by_language: Mapping[str, frozenset[int]] = dataclasses.field(default_factory=dict)
    english: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))
    identity: str = ""

    def of(self, code: str) -> tuple[frozenset[int], frozenset[int]]:
        """Source and English keys of one language."""
        return self.sources.get(code, frozenset()), self.by_language.get(code, frozenset())

    def only(self, code: str) -> "KeptOut":
        """The same as far as one language needs it."""
        sources, english = self.of(code)
        return dataclasses.replace(self, sources={code: sources}, by_language={code: english})

    def has(self, code: str, row: Keyed, *, across_languages: bool) -> bool:
        """Whether a training pair of a language is left out, and so is not drawn either."""
        sources, english = self.of(code)
        if row.source_key in sources or row.english_key in english:
            return True
        if not across_languages or not len(self.english):
            return False
        key = np.uint64(row.english_key)
        place = int(np.searchsorted(self.english, key))
        return place < len(self.english) and self.english[place] == key


def kept_out(folders: Sequence[Path]) -> KeptOut:
    """The validation and test sets of prepared directories.

    Raises:
        InputError: a folder is no prepared directory.
    """
    if not folders:
        return KeptOut()
    opened, faults = [], []
    for folder in folders:
        try:
            opened.append(open_prepared(folder))
        except InputError as error:
            faults.extend(f"--keep-out: {fault}" for fault in error.faults)
    if faults:
        raise InputError(faults)
    sources: dict[str, set[int]] = {}
    english: dict[str, set[int]] = {}
    hashes = hashlib.sha256()
    for prepared in opened:
        for code, entry in prepared.manifest.languages.items():
            for split in DRAWN_SPLITS:
                for shard in entry.splits[split].shards if split in entry.splits else ():
                    hashes.update(f"{code} {shard.sha256}\n".encode())
                for source, target in prepared.pairs(code, split):
                    _, a, b = keys_as_cleaned(source, target)
                    sources.setdefault(code, set()).add(a)
                    english.setdefault(code, set()).add(b)
    everything = {key for keys_ in english.values() for key in keys_}
    return KeptOut(
        {code: frozenset(keys_) for code, keys_ in sources.items()},
        {code: frozenset(keys_) for code, keys_ in english.items()},
        np.array(sorted(everything), np.uint64),
        hashes.hexdigest()[:32],
    )
