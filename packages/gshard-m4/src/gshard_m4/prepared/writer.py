"""Writing a shard."""

import array
import hashlib
import sys
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO

from gshard_m4.prepared import layout

_LEVEL = 6


class ShardWriter:
    """Writes rows to a file that is whole or not there at all.

    Rows go to a file beside the path, which takes its place when the `with` block ends well and is
    removed when it does not. The same rows give the same bytes.

    Attributes:
        rows: rows written so far.
        bytes: size of the file, once it is closed.
        sha256: hash of the file in hexadecimal, once it is closed.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.name.endswith(layout.SUFFIX):
            raise ValueError(f"shard: {str(path)!r} does not end with {layout.SUFFIX}")
        self.rows, self.bytes, self.sha256 = 0, 0, ""
        self._beside = self.path.with_name(f".{self.path.name}.partial")
        self._lines: list[bytes] = []
        self._starts = array.array("Q")
        self._hash = hashlib.sha256()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "ShardWriter":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._beside.open("wb")
        return self

    def write(self, source: str, english: str, origin: str = "") -> None:
        """Adds a row.

        Raises:
            ValueError: for text that is not one field of one line, or no Unicode.
        """
        line = f"{source}\t{english}\t{origin}"
        if line.count("\t") != 2 or "\n" in line or "\r" in line:
            raise ValueError(
                f"shard: row {self.rows} of {str(self.path)!r} has a tab, line feed or carriage"
                f" return in its text: {(source, english, origin)!r}"
            )
        self._lines.append(f"{line}\n".encode())
        self.rows += 1
        if len(self._lines) == layout.ROWS_PER_MEMBER:
            self._write_member()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._write_end()
            self._opened().close()
            if kind is None:
                self._beside.replace(self.path)
                self.sha256 = self._hash.hexdigest()
        finally:
            self._opened().close()
            self._beside.unlink(missing_ok=True)

    def _write_member(self) -> None:
        squeezed = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._starts.append(self.bytes)
        self._put(squeezed.compress(b"".join(self._lines)) + squeezed.flush())
        self._lines.clear()

    def _write_end(self) -> None:
        if self._lines:
            self._write_member()
        index_start, count = self.bytes, len(self._starts)
        self._starts.append(index_start)
        if sys.byteorder == "big":
            self._starts.byteswap()
        for first in range(0, count, layout.OFFSETS_PER_MEMBER):
            offsets = self._starts[first : first + layout.OFFSETS_PER_MEMBER + 1]
            self._put(layout.index_member(offsets.tobytes()))
        self._put(layout.end_member(index_start, self.rows))

    def _put(self, data: bytes) -> None:
        self._opened().write(data)
        self._hash.update(data)
        self.bytes += len(data)

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            raise ValueError(f"shard: write to {str(self.path)!r} inside `with ShardWriter(...)`")
        return self._file
