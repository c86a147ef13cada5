"""What the order of a feed's examples depends on, for telling two feeds apart.

Not in it is what may change without changing a global batch: the number of processes, threads, and
where the files are.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from gshard_m4.corpus import Pair
from gshard_m4.mixture import Mixture
from gshard_m4.packing import Window

Identity = dict[str, str | int | float | None]
_DIGITS = 16


def feed_identity(
    described: Mixture,
    *,
    lengths: Mapping[str, int],
    batch_size: int,
    seed: int,
    source_tags: bool,
    window: Window | None,
    rates: Mapping[str, float | None],
) -> Identity:
    """Names and values, flat, as JSON can hold them.

    Args:
        described: the mixture; of its text a hash a language is taken, of prepared text that in
            the manifest.
        lengths: tokens of a row, by side.
        batch_size: rows of a global batch.
        seed: of the order.
        source_tags: whether sources begin with their language.
        window: of packing, None without.
        rates: the arguments of the rates.
    """
    corpus = described.corpus
    return {
        "languages": len(described.rates),
        **rates,
        "batch_size": batch_size,
        "seed": seed,
        **{f"length of {side}": length for side, length in lengths.items()},
        "source_tags": int(source_tags),
        "packing.window_rows": window and window.rows,
        "packing.window_examples": window and window.examples,
        "vocabulary of inputs": _file_hash(corpus.source_vocabulary),
        "vocabulary of targets": _file_hash(corpus.target_vocabulary),
        **{f"text of {code}": _text(corpus.pairs[code]["train"]) for code in described.rates},
    }


def _text(pairs: Sequence[Pair]) -> str:
    """The number of pairs and a hash of them; that of the files where they are prepared ones."""
    digest = getattr(pairs, "digest", None)
    if digest is None:
        lines = "".join(f"{source}\t{english}\n" for source, english in pairs)
        digest = hashlib.sha256(lines.encode()).hexdigest()
    return f"{len(pairs)} pairs, SHA-256 {digest[:_DIGITS]}"


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return f"SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()[:_DIGITS]}"
