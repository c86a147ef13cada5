"""Where the text of seqio tasks comes from, and how it becomes `inputs` and `targets`."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import seqio
import tensorflow as tf

from gshard_m4.corpus import Corpus
from gshard_m4.prepared import Prepared
from gshard_m4.vocabulary import tag

# TensorFlow hides its classes from type checkers.
Dataset = Any
Columns = tuple[str, str]


class ShardSource(seqio.FileDataSource):
    """The rows of prepared shards, in order, as `inputs` and `targets`.

    Several hosts read different files, as with every data source of files.
    """

    def __init__(self, files: Mapping[str, Sequence[Path]], rows: Mapping[str, int]):
        self._files = {split: [str(path) for path in paths] for split, paths in files.items()}
        super().__init__(
            read_file_fn=_read_shard,
            split_to_filepattern=self._files,
            num_input_examples=dict(rows),
            # One file after the other: the order of the rows, and few threads with many tasks.
            cycle_length=1,
        )

    def list_shards(self, split: str) -> Sequence[str]:
        """The files; seqio would take their names for patterns."""
        return self._files[split]


def shard_source(prepared: Prepared, code: str) -> ShardSource:
    """The source of one language's splits that have rows."""
    splits = prepared.manifest.languages[code].splits
    with_rows = {split: entry for split, entry in splits.items() if entry.rows}
    files = {
        split: [prepared.path / shard.file for shard in entry.shards if shard.rows]
        for split, entry in with_rows.items()
    }
    return ShardSource(files, {split: entry.rows for split, entry in with_rows.items()})


def memory_source(corpus: Corpus, code: str) -> seqio.FunctionDataSource:
    """The source of one language of a corpus that is in memory."""
    splits = {split: pairs for split, pairs in corpus.pairs[code].items() if pairs}
    return seqio.FunctionDataSource(  # pyright: ignore[reportArgumentType] (seqio's types)
        functools.partial(_memory_dataset, splits),
        splits=list(splits),
        num_input_examples={split: len(pairs) for split, pairs in splits.items()},
    )


def preprocessors(
    code: str, *, columns: Columns = ("inputs", "targets"), source_tags: bool = False
) -> list[Any]:
    """What makes token ids of rows: named columns, tag, SentencePiece, end of sentence.

    Args:
        code: the language, for its tag.
        columns: where rows have the source and English; `a/b` is b inside a.
        source_tags: whether the tag stands before the source. `inputs_pretokenized` is without it.
    """
    tagged = [functools.partial(_add_tag, code=code)] if source_tags else []
    untagged = [_drop_tag] if source_tags else []
    return [
        functools.partial(_name_columns, columns=columns),
        *tagged,
        seqio.preprocessors.tokenize,
        *untagged,
        seqio.CacheDatasetPlaceholder(),
        seqio.preprocessors.append_eos_after_trim,
    ]


def _read_shard(path: Any) -> Dataset:
    lines = tf.data.TextLineDataset(path, compression_type="GZIP")
    return lines.map(_split_line, num_parallel_calls=1)


def _split_line(line: Any) -> dict[str, Any]:
    fields = tf.strings.split(line, "\t")
    return {"inputs": fields[0], "targets": fields[1]}


def _memory_dataset(
    splits: Mapping[str, Sequence[tuple[str, str]]],
    split: str,
    shuffle_files: bool,
    seed: int | None = None,
) -> Dataset:
    del shuffle_files, seed  # One list in memory; seqio shuffles it where asked.
    columns: Any = {
        "inputs": [source for source, _ in splits[split]],
        "targets": [english for _, english in splits[split]],
    }
    return tf.data.Dataset.from_tensor_slices(columns)


def _name_columns(dataset: Dataset, *, columns: Columns) -> Dataset:
    if columns == ("inputs", "targets"):
        return dataset
    paths = {"inputs": columns[0].split("/"), "targets": columns[1].split("/")}
    return dataset.map(
        lambda row: {
            name: functools.reduce(lambda found, key: found[key], path, row)
            for name, path in paths.items()
        }
    )


def _add_tag(dataset: Dataset, *, code: str) -> Dataset:
    return dataset.map(
        lambda row: row | {"inputs": tag(code) + " " + row["inputs"], "plain": row["inputs"]}
    )


def _drop_tag(dataset: Dataset) -> Dataset:
    def plain(row: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in row.items() if name != "plain"}
        return kept | {"inputs_pretokenized": row["plain"]}

    return dataset.map(plain)
