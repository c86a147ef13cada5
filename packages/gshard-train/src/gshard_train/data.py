"""What the training loop asks of a feed, and the feed for any seqio task or mixture.

Axes: B examples, L length. A batch is a dict of numpy arrays under T5X's names:
`encoder_input_tokens`, `decoder_input_tokens`, `decoder_target_tokens`, `decoder_loss_weights`;
packed ones also `encoder_segment_ids`, `encoder_positions`, `decoder_segment_ids` and
`decoder_positions`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from gshard_train.errors import UserError
from gshard_train.measuring.held_out import cache_faults, find_source, find_tasks
from gshard_train.seqio_order import batch_hash, order_identity, read_up_to

Batch = dict[str, np.ndarray]
FEATURES = (
    "encoder_input_tokens",
    "decoder_input_tokens",
    "decoder_target_tokens",
    "decoder_loss_weights",
)
# What packed batches have beside: several examples in a row.
PACKED_FEATURES = (
    "encoder_segment_ids",
    "encoder_positions",
    "decoder_segment_ids",
    "decoder_positions",
)


class AnotherOrderError(Exception):
    """What a feed gives is not what the run had read; the text says what differs and why."""


class Feed(Protocol):
    """Batches for this host, in an order that depends on the seed alone.

    A feed whose batches hold more than `FEATURES` names them all in an attribute `features`; the
    model takes `PACKED_FEATURES` beside.

    A feed may have two methods more. `examples(position)` gives the names of the examples in each
    row of this process's share of the batch that comes next at a position, as a list of str;
    `identity()` what the order of examples depends on, as a flat dict that JSON can hold, equal
    for every number of processes: a run does not go on with another order unless told.
    """

    @property
    def vocabulary_sizes(self) -> Mapping[str, int]:
        """Pieces of the vocabulary of "inputs" and "targets"."""
        ...

    def __next__(self) -> Batch:
        """This host's rows of the next global batch."""
        ...

    def get_state(self) -> dict[str, Any]:
        """The position, as JSON can hold it."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes to a position that `get_state` gave; the next batch is the one after it.

        Raises:
          AnotherOrderError: the feed is there, but what comes before it is not what came then.
        """
        ...

    def close(self) -> None:
        """Ends the feed's threads."""
        ...


class MakeFeed(Protocol):
    """Makes a feed; gin binds one, such as `gshard_m4.feed.training_feed`."""

    def __call__(
        self,
        *,
        mixture_or_task_name: str,
        task_feature_lengths: Mapping[str, int],
        batch_size: int,
        seed: int,
        process_index: int,
        process_count: int,
    ) -> Feed:
        """The feed of one host: `batch_size / process_count` rows of each global batch."""
        ...


def shift_right(targets_BL: np.ndarray) -> np.ndarray:
    """Decoder inputs for these targets: moved right by one, starting with 0."""
    return np.pad(targets_BL, ((0, 0), (1, 0)))[:, :-1]


class SeqioFeed:
    """Training batches of any seqio task or mixture.

    Every host reads the whole mixture in the same order and keeps its own rows, so the global
    batches depend on the seed alone, and the number of hosts may change between two steps. The
    price: reading is not divided among hosts, and going to a position reads up to it again. That
    it was the same text again is seen by a hash of the batch before the position.

    Packed, a row holds as many examples as seqio puts there, one after the other as they come;
    their attention and their positions are their own.

    Args:
      pack: whether to pack.
      use_cached: whether to read what seqio_cache_tasks wrote.

    Attributes:
      reads_seqio: the experiment's mixture_or_task_module is imported before such a feed is made.
      features: the names of a batch's arrays.
    """

    reads_seqio = True

    def __init__(
        self,
        *,
        mixture_or_task_name: str,
        task_feature_lengths: Mapping[str, int],
        batch_size: int,
        seed: int,
        process_index: int,
        process_count: int,
        pack: bool = False,
        use_cached: bool = False,
    ):
        if batch_size % process_count:
            raise UserError(
                f"BATCH_SIZE={batch_size} cannot be divided among {process_count} processes"
            )
        self._source = find_source(mixture_or_task_name)
        if faults := list(cache_faults(find_tasks(mixture_or_task_name), "train", use_cached)):
            raise UserError(*faults)
        self._use_cached = use_cached
        self._lengths = dict(task_feature_lengths)
        self._seed = seed
        self._pack = pack
        self.features = (*FEATURES, *PACKED_FEATURES) if pack else FEATURES
        self._batch_size = batch_size
        rows = batch_size // process_count
        self._rows = slice(process_index * rows, (process_index + 1) * rows)
        features = self._source.output_features
        self.vocabulary_sizes = {
            name: feature.vocabulary.vocab_size for name, feature in features.items()
        }
        self._next = 0
        self._hash: str | None = None
        self._batches: Iterator[Batch] | None = None

    def __iter__(self) -> "SeqioFeed":
        return self

    def __next__(self) -> Batch:
        if self._batches is None:
            self._batches = self._read()
        batch = next(self._batches)
        self._next += 1
        self._hash = batch_hash(batch)
        return {name: rows[self._rows] for name, rows in batch.items()}

    def get_state(self) -> dict[str, Any]:
        """The number of batches given out, and a hash of the last global one."""
        return {"next_index": self._next, "batch_hash": self._hash}

    def set_state(self, state: dict[str, Any]) -> None:
        """Starts again and reads up to the position.

        Raises:
          AnotherOrderError: the last batch read is not what it was; the feed stays there.
        """
        self._next, self._hash, self._batches = int(state["next_index"]), None, None
        if not self._next:
            return
        self._batches = self._read()
        self._hash = batch_hash(read_up_to(self._batches, self._next))
        if self._hash != (then := state.get("batch_hash", self._hash)):
            raise AnotherOrderError(
                f"batch {self._next - 1} of {self._source.name}, read again, is not what it was "
                f"(hash {self._hash}, then {then}): its files or the versions that read them "
                "have changed, or its functions are random without a seed"
            )

    def examples(self, position: Mapping[str, Any]) -> list[str]:
        """Batch and row, such as "mix batch 12 row 3"; seqio keeps no names of examples."""
        rows = range(self._rows.start, self._rows.stop)
        return [f"{self._source.name} batch {position['next_index']} row {row}" for row in rows]

    def identity(self) -> dict[str, str | int | float | None]:
        """What the order of examples depends on, as far as seqio tells."""
        return {
            **order_identity(self._source, self._lengths),
            "batch_size": self._batch_size,
            "seed": self._seed,
            "pack": self._pack,
            "use_cached": self._use_cached,
        }

    def close(self) -> None:
        """Lets the pipeline go."""
        self._batches = None

    def _read(self) -> Iterator[Batch]:
        """All batches from the first on."""
        import seqio

        data = self._source.get_dataset(
            sequence_length=self._lengths,
            split="train",
            use_cached=self._use_cached,
            shuffle=True,
            seed=self._seed,
            num_epochs=None,
        )
        data = seqio.EncDecFeatureConverter(pack=self._pack)(data, self._lengths)
        data = data.batch(self._batch_size, drop_remainder=True).as_numpy_iterator()
        return ({name: batch[name] for name in self.features} for batch in data)
