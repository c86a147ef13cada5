"""What rows are compared by: 64-bit hashes, so that memory is eight bytes a row and key."""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from gshard_m4.corpus import Pair
from gshard_m4.doctor.files import HELD_OUT
from gshard_m4.prepared import Prepared
from gshard_m4.preparing.keys import keys_as_cleaned


@dataclasses.dataclass(frozen=True)
class Held:
    """The held-out sentences of one language.

    Attributes:
        sources: keys of the sources.
        english: keys of the English.
        exact_sources: hashes of the sources to the last character.
        exact_english: hashes of the English to the last character.
    """

    sources: frozenset[int]
    english: frozenset[int]
    exact_sources: frozenset[int]
    exact_english: frozenset[int]


def exact(text: str) -> int:
    """The hash of a text to the last character."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def held(pairs: Iterable[Pair]) -> Held:
    """The keys of pairs."""
    sources, english, exact_sources, exact_english = set(), set(), set(), set()
    for source, target in pairs:
        _, source_key, english_key = keys_as_cleaned(source, target)
        sources.add(source_key)
        english.add(english_key)
        exact_sources.add(exact(source))
        exact_english.add(exact(target))
    return Held(*map(frozenset, (sources, english, exact_sources, exact_english)))


def held_of(prepared: Prepared, code: str) -> Held:
    """The keys of a language's validation and test sets."""
    return held(pair for split in HELD_OUT for pair in prepared.pairs(code, split))


def english_of_all(found: Mapping[str, Held]) -> np.ndarray:
    """The English keys of the held-out sets of all languages, sorted."""
    everything = {key for one in found.values() for key in one.english}
    return np.array(sorted(everything), np.uint64)
