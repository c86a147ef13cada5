"""The global batch of an index, or one process's rows of it.

A batch is computed from its index alone: which examples it has, their text, their arrays.
"""

import dataclasses
import math

import numpy as np

from gshard_m4.corpus import Pair
from gshard_m4.encoding import FEATURES, PACKED_FEATURES, Batch, Encoder, unpacked
from gshard_m4.mixture import Mixture
from gshard_m4.order import Order
from gshard_m4.packing import (
    SAMPLE,
    Packing,
    Window,
    advice,
    pack,
    row_of_each,
    window_examples,
    window_rows,
)
from gshard_m4.vocabulary import tag


@dataclasses.dataclass(frozen=True)
class Counts:
    """What some batches held.

    Attributes:
        examples: read for them.
        dropped: of these, fitted in no row.
        cut: sides of examples that were longer than a row.
        rows: of the batches.
        input_tokens: without padding.
        target_tokens: without padding.
        input_places: tokens and padding.
        target_places: tokens and padding.
    """

    examples: int = 0
    dropped: int = 0
    cut: int = 0
    rows: int = 0
    input_tokens: int = 0
    target_tokens: int = 0
    input_places: int = 0
    target_places: int = 0

    def __str__(self) -> str:
        return (
            f"{self.examples:,} examples for {self.rows:,} rows: inputs {self.input_fill:.1%} full,"
            f" targets {self.target_fill:.1%}; {self.overflow:.2%} of the examples dropped,"
            f" {self.cut:,} sides cut"
        )

    def __add__(self, other: "Counts") -> "Counts":
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Counts(*map(sum, zip(mine, theirs, strict=True)))

    @property
    def input_fill(self) -> float:
        """Share of the encoder's places that hold a token."""
        return self.input_tokens / max(1, self.input_places)

    @property
    def target_fill(self) -> float:
        """Share of the decoder's places that hold a token."""
        return self.target_tokens / max(1, self.target_places)

    @property
    def overflow(self) -> float:
        """Share of the examples that fitted in no row."""
        return self.dropped / max(1, self.examples)


class Examples:
    """The endless sequence of a mixture's pairs, shuffled by a seed, for access by index."""

    def __init__(self, described: Mixture, seed: int, *, source_tags: bool = False):
        corpus, self._codes = described.corpus, list(described.rates)
        self._parts = [corpus.pairs[code]["train"] for code in self._codes]
        self._tags = [f"{tag(code)} " for code in self._codes] if source_tags else None
        sizes = [len(part) for part in self._parts]
        self._order = Order(sizes, [*described.rates.values()], seed=seed)

    def __getitem__(self, places: slice) -> list[Pair]:
        """The pairs from places.start to places.stop."""
        parts_B, rows_B = (array.tolist() for array in self._order[places])
        pairs = [self._parts[k][row] for k, row in zip(parts_B, rows_B, strict=True)]
        if self._tags is None:
            return pairs
        return [
            (self._tags[k] + source, english)
            for k, (source, english) in zip(parts_B, pairs, strict=True)
        ]

    def names(self, places: slice) -> list[str]:
        """Language and row of its training text, from 0, such as "de 1284", of each pair."""
        parts_B, rows_B = (array.tolist() for array in self._order[places])
        return [f"{self._codes[k]} {row}" for k, row in zip(parts_B, rows_B, strict=True)]


class UnpackedBatches:
    """Batches with one example a row."""

    features = FEATURES
    advice = None
    window = None

    def __init__(self, examples: Examples, encoder: Encoder, batch_size: int, rows: range):
        """`rows` are those of a global batch that are wanted."""
        self.examples_per_batch = batch_size
        self._examples, self._encoder, self._rows = examples, encoder, rows

    def __call__(self, index: int) -> tuple[Batch, Counts]:
        """The rows of global batch `index`."""
        pairs = self._examples[self._places(index)]
        tokens = self._encoder.encode(pairs)
        batch = unpacked(tokens, self._encoder.lengths)
        cut = sum(side.cut for side in tokens.values())
        return batch, _counted(batch, examples=len(pairs), dropped=0, cut=cut)

    def names(self, index: int) -> list[str]:
        """The name of the example in each row of global batch `index`."""
        return self._examples.names(self._places(index))

    def _places(self, index: int) -> slice:
        first = int(index) * self.examples_per_batch
        return slice(first + self._rows.start, first + self._rows.stop)


