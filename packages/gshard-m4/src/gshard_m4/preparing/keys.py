"""64-bit keys of texts: what makes two of them the same.

Texts are compared by `splits.key`, which drops case, spaces and punctuation. A text without any
letter or digit would have an empty key; cleaning removes such rows. Two different texts share a key
by chance once in about 2^64 pairs: of 100 million different pairs of one language, the chance that
any is taken for a duplicate is 1 in 3,700.
"""

import hashlib

from gshard_m4 import splits
from gshard_m4.preparing.cleaning import repaired


def text_key(text: str) -> int:
    """The key of one side."""
    return _hash(splits.key(text))


def pair_key(source: str, english: str) -> int:
    """The key of a pair; prepared training text is in the order of it."""
    return _hash(f"{splits.key(source)}\t{splits.key(english)}")


def keys(source: str, english: str) -> tuple[int, int, int]:
    """The keys of the pair, its source and its English."""
    a, b = splits.key(source), splits.key(english)
    return _hash(f"{a}\t{b}"), _hash(a), _hash(b)


def keys_as_cleaned(source: str, english: str) -> tuple[int, int, int]:
    """The keys that a pair has once it is cleaned, as training text is: `AT&amp;T` is `AT&T`."""
    return keys(repaired(source, set()), repaired(english, set()))


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
