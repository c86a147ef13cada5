"""Reading a shard: a row by its number, or all rows in order."""

import itertools
import os
import struct
import weakref
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from gshard_m4.corpus import Pair
from gshard_m4.input_error import InputError
from gshard_m4.prepared import layout

Row = tuple[str, str, str]

_GZIP = 16 + zlib.MAX_WBITS
_OFFSETS = struct.Struct("<QQ")
_MEMBERS_AT_ONCE = 512


class Shard:
    """The (source, English) pairs of one file; iterating gives (source, English, origin).

    Nothing of the file is kept in memory. Threads may read at the same time.
    """

    def __init__(self, path: str | Path):
        """Opens the file.

        Raises:
            InputError: where it is missing, cut off or not a shard.
        """
        self.path = Path(path)
        try:
            self._fd = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise InputError([f"{self.path}: cannot be read ({error.strerror})"]) from None
        self._closing = weakref.finalize(self, os.close, self._fd)
        size = os.fstat(self._fd).st_size
        found = layout.parse_end(self._read(max(0, size - layout.END_BYTES), size), size)
        if found is None:
            self.close()
            raise InputError(
                [f"{self.path}: cut off or not a shard of this package; prepare the data again"]
            )
        self._index_start, self._rows = found

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Pair:
        if not -self._rows <= row < self._rows:
            raise IndexError(f"row {row} of {self._rows} in {self.path}")
        member, nth = divmod(row % self._rows, layout.ROWS_PER_MEMBER)
        source, english, _ = self._lines(member)[nth].decode().split("\t")
        return source, english

    def rows(self, indices: Iterable[int]) -> list[Pair]:
        """The pairs at several places; neighbours in the file are read once."""
        wanted = [range(self._rows)[row] for row in indices]
        members: dict[int, list[bytes]] = {}
        for row in wanted:
            member = row // layout.ROWS_PER_MEMBER
            if member not in members:
                members[member] = self._lines(member)
        places = (divmod(row, layout.ROWS_PER_MEMBER) for row in wanted)
        split = (members[member][nth].decode().split("\t") for member, nth in places)
        return [(source, english) for source, english, _ in split]

    def __iter__(self) -> Iterator[Row]:
        members = -(-self._rows // layout.ROWS_PER_MEMBER)
        for first in range(0, members, _MEMBERS_AT_ONCE):
            starts = self._starts(first, min(first + _MEMBERS_AT_ONCE, members))
            data = self._read(starts[0], starts[-1])
            for start, end in itertools.pairwise(starts):
                for line in self._unpack(data[start - starts[0] : end - starts[0]]):
                    source, english, origin = line.decode().split("\t")
                    yield source, english, origin

    def close(self) -> None:
        """Closes the file; a shard that is no longer used closes by itself."""
        self._closing()

    def _starts(self, first: int, last: int) -> list[int]:
        """Where the members from first to before last begin, and where the last one ends."""
        places = [self._place(member) for member in range(first, last)]
        return [start for start, _ in places] + [places[-1][1]]

    def _place(self, member: int) -> tuple[int, int]:
        """Where a member begins and ends."""
        block, nth = divmod(member, layout.OFFSETS_PER_MEMBER)
        at = self._index_start + block * layout.INDEX_MEMBER_BYTES + layout.FIRST_OFFSET + 8 * nth
        return _OFFSETS.unpack(self._read(at, at + _OFFSETS.size))

    def _lines(self, member: int) -> list[bytes]:
        return self._unpack(self._read(*self._place(member)))

    def _unpack(self, data: bytes) -> list[bytes]:
        try:
            lines = zlib.decompress(data, _GZIP).split(b"\n")
        except zlib.error as error:
            raise InputError([f"{self.path}: damaged ({error}); prepare the data again"]) from None
        return lines[:-1]

    def _read(self, start: int, end: int) -> bytes:
        return os.pread(self._fd, end - start, start)
