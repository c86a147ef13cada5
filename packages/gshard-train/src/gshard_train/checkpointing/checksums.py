"""A SHA-256 sum for each file of a checkpoint: orbax restores flipped bits without a word.

The sums lie in the step's directory, as `sha256sum --check` reads them, and are written in the
background once the step has its name. With several processes each sums up its share of the files,
into a file of its own.
"""

import concurrent.futures
import hashlib
import threading
import time
from collections.abc import Callable, Iterator

import jax
from etils import epath

PREFIX = "SHA256SUMS"
_CHUNK_BYTES = 2**22
_POLL_SECONDS = 0.2
_REMOVAL_SECONDS = 30.0  # how long the removal of a step may take that has begun


class BackgroundSums:
    """Sums up the files of steps, one after the other, in a thread of its own."""

    def __init__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checksums")
        self._last: concurrent.futures.Future[None] | None = None
        self._committed = threading.Event()

    def add(self, step: epath.Path, *, committed: Callable[[], bool]) -> None:
        """Sums up a step as soon as `committed` says that it has its name."""
        self._committed.clear()
        self._last = self._pool.submit(self._sum, step, committed)

    def wait(self) -> None:
        """Returns when all is summed up; raises what went wrong. All steps are committed by now."""
        self._committed.set()
        if self._last:
            self._last.result()

    def close(self) -> None:
        """Waits, then ends the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def _sum(self, step: epath.Path, committed: Callable[[], bool]) -> None:
        while not committed() and not self._committed.wait(_POLL_SECONDS):
            pass
        try:
            write(step)
        except FileNotFoundError:
            if not goes(step, seconds=_REMOVAL_SECONDS):
                raise


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


def write(step: epath.Path) -> None:
    """Sums up this process's share of a step's files; whole or not at all."""
    index, count = jax.process_index(), jax.process_count()
    lines = [f"{_sum(step / name)}  {name}\n" for name in _files(step)[index::count]]
    path = step / (PREFIX if count == 1 else f"{PREFIX}.{index}-of-{count}")
    beside = step / f"{path.name}.new"
    beside.write_text("".join(lines))
    beside.replace(path)


def faults(step: epath.Path) -> list[str]:
    """What of this process's share of a step's files is not as it was written.

    Nothing is known of a step that a run was killed too early to sum up: `summed_up` tells.
    """
    return list(_share_of_faults(step, jax.process_index(), jax.process_count()))


def summed_up(step: epath.Path) -> bool:
    """Whether every file of a step has a sum."""
    files = list(step.glob(f"{PREFIX}*"))
    counts = {_count(path.name) for path in files}
    return len(counts) == 1 and counts == {len(files)}


def _share_of_faults(step: epath.Path, index: int, count: int) -> Iterator[str]:
    if not summed_up(step):
        return
    lines = [line for path in step.glob(f"{PREFIX}*") for line in path.read_text().splitlines()]
    for line in sorted(lines, key=lambda line: line[64:])[index::count]:
        expected, name = line[:64], line[66:]
        if not (step / name).exists():
            yield f"{name} is missing"
        elif _sum(step / name) != expected:
            yield f"{name} has changed since it was written"


def _files(step: epath.Path) -> list[str]:
    """All files but the sums, relative to the step, in one order on every process."""
    names = (str(path.relative_to(step)) for path in _below(step))
    return sorted(name for name in names if not name.startswith(PREFIX))


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


def _sum(path: epath.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
