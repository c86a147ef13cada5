"""The training feed: batches of a temperature mixture, as a function of seed and index.

Languages are mixed by index at the mixture's rates, each is shuffled anew in every epoch, and a
whole batch is tokenised by one call a side. Global batch i depends on the seed and i alone; a
process takes its block of rows, so the number of processes may change between two steps. The
position is one integer. Grain reads ahead in a thread; its own `mix` and `shuffle` take 80
microseconds an example with a hundred languages, `order.py` takes 5 for the same.

Axes: B batch (of this process), L length.
"""

from collections.abc import Mapping, Sequence

import grain
import numpy as np
from jaxtyping import Int32

from gshard_m4 import mixture
from gshard_m4.corpus import Pair
from gshard_m4.order import Order
from gshard_m4.vocabulary import EOS, PAD, Vocabulary

SIDES = ("inputs", "targets")
Batch = dict[str, Int32[np.ndarray, "B L"]]
_ENDLESS = 1 << 48


def training_feed(
    *,
    mixture_or_task_name: str,
    task_feature_lengths: Mapping[str, int],
    batch_size: int,
    seed: int,
    process_index: int = 0,
    process_count: int = 1,
) -> "Feed":
    """An endless feed of a mixture's, or one task's, training text.

    Args:
        mixture_or_task_name: such as `m4_sample` or `m4_sample_de_en`.
        task_feature_lengths: tokens of a row, `{"inputs": n, "targets": m}`; longer text is cut
            and still ends with end of sentence.
        batch_size: rows of a global batch, over all processes.
        seed: decides the order.
        process_index: which block of rows is this process's.
        process_count: number of processes, a divisor of batch_size.

    Raises:
        ValueError: naming everything that is wrong with the arguments.
        FileNotFoundError: where a vocabulary is missing.
    """
    faults = _faults(task_feature_lengths, batch_size, process_index, process_count)
    described = _find(mixture_or_task_name, faults)
    corpus = described.corpus
    vocabularies = {
        "inputs": Vocabulary(corpus.source_vocabulary),
        "targets": Vocabulary(corpus.target_vocabulary),
    }
    rows = batch_size // process_count
    pairs = _Pairs(described, seed, batch_size, process_index * rows, rows)
    encoder = _Encoder(vocabularies, task_feature_lengths)
    batches = grain.MapDataset.source(pairs).map(encoder)
    return Feed(batches, {side: vocab.size for side, vocab in vocabularies.items()})


class Feed:
    """An iterator over this process's rows of the global batches, with a position to save.

    Each batch has `encoder_input_tokens`, `decoder_target_tokens`, `decoder_input_tokens` and
    `decoder_loss_weights`, int32[B, L].
    """

    def __init__(self, batches: grain.MapDataset, vocabulary_sizes: Mapping[str, int]):
        self.vocabulary_sizes = dict(vocabulary_sizes)
        self._batches = batches
        self._next = 0
        self._iterator = self._start()

    def __iter__(self) -> "Feed":
        return self

    def __next__(self) -> Batch:
        batch = next(self._iterator)
        self._next += 1
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

    def close(self) -> None:
        """Stops reading ahead."""
        self._iterator.close()

    def _start(self) -> grain.DatasetIterator:
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)
        return iter(self._batches[self._next :].to_iter_dataset(options))


def _find(mixture_or_task_name: str, faults: list[str]) -> mixture.Mixture:
    """The mixture, unless its name or anything else is at fault: then one error with all."""
    try:
        described = mixture.find(mixture_or_task_name)
    except ValueError as error:
        raise ValueError("; ".join(["training_feed: " + str(error), *faults])) from None
    if faults:
        raise ValueError("training_feed: " + "; ".join(faults))
    return described


def _faults(
    lengths: Mapping[str, int], batch_size: int, process_index: int, process_count: int
) -> list[str]:
    faults = []
    bad = {side: lengths.get(side) for side in SIDES if lengths.get(side, 0) < 1}
    if bad or set(lengths) - set(SIDES):
        faults.append(
            f"task_feature_lengths must be {{'inputs': n, 'targets': m}} with n, m >= 1,"
            f" got {dict(lengths)}"
        )
    if not 0 <= process_index < process_count:
        faults.append(f"process_index {process_index} is not in 0..{process_count - 1}")
    elif batch_size < 1:
        faults.append(f"batch_size {batch_size} is not positive")
    elif batch_size % process_count:
        below = batch_size // process_count * process_count
        near = f"{below} or {below + process_count} are" if below else f"{process_count} is"
        faults.append(
            f"batch_size {batch_size} is not a multiple of {process_count} processes: {near}"
        )
    return faults


class _Pairs:
    """This process's pairs of each global batch, for random access by the batch's index."""

    def __init__(
        self, described: mixture.Mixture, seed: int, batch_size: int, first_row: int, rows: int
    ):
        train = [described.corpus.pairs[language]["train"] for language in described.rates]
        self._parts = train
        self._order = Order([len(part) for part in train], [*described.rates.values()], seed=seed)
        self._batch_size, self._first_row, self._rows = batch_size, first_row, rows

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> list[Pair]:
        start = index * self._batch_size + self._first_row
        parts_B, rows_B = self._order[start : start + self._rows]
        return [
            self._parts[k][row] for k, row in zip(parts_B.tolist(), rows_B.tolist(), strict=True)
        ]


class _Encoder:
    """Turns a list of pairs into the arrays of a batch."""

    def __init__(self, vocabularies: Mapping[str, Vocabulary], lengths: Mapping[str, int]):
        self._vocabularies = vocabularies
        self._lengths = lengths

    def __call__(self, pairs: Sequence[Pair]) -> Batch:
        sources, targets = zip(*pairs, strict=True)
        inputs_BL = self._encode("inputs", sources)
        targets_BL = self._encode("targets", targets)
        shifted_BL = np.zeros_like(targets_BL)
        shifted_BL[:, 1:] = targets_BL[:, :-1]
        return {
            "encoder_input_tokens": inputs_BL,
            "decoder_target_tokens": targets_BL,
            "decoder_input_tokens": shifted_BL,
            "decoder_loss_weights": (targets_BL != PAD).astype(np.int32),
        }

    def _encode(self, side: str, texts: Sequence[str]) -> Int32[np.ndarray, "B L"]:
        length = self._lengths[side]
        ids_BL = np.full((len(texts), length), PAD, np.int32)
        for row, ids in zip(ids_BL, self._vocabularies[side].encode_batch(texts), strict=True):
            kept = [*ids[: length - 1], EOS]
            row[: len(kept)] = kept
        return ids_BL
