"""The training feed: batches of a temperature mixture, as a function of seed and index.

Languages are mixed by index at the mixture's rates, each is shuffled anew in every epoch, and a
whole batch is tokenised by one call a side. Global batch i depends on the seed and i alone; a
process takes its block of rows, so the number of processes may change between two steps. The
position is one integer. Grain reads ahead in threads; its own `mix` and `shuffle` take 80
microseconds an example with a hundred languages, `order.py` takes 5 for the same.

Axes: B batch (of this process), L length.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grain

from gshard_m4 import mixture
from gshard_m4.batches import Counts, Examples, PackedBatches, UnpackedBatches
from gshard_m4.encoding import SIDES, Batch, Encoder
from gshard_m4.feed_arguments import (
    argument_faults,
    check_vocabulary,
    mixture_faults,
)
from gshard_m4.feed_identity import Identity, feed_identity
from gshard_m4.input_error import InputError
from gshard_m4.packing import Packing
from gshard_m4.vocabulary import Vocabulary

_ENDLESS = 1 << 48
# Reading and SentencePiece let go of Python's lock, so a second thread is worth having.
_THREADS = 2
_AHEAD = 4


def training_feed(
    *,
    mixture_or_task_name: str,
    task_feature_lengths: Mapping[str, int],
    batch_size: int,
    seed: int,
    process_index: int = 0,
    process_count: int = 1,
    data_dir: str | Path | None = None,
    vocabulary_dir: str | Path | None = None,
    temperature: float = mixture.TEMPERATURE,
    maximum: int | None = None,
    minimum_share: float = 0.0,
    source_tags: bool = False,
    packing: Packing | None = None,
) -> "Feed":
    """An endless feed of a mixture's, or one task's, training text.

    Args:
        mixture_or_task_name: such as `m4_all_en`, `m4_de_en` or `m4_sample`; `gshard_m4.mixture`
            has them all.
        task_feature_lengths: tokens of a row, `{"inputs": n, "targets": m}`; longer text is cut
            and still ends with end of sentence.
        batch_size: rows of a global batch, over all processes.
        seed: decides the order.
        process_index: which block of rows is this process's.
        process_count: number of processes, a divisor of batch_size.
        data_dir: the prepared directory that the name is about.
        vocabulary_dir: where source.model and target.model are, if not in the directory itself
            (`gshard-m4 vocabulary --output`).
        temperature: T of the rates, see `gshard_m4.mixture.temperature_rates`.
        maximum: caps the sizes of languages before the temperature acts.
        minimum_share: the least share of a language.
        source_tags: each source begins with its language's tag, such as `<2de>`.
        packing: puts several examples into a row, see `gshard_m4.packing`.

    Raises:
        ValueError: naming everything that is wrong with the arguments.
        FileNotFoundError: where a vocabulary is missing.
    """
    faults = argument_faults(
        task_feature_lengths, batch_size, process_index, process_count, packing
    )
    rates = {"temperature": temperature, "maximum": maximum, "minimum_share": minimum_share}
    described = _find(mixture_or_task_name, faults, data_dir=data_dir, **rates)
    if vocabulary_dir is not None:
        corpus = described.corpus.with_vocabulary(vocabulary_dir)
        described = dataclasses.replace(described, corpus=corpus)
    vocabularies = _vocabularies(described, data_dir, vocabulary_dir, source_tags)
    examples = Examples(described, seed, source_tags=source_tags)
    # Sides in one order, whatever the order they are given in.
    encoder = Encoder(vocabularies, {side: task_feature_lengths[side] for side in SIDES})
    count = batch_size // process_count
    rows = range(process_index * count, (process_index + 1) * count)
    if packing is None:
        batches = UnpackedBatches(examples, encoder, batch_size, rows)
    else:
        batches = PackedBatches(examples, encoder, batch_size, rows, packing)
    if described.left_out:
        _warn(mixture_or_task_name, f"no training text in {', '.join(described.left_out)}")
    if batches.advice:
        _warn(mixture_or_task_name, batches.advice)
    sizes = {side: vocab.size for side, vocab in vocabularies.items()}
    identity = functools.partial(
        feed_identity,
        described,
        lengths=encoder.lengths,
        batch_size=batch_size,
        seed=seed,
        source_tags=source_tags,
        window=batches.window,
        rates=rates,
    )
    return Feed(batches, sizes, described, identity)


def _find(name: str, faults: list[str], **options: Any) -> mixture.Mixture:
    """The mixture, unless its name or anything else is at fault: then one error with all."""
    try:
        described = mixture.find(name, **options)
    except ValueError as error:
        found = error.faults if isinstance(error, InputError) else [str(error)]
        raise ValueError("training_feed: " + "; ".join([*found, *faults])) from None
    if faults:
        raise ValueError("training_feed: " + "; ".join(faults))
    return described


def _vocabularies(
    described: mixture.Mixture,
    data_dir: str | Path | None,
    vocabulary_dir: str | Path | None,
    source_tags: bool,
) -> dict[str, Vocabulary]:
    corpus = described.corpus
    models = {"inputs": corpus.source_vocabulary, "targets": corpus.target_vocabulary}
    if data_dir is not None:
        check_vocabulary(data_dir, vocabulary_dir, models.values())
    vocabularies = {side: Vocabulary(path) for side, path in models.items()}
    if faults := mixture_faults(described, vocabularies["inputs"], source_tags):
        raise ValueError("training_feed: " + "; ".join(faults))
    return vocabularies


def _warn(name: str, what: str) -> None:
    logging.getLogger(__name__).warning("training_feed: %s: %s", name, what)


class Feed:
    """An iterator over this process's rows of the global batches, with a position to save.

    Each batch has `encoder_input_tokens`, `decoder_target_tokens`, `decoder_input_tokens` and
    `decoder_loss_weights`, int32[B, L]; packed ones also `encoder_segment_ids`,
    `encoder_positions`, `decoder_segment_ids` and `decoder_positions`.

    Attributes:
        vocabulary_sizes: pieces of the vocabulary of "inputs" and "targets".
        examples_per_batch: of a global batch; rows, unless they are packed.
        features: the names of a batch's arrays.
    """

    def __init__(
        self,
        batches: UnpackedBatches | PackedBatches,
        vocabulary_sizes: Mapping[str, int],
        described: mixture.Mixture,
        identity: Callable[[], Identity],
    ):
        self.vocabulary_sizes = dict(vocabulary_sizes)
        self.examples_per_batch = batches.examples_per_batch
        self.features = batches.features
        self._batches = grain.MapDataset.range(_ENDLESS).map(batches)
        self._names, self._identity = batches.names, functools.cache(identity)
        self._counts = Counts()
        self._rates = described.rates
        self._sizes = {code: len(described.corpus.pairs[code]["train"]) for code in self._rates}
        self._next = 0
        self._iterator = self._start()

    def __iter__(self) -> "Feed":
        return self

    def __next__(self) -> Batch:
        batch, counts = next(self._iterator)
        self._next += 1
        self._counts += counts
        return batch

    def get_state(self) -> dict[str, int]:
        """The index of the next global batch."""
        return {"next_index": self._next}

    def set_state(self, state: Mapping[str, int]) -> None:
        """Goes to a position, of this feed or of one with another number of processes."""
        if set(state) != {"next_index"} or state["next_index"] < 0:
            raise ValueError(f"set_state: expected {{'next_index': index >= 0}}, got {dict(state)}")
        self.close()
        self._next = int(state["next_index"])
        self._iterator = self._start()

    def examples(self, position: Mapping[str, int]) -> list[str]:
        """The names of the examples in each row that this process gets next at a position.

        Language and row of its training text, from 0, such as "de 1284"; those of a packed row
        are joined by commas.
        """
        return self._names(position["next_index"])

    def identity(self) -> Identity:
        """What the order of examples depends on, see `feed_identity`."""
        return dict(self._identity())

    def packing_report(self) -> Counts:
        """What this process's batches so far held: examples, dropped and cut ones, fill."""
        return self._counts

    def repeated_share(self, position: Mapping[str, int]) -> float:
        """Share of the examples before a position that had been given out before.

        A language that is sampled more than its size allows begins again, and from then on all it
        gives is repeated.
        """
        examples = position["next_index"] * self.examples_per_batch
        repeated = (
            max(0.0, examples * rate - self._sizes[code]) for code, rate in self._rates.items()
        )
        return sum(repeated) / max(1, examples)

    def close(self) -> None:
        """Stops reading ahead."""
        self._iterator.close()

    def _start(self) -> grain.DatasetIterator:
        options = grain.ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_AHEAD)
        return iter(self._batches[self._next :].to_iter_dataset(options))
