"""The order of the examples of a seqio task or mixture: what it depends on, and reading it again.

tf.data has no place that another number of hosts could go to, so a feed reads from the beginning up
to its position. That the same comes again depends on the task: random functions without a seed,
files that changed or another version of TensorFlow give other batches, and a hash of one shows it.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

if TYPE_CHECKING:
    import seqio

_BYTES = 8  # of a hash
_SECONDS = 10.0  # between two lines in the log


def order_identity(
    source: "seqio.Task | seqio.Mixture", lengths: Mapping[str, int]
) -> dict[str, Any]:
    """What the order depends on, as far as seqio tells: names, rates, lengths and vocabularies."""
    mixture: Any = source  # a task has no tasks, and no rates of them
    tasks = sorted(getattr(mixture, "tasks", []), key=lambda task: task.name)
    features = source.output_features
    return {
        "task or mixture": source.name,
        **{f"rate of {task.name}": mixture.get_rate(task) for task in tasks},
        **{f"length of {name}": length for name, length in lengths.items()},
        **{f"vocabulary of {name}": _vocabulary(features[name].vocabulary) for name in lengths},
    }


def batch_hash(batch: Mapping[str, np.ndarray]) -> str:
    """A short hash of a batch's arrays."""
    hashed = hashlib.blake2b(digest_size=_BYTES)
    for name in sorted(batch):
        array = np.ascontiguousarray(batch[name])
        hashed.update(f"{name}{array.dtype}{array.shape}".encode())
        hashed.update(array.data)
    return hashed.hexdigest()


def read_up_to(batches: Iterator[dict[str, np.ndarray]], count: int) -> dict[str, np.ndarray]:
    """The last of the first `count` batches, at least one; the log tells how far it is."""
    began = told = time.monotonic()
    batch: dict[str, np.ndarray] = {}
    for number in range(1, count + 1):
        batch = next(batches)
        if (now := time.monotonic()) - told >= _SECONDS:
            left = (now - began) / number * (count - number)
            said = "Reading the data up to the position: batch %d of %d, %.0f s left."
            logging.info(said, number, count, left)
            told = now
    logging.info("Read %d batches again in %.0f s.", count, time.monotonic() - began)
    return batch


def _vocabulary(vocabulary: Any) -> str:
    text = f"{type(vocabulary).__name__} of {vocabulary.vocab_size}"
    model = getattr(vocabulary, "sp_model", None)
    if not isinstance(model, bytes):
        return text
    return f"{text}, hash {hashlib.blake2b(model, digest_size=_BYTES).hexdigest()}"
