"""Cleaned pairs on their way between the two passes: files by the first bits of the pair's key.

All pairs with one key are in one file, in the order they were read, so duplicates are found with
one file in memory at a time, and the files in order are the whole in the order of the keys.
"""

import contextlib
import pickle
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from gshard_m4.preparing.drawing import Keyed

_BUFFERED_ROWS = 50_000
_LENGTH = struct.Struct("<Q")


def partition(pair_key: int, count: int) -> int:
    """The file of a key, for a number of files that is a power of two."""
    return pair_key >> (64 - count.bit_length() + 1)


class Spool(contextlib.AbstractContextManager["Spool"]):
    """Writes pairs to `count` files in a folder, a bounded number of them in memory."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count
        self._buffers: list[list[Keyed]] = [[] for _ in range(count)]
        self._buffered = 0

    def add(self, row: Keyed) -> None:
        """Adds a pair."""
        self._buffers[partition(row.pair, self.count)].append(row)
        self._buffered += 1
        if self._buffered >= _BUFFERED_ROWS:
            self._flush()

    def __exit__(self, *_: object) -> None:
        self._flush()

    def _flush(self) -> None:
        for number, rows in enumerate(self._buffers):
            if rows:
                data = zlib.compress(pickle.dumps([tuple(row) for row in rows]), 1)
                with spool_file(self.folder, number).open("ab") as file:
                    file.write(_LENGTH.pack(len(data)) + data)
                rows.clear()
        self._buffered = 0


def spool_file(folder: Path, number: int) -> Path:
    """The path of one file."""
    return folder / f"spool-{number:05}"


def read_spool(path: Path) -> Iterator[Keyed]:
    """The pairs of one file in the order they were added; none where there is no file."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            data = zlib.decompress(file.read(_LENGTH.unpack(head)[0]))
            yield from map(Keyed._make, pickle.loads(data))
