"""The checkpoints below a directory as one process finds them on disk; nothing is changed there.

No devices are needed but the one that JAX always has, so what was saved on thousands is looked at
on a laptop.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import orbax.checkpoint as ocp
import tensorstore as ts
from absl import logging
from etils import epath

from gshard_train.checkpointing import checksums, read_faults, reading
from gshard_train.checkpointing.reading import FEED, RUN, STATE
from gshard_train.errors import UserError

DIRECTORY = "checkpoints"  # below a run's
_COMMITTED = "_CHECKPOINT_METADATA"  # orbax's; unlike the directory, it never changes
_ARRAY = ".zarray"
T = TypeVar("T")
_NO_LIST = "the list of tensors is missing"


class Stored:
    """Reads steps, and finds why one cannot be read. The sums of a step's files are compared once.

    What the disk does not give is an error and no damage (`read_faults`): each method that reads
    raises a `ReadError` then.

    Args:
      model_dir: a run's directory; its checkpoints are in `checkpoints` below it.
    """

    def __init__(self, model_dir: str | os.PathLike[str]):
        self.directory = epath.Path(os.path.abspath(model_dir)) / DIRECTORY
        # What was found when this process summed up its share of a step's files.
        self._changed: dict[int, str] = {}
        # Whose arrays were all decoded, for want of sums.
        self.without_sums: set[int] = set()

    def steps(self) -> list[int]:
        """The steps that have their names, in their order, readable or not.

        Raises:
          UserError: it is no directory.
        """
        return read_faults.retried(self._steps, self.directory)

    def path(self, step: int) -> epath.Path:
        """A step's directory."""
        return self.directory / str(step)

    def tensors(self, step: int) -> dict[str, Any]:
        """The shapes and dtypes of a step's state.

        Raises:
          UserError: there is no such step, or it is damaged.
        """
        if step not in (steps := self.steps()):
            have = ", ".join(map(str, steps)) or "none"
            verb = "are" if len(steps) > 1 else "is"
            raise UserError(
                f"there is no checkpoint {step} in {self.directory}; there {verb} {have}"
            )
        try:
            saved = self._retried(step, self._metadata).get(STATE)
        except Exception as error:
            raise self.damaged(step, read_faults.found(error)) from error
        if saved is None:
            raise self.damaged(step, _NO_LIST)
        return saved

    def read(self, step: int, parts: Mapping[str, Any]) -> Any:
        """Parts of a step, each with how orbax is to restore it.

        Raises:
          UserError: the step is damaged.
        """
        try:
            return self._retried(step, lambda _: self._read(step, parts))
        except RuntimeError:
            raise  # the devices' memory, not the files
        except Exception as error:
            raise self.damaged(step, read_faults.found(error)) from error

    def feed(self, step: int) -> dict[str, Any]:
        """The feed's position."""
        return self.read(step, {FEED: ocp.args.JsonRestore()})[FEED]

    def run(self, step: int) -> dict[str, Any]:
        """What run it is: its "config" and its feed's "identity"; empty where no one noted it."""
        if not (self.path(step) / RUN).exists():
            return {}
        return self.read(step, {RUN: ocp.args.JsonRestore()})[RUN]

    def commit_time(self, step: int) -> int | None:
        """When a step was saved, in nanoseconds; None where it is not there, or does not tell."""
        try:
            return json.loads((self.path(step) / _COMMITTED).read_text())["commit_timestamp_nsecs"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def damaged(self, step: int, why: str) -> UserError:
        """What to raise for a damaged step."""
        return UserError(
            f"checkpoint {step} in {self.directory} is damaged ({why}); "
            "move its directory away to go on from the one before it"
        )

    def damage(self, step: int) -> str:
        """Why a step cannot be read, or nothing; its arrays are not looked into."""
        try:
            return self._retried(step, self._damage)
        except Exception as error:
            return read_faults.found(error)

    def changes(self, step: int) -> str:
        """What of this process's share of a step is not as it was written; read once."""
        if step not in self._changed:
            try:
                found = self._retried(step, self._changes)
            except Exception as error:
                found = [read_faults.found(error)]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            self._changed[step] = f"{found[0]}{more}" if found else ""
        return self._changed[step]

    def known_changes(self, step: int) -> str:
        """The same where the files were read already; nothing otherwise."""
        return self._changed.get(step, "")

    def forget(self, step: int) -> None:
        """A step is written anew: what was found of it no longer holds."""
        self._changed.pop(step, None)
        self.without_sums.discard(step)

    def _retried(self, step: int, read: Callable[[int], T]) -> T:
        return read_faults.retried(lambda: read(step), self.path(step))

    def _steps(self) -> list[int]:
        if not self.directory.exists():
            return []
        if not self.directory.is_dir():
            raise UserError(
                f"{self.directory} is a file, where a run's checkpoints are to be; move it away, "
                "or give another MODEL_DIR"
            )
        # orbax takes a directory 007 for step 7.
        steps = ocp.utils.checkpoint_steps(self.directory)
        return sorted(step for step in steps if self.path(step).exists())

    def _damage(self, step: int) -> str:
        # Listed, since what cannot be entered would not exist.
        there = {path.name for path in self.path(step).iterdir()}
        for part in (STATE, FEED):
            if part not in there:
                return f"{part} is missing"
        if not self._arrays(step):
            return "the arrays are missing"
        for part in (FEED, RUN):
            if part in there:
                self._read(step, {part: ocp.args.JsonRestore()})
        return _NO_LIST if self._metadata(step).get(STATE) is None else ""

    def _changes(self, step: int) -> list[str]:
        found = checksums.faults(self.path(step))
        if not found and not checksums.summed_up(self.path(step)):
            logging.warning(
                "Checkpoint %d has no sums of its files to compare with: its arrays are decoded, "
                "and a flipped bit in one would go unseen.",
                step,
            )
            self._read_arrays(step)
            self.without_sums.add(step)
        return found

    def _read(self, step: int, parts: Mapping[str, Any]) -> Any:
        limit = None
        if STATE in parts:
            saved = self._metadata(step).get(STATE)
            limit = reading.bytes_on_their_way(saved, parts[STATE].item)
        with reading.reader(bytes_on_their_way=limit) as reader:
            return reader.restore(self.path(step), args=ocp.args.Composite(**parts))

    def _arrays(self, step: int) -> list[str]:
        """Names of the arrays in the step's database; raises what is wrong with the database.

        orbax would find it too, but by opening all arrays at once, whose further errors then come
        up in a closed event loop.
        """
        keys = ts.KvStore.open(self._database(step)).result().list().result()
        return [
            name for name, _, last in (k.decode().rpartition("/") for k in keys) if last == _ARRAY
        ]

    def _read_arrays(self, step: int) -> None:
        """Reads this process's share of the arrays; raises where one cannot be decoded."""
        for name in checksums.own_share(sorted(self._arrays(step))):
            store = {**self._database(step), "path": f"{name}/"}
            spec = {"driver": "zarr", "kvstore": store, "fill_missing_data_reads": False}
            array = ts.open(spec, open=True).result()
            sizes = array.chunk_layout.read_chunk.shape or ()
            for chunk in _chunks(array.shape, [size or 1 for size in sizes]):
                array[chunk].read().result()

    def _database(self, step: int) -> dict[str, str]:
        return {"driver": "ocdbt", "base": f"file://{os.fspath(self.path(step) / STATE)}"}

    def _metadata(self, step: int) -> Any:
        with reading.reader() as reader:
            return reader.metadata(self.path(step)).item_metadata


def _chunks(shape: Sequence[int], chunk: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """The parts of an array of this shape, of which each is one chunk."""
    starts = (range(0, size, step) for size, step in zip(shape, chunk, strict=True))
    for start in itertools.product(*starts):
        ends = (min(a + b, end) for a, b, end in zip(start, chunk, shape, strict=True))
        yield tuple(map(slice, start, ends))
