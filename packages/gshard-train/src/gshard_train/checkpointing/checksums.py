"""A SHA-256 sum for each file of a checkpoint: orbax restores flipped bits without a word.

The sums lie in the step's directory, as `sha256sum --check` reads them, and are written in the
background once the step has its name. With several processes each sums up its share of the files,
into a file of its own.
"""

import concurrent.futures
import functools
import hashlib
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
from absl import logging
from etils import epath

from gshard_train.checkpointing import read_faults
from gshard_train.disk_faults import reason

PREFIX = "SHA256SUMS"
_UNFINISHED = ".new"
_LINE = re.compile("[0-9a-f]{64}  .+")
_CHUNK_BYTES = 2**22
_POLL_SECONDS = 0.2
_REMOVAL_SECONDS = 30.0  # how long the removal of a step may take that has begun


class BackgroundSums:
    """Sums up the files of steps, one after the other, in a thread of its own."""

    def __init__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checksums")
        self._last: concurrent.futures.Future[None] | None = None
        self._committed = threading.Event()
        self._changed = threading.Condition()
        self._left_out: set[epath.Path] = set()
        self._current: epath.Path | None = None
        self._given_up = False

    def add(self, step: epath.Path, *, committed: Callable[[], bool]) -> None:
        """Sums up a step as soon as `committed` says that it has its name."""
        self._committed.clear()
        with self._changed:
            self._left_out.discard(step)
        self._last = self._pool.submit(self._sum_up, step, committed)

    def leave_out(self, steps: Iterable[epath.Path]) -> None:
        """From here on nothing is read or written in these steps, so that they can be removed."""
        with self._changed:
            self._left_out.update(steps)
            self._changed.wait_for(lambda: self._current not in self._left_out)

    def wait(self) -> None:
        """Returns when all is summed up; all steps are committed by now."""
        self._committed.set()
        if self._last:
            self._last.result()

    def give_up(self, *, after_seconds: float) -> None:
        """Waits so long, then leaves what is not summed up to the next start."""
        self._committed.set()
        if self._last and concurrent.futures.wait([self._last], after_seconds).not_done:
            self._given_up = True
            logging.info("Summing up the checkpoint's files is left to the next start.")

    def close(self) -> None:
        """Waits, then ends the thread."""
        self.wait()
        self._pool.shutdown()

    def _sum_up(self, step: epath.Path, committed: Callable[[], bool]) -> None:
        try:
            self._write(step, committed)
        except Exception as error:  # the checkpoint is there, and good without
            if not isinstance(error, FileNotFoundError) or not goes(step, seconds=_REMOVAL_SECONDS):
                logging.warning(
                    "Checkpoint %s is saved, but its files have no sums to compare with later: %s",
                    step.name,
                    reason(error),
                )

    def _write(self, step: epath.Path, committed: Callable[[], bool]) -> None:
        while not committed() and not self._committed.wait(_POLL_SECONDS):
            if self._is_left_out(step):
                return
        with self._changed:
            if self._is_left_out(step):
                return
            self._current = step
        try:
            write(step, stopped=lambda: self._is_left_out(step))
        finally:
            with self._changed:
                self._current = None
                self._changed.notify_all()

    def _is_left_out(self, step: epath.Path) -> bool:
        return self._given_up or step in self._left_out


def goes(step: epath.Path, *, seconds: float) -> bool:
    """Whether a step is gone, or is within so many seconds: the run removes those it does not keep.

    Its files go one after the other, its directory last.
    """
    end = time.monotonic() + seconds
    while step.exists():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def write(step: epath.Path, *, stopped: Callable[[], bool] = lambda: False) -> None:
    """Sums up this process's share of a step's files; whole or, where it is stopped, not at all."""
    index, count = jax.process_index(), jax.process_count()
    lines = []
    for name in own_share(files(step)):
        lines.append(f"{_sum(step / name, stopped)}  {name}\n")
        if stopped():
            return
    path = step / (PREFIX if count == 1 else f"{PREFIX}.{index}-of-{count}")
    beside = step / f"{path.name}{_UNFINISHED}"
    beside.write_text("".join(lines))
    beside.replace(path)


def discard(step: epath.Path) -> None:
    """Removes the files of sums, such as those that other processes left of their shares."""
    try:
        for path in step.glob(f"{PREFIX}*"):
            path.unlink(missing_ok=True)
    except OSError as error:  # as when they cannot be written
        logging.warning("The sums of checkpoint %s stay as they are: %s", step.name, reason(error))


def faults(step: epath.Path) -> list[str]:
    """What of this process's share of a step's files is not as it was written.

    Nothing is known of a step that a run was killed too early to sum up: `summed_up` tells.
    """
    return list(_share_of_faults(step))


def summed_up(step: epath.Path) -> bool:
    """Whether every file of a step has a sum."""
    found = _sums(step)
    counts = {_count(path.name) for path in found}
    return len(counts) == 1 and counts == {len(found)}


def files(step: epath.Path) -> list[str]:
    """All files but the sums, relative to the step, in one order on every process."""
    names = (str(path.relative_to(step)) for path in _below(step) if not _is_nfs(path.name))
    return sorted(name for name in names if not name.startswith(PREFIX))


def own_share(names: Sequence[str]) -> list[str]:
    """This process's share of names, whatever the others have beside them."""
    index, count = jax.process_index(), jax.process_count()
    return [name for name in names if zlib.crc32(name.encode()) % count == index]


def _is_nfs(name: str) -> bool:
    """Whether it is what NFS makes of a file that is removed and still open somewhere."""
    return name.startswith(".nfs")


def _share_of_faults(step: epath.Path) -> Iterator[str]:
    if not summed_up(step):
        return
    expected: dict[str, str] = {}
    for path in _sums(step):
        try:
            expected |= _read(path)
        except ValueError:
            yield f"{path.name} has changed since it was written"
    there = files(step)
    # What someone put beside the parts is none of ours.
    yield from (f"{name} has no sum" for name in there if "/" in name and name not in expected)
    for name in own_share(sorted(expected)):
        path = step / name
        if name not in there:
            yield f"{name} is missing"
        elif read_faults.retried(functools.partial(_sum, path), path) != expected[name]:
            yield f"{name} has changed since it was written"


def _read(path: epath.Path) -> dict[str, str]:
    """The sums in a file by the name of what was summed up; a `ValueError` where it is torn."""
    text = path.read_text()
    lines = text.splitlines()
    if not all(_LINE.fullmatch(line) for line in lines) or (text and not text.endswith("\n")):
        raise ValueError(path)
    return {line[66:]: line[:64] for line in lines}


def _sums(step: epath.Path) -> list[epath.Path]:
    """The files of sums."""
    return [path for path in step.glob(f"{PREFIX}*") if not path.name.endswith(_UNFINISHED)]


def _below(directory: epath.Path) -> Iterator[epath.Path]:
    for path in directory.iterdir():
        if path.is_dir():
            yield from _below(path)
        else:
            yield path


def _count(name: str) -> int:
    """How many files of sums there are when one of them has this name; 0 for one half-written."""
    if name == PREFIX:
        return 1
    *_, count = name.rpartition("-of-")
    return int(count) if count.isdigit() else 0


def _sum(path: epath.Path, stopped: Callable[[], bool] = lambda: False) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while not stopped() and (chunk := file.read(_CHUNK_BYTES)):
            digest.update(chunk)
    return digest.hexdigest()