class PackedBatches:
    """Batches of windows, each packed by itself.

    A process whose rows are not whole windows packs every window that it has a part of.

    Attributes:
        examples_per_batch: of a global batch.
        advice: what would fill rows better, None where they are full.
        window: the size of a window.
    """

    features = (*FEATURES, *PACKED_FEATURES)

    def __init__(
        self, examples: Examples, encoder: Encoder, batch_size: int, rows: range, packing: Packing
    ):
        """`rows` are those of a global batch that are wanted."""
        self._examples, self._encoder, self._rows = examples, encoder, rows
        self.window, self.advice = _window(packing, examples, encoder, batch_size)
        self._windows = batch_size // self.window.rows
        self.examples_per_batch = self._windows * self.window.examples

    def __call__(self, index: int) -> tuple[Batch, Counts]:
        """The rows of global batch `index`, and what the windows that they are of held."""
        places, wanted = self._places(index)
        windows, counts = zip(*map(self._pack, places), strict=True)
        joined = {
            name: np.concatenate([window[name] for window in windows])[wanted]
            for name in windows[0]
        }
        return joined, sum(counts, Counts())

    def names(self, index: int) -> list[str]:
        """The names of the examples in each row of global batch `index`, joined by commas."""
        places, wanted = self._places(index)
        return [", ".join(row) for window in places for row in self._names(window)][wanted]

    def _places(self, index: int) -> tuple[list[slice], slice]:
        """The examples of each window that rows are of, and these rows in the windows'."""
        size, count = self.window.rows, self.window.examples
        first, last = self._rows.start // size, math.ceil(self._rows.stop / size)
        start = int(index) * self._windows
        wanted = slice(self._rows.start - first * size, self._rows.stop - first * size)
        windows = range(start + first, start + last)
        return [slice(n * count, (n + 1) * count) for n in windows], wanted

    def _pack(self, places: slice) -> tuple[Batch, Counts]:
        tokens = self._encoder.encode(self._examples[places])
        batch, dropped = pack(tokens, self._encoder.lengths, self.window.rows)
        cut = sum(side.cut for side in tokens.values())
        count = self.window.examples
        return batch, _counted(batch, examples=count, dropped=dropped, cut=cut)

    def _names(self, places: slice) -> list[list[str]]:
        """The names of the examples in each row of a window."""
        tokens = self._encoder.encode(self._examples[places])
        rows: list[list[str]] = [[] for _ in range(self.window.rows)]
        row_B = row_of_each(tokens, self._encoder.lengths, self.window.rows)
        for name, row in zip(self._examples.names(places), row_B.tolist(), strict=True):
            if row >= 0:
                rows[row].append(name)
        return rows


def _window(
    packing: Packing, examples: Examples, encoder: Encoder, batch_size: int
) -> tuple[Window, str | None]:
    """The size of windows, and advice where they were measured and will not be full."""
    rows = window_rows(packing, encoder.lengths["inputs"], batch_size)
    if packing.window_examples is not None:
        return Window(rows, packing.window_examples), None
    sample = encoder.encode(examples[0:SAMPLE])
    window = Window(rows, window_examples(rows, encoder.lengths, sample))
    return window, advice(window, encoder.lengths, sample)


def _counted(batch: Batch, *, examples: int, dropped: int, cut: int) -> Counts:
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    return Counts(
        examples=examples,
        dropped=dropped,
        cut=cut,
        rows=len(inputs),
        input_tokens=int(np.count_nonzero(inputs)),
        target_tokens=int(np.count_nonzero(targets)),
        input_places=inputs.size,
        target_places=targets.size,
    )
