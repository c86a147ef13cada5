"""Batches that lie on the devices before the step asks for them.

Axes of a batch's arrays: B examples, L length.
"""

import collections
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
from jax.sharding import NamedSharding

from gshard_train.batch_rows import to_mesh
from gshard_train.data import Feed
from gshard_train.errors import UserError

_Read = tuple[dict[str, jax.Array], dict[str, Any]]


class Prefetch:
    """Reads a feed in a thread and copies to the devices while they work. Usable with `with`.

    Args:
      feed: read by the thread alone until this is closed.
      sharding: of every array of a batch.
      ahead: batches that are ready or being made; so many lie on the devices.
    """

    def __init__(self, feed: Feed, sharding: NamedSharding, *, ahead: int = 2):
        self._feed, self._sharding = feed, sharding
        self._given = feed.get_state()
        self._thread = ThreadPoolExecutor(1, "feed")
        self._reads: collections.deque[Future[_Read]] = collections.deque(
            self._thread.submit(self._read) for _ in range(ahead)
        )

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> dict[str, jax.Array]:
        """The next global batch; raises what the feed raised while making it.

        Raises:
          UserError: the feed has ended.
        """
        batch, self._given = self._result(self._reads.popleft())
        self._reads.append(self._thread.submit(self._read))
        return batch

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape, dtype and sharding of the next batch's arrays; raises as `next` does."""
        batch, _ = self._result(self._reads[0])
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), batch
        )

    def get_state(self) -> dict[str, Any]:
        """The feed's position behind the batches that were given out, not those read ahead."""
        return self._given

    def close(self) -> None:
        """Waits for the batch that is being read and drops what nobody asked for."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _result(self, read: Future[_Read]) -> _Read:
        try:
            return read.result()
        except StopIteration:
            raise UserError(
                f"the training feed ended at {self._given}; a feed for training has no end: "
                "let it begin again, or lower TRAIN_STEPS"
            ) from None

    def _read(self) -> _Read:
        batch = to_mesh(next(self._feed), self._sharding)
        return batch, self._feed.get_state()
