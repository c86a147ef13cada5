"""Plain seqio for `bench_input.py`: one task a language over the same shards, at the same rates.

Everything is seqio's own default; lines are split into source and English by tf.data.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from typing import Any

import bench_input

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"


def main() -> None:
    """Measures one configuration and prints it as JSON."""
    options = bench_input._parser().parse_args()
    print(json.dumps(measure(options)))


def measure(options: argparse.Namespace) -> dict[str, float]:
    """The mixture's batches for some seconds."""
    import seqio
    import tensorflow as tf

    start = time.perf_counter()
    _register(options)
    mixture = seqio.get_mixture_or_task("bench_input")
    data = mixture.get_dataset(options.lengths, "train", seed=0, num_epochs=None)
    packed = options.child == "packed"
    data = seqio.EncDecFeatureConverter(pack=packed)(data, options.lengths)
    data: tf.data.Dataset = data.batch(options.batch_size).prefetch(tf.data.AUTOTUNE)
    batches: Any = data.as_numpy_iterator()
    next(batches)
    first_seconds = time.perf_counter() - start
    totals: dict[str, int] = dict.fromkeys(("examples", "input_tokens", "target_tokens", "rows"), 0)
    start = time.perf_counter()
    while time.perf_counter() - start < options.seconds:
        _count(totals, next(batches), packed)
    seconds = time.perf_counter() - start
    inputs, targets = totals["input_tokens"], totals["target_tokens"]
    return {
        "first_seconds": first_seconds,
        "examples_per_second": totals["examples"] / seconds,
        "tokens_per_second": (inputs + targets) / seconds,
        "input_fill": inputs / (totals["rows"] * options.lengths["inputs"]),
        "target_fill": targets / (totals["rows"] * options.lengths["targets"]),
        **bench_input.process_size(),
    }


def _count(totals: dict[str, int], batch: dict[str, Any], packed: bool) -> None:
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    totals["rows"] += len(inputs)
    totals["input_tokens"] += int((inputs != 0).sum())
    totals["target_tokens"] += int((targets != 0).sum())
    segments = batch["decoder_segment_ids"].max(axis=1).sum() if packed else len(inputs)
    totals["examples"] += int(segments)


def _register(options: argparse.Namespace) -> None:
    """A task for each language of the mixture, and the mixture."""
    import seqio

    from gshard_m4.mixture import find
    from gshard_m4.prepared import open_prepared

    described = find(options.mixture, data_dir=options.directory)
    prepared, corpus = open_prepared(options.directory), described.corpus
    models = {"inputs": corpus.source_vocabulary, "targets": corpus.target_vocabulary}
    features = {
        side: seqio.Feature(seqio.SentencePieceVocabulary(str(model)), add_eos=True)
        for side, model in models.items()
    }
    for code in described.rates:
        split = prepared.manifest.languages[code].splits["train"]
        files = [str(prepared.path / shard.file) for shard in split.shards]
        lines: Any = functools.partial(_lines, files)
        source: Any = seqio.FunctionDataSource(
            lines, splits=["train"], num_input_examples={"train": split.rows}
        )
        seqio.TaskRegistry.add(
            f"bench_input_{code}",
            source=source,
            preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos_after_trim],
            output_features=features,
            metric_fns=[],
        )
    rates = [(f"bench_input_{code}", rate) for code, rate in described.rates.items()]
    seqio.MixtureRegistry.add("bench_input", rates)


def _lines(files: list[str], split: str, shuffle_files: bool, seed: int | None = None) -> Any:
    """The text of shards: TensorFlow reads them as the gzip files that they are."""
    import tensorflow as tf

    del split, shuffle_files, seed
    lines: Any = tf.data.TextLineDataset(files, compression_type="GZIP")
    return lines.map(_columns)


def _columns(line: Any) -> dict[str, Any]:
    import tensorflow as tf

    parts: Any = tf.strings.split(line, "\t")
    return {"inputs": parts[0], "targets": parts[1]}


if __name__ == "__main__":
    main()
