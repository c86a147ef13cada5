"""The sample corpus: names of symbols from Unicode CLDR and the Universal Declaration.

`data/phrases.tsv.xz` is a table with a header: one English phrase a row, one language a column,
empty where a language has no such phrase. Its first columns are `origin` (`name` or
`declaration`), `splits` (one mark for each language column) and `en`.
"""

import functools
import lzma
import pathlib

from gshard_m4.corpus import SOURCE_MODEL as SOURCE_MODEL
from gshard_m4.corpus import SPLITS, Corpus, Pair
from gshard_m4.corpus import TARGET_MODEL as TARGET_MODEL

PHRASES = "phrases.tsv.xz"
MARK_OF_SPLIT = {"": "-", "train": "t", "validation": "v", "test": "p", "unseen": "u"}

_DATA = pathlib.Path(__file__).parent / "data"


@functools.cache
def corpus() -> Corpus:
    """The sample as the corpus `m4_sample`; read once in a process."""
    return Corpus(
        name="m4_sample",
        pairs=read_phrases(_DATA / PHRASES),
        source_vocabulary=_DATA / SOURCE_MODEL,
        target_vocabulary=_DATA / TARGET_MODEL,
    )


def read_phrases(path: pathlib.Path) -> dict[str, dict[str, list[Pair]]]:
    """Language -> split -> (source, English) pairs of a table of phrases."""
    header, *lines = lzma.decompress(path.read_bytes()).decode().rstrip("\n").split("\n")
    pairs: dict[str, dict[str, list[Pair]]] = {
        code: {split: [] for split in SPLITS} for code in header.split("\t")[3:]
    }
    split_of = {mark: split for split, mark in MARK_OF_SPLIT.items() if split}
    for line in lines:
        _, marks, english, *cells = line.split("\t")
        for splits, mark, source in zip(pairs.values(), marks, cells, strict=True):
            if mark in split_of:
                splits[split_of[mark]].append((source, english))
    return pairs
