"""Files as downloaded: plain, compressed, or members of a zip archive, read as lines of UTF-8."""

import bz2
import contextlib
import dataclasses
import gzip
import importlib
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from gshard_m4.input_error import InputError

COMPRESSED = re.compile(r"\.(gz|xz|bz2|zst)$")
_ARCHIVE = re.compile(r"\.(tar|tar\.(?:gz|xz|bz2|zst)|tgz|tbz2?|txz|7z|rar)$")
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, order=True)
class File:
    """A file below the input folder; `member` is its name inside a zip archive, else ''.

    `name` is the path below the input, with `/`, through the archive, without `.gz` and the like.
    """

    name: str
    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)


def files_below(root: Path) -> tuple[list[File], list[str]]:
    """Every file below a folder (or the one file that `root` is) by name, and archives in the way.

    Zip archives are looked into, and links to folders are followed. Tar archives cannot be read
    member by member without unpacking all that comes before; each gives one line that says how to
    unpack it. Hidden files, and what macOS adds to archives, are passed over.
    """
    paths = [root] if root.is_file() else sorted(_paths(root, ()))
    top = root.parent if root.is_file() else root
    found, packed = [], []
    for path in paths:
        name = path.relative_to(top).as_posix()
        if _is_hidden(name):
            continue
        if archive := _ARCHIVE.search(name):
            packed.append(_how_to_unpack(path, archive.group(1)))
        elif name.endswith(".zip"):
            found.extend(_members(path, name))
        else:
            found.append(File(COMPRESSED.sub("", name), path))
    return sorted(found), packed


def _paths(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """The files below a folder; a link back to a folder that it is in ends there."""
    real = folder.resolve()
    if real in above:
        return
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise InputError([f"cannot read {folder}: {error}"]) from None
    for path in inside:
        if path.is_dir() and not _is_hidden(path.name):
            yield from _paths(path, (*above, real))
        elif path.is_file():
            yield path
        elif path.is_symlink() and not _is_hidden(path.name):
            raise InputError([f"{path} is a link to nothing; mend it, or take it out"])


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def _how_to_unpack(path: Path, kind: str) -> str:
    folder = path.name[: -len(kind) - 1] or "unpacked"
    command = {"7z": f"7z x {path} -o{folder}", "rar": f"unrar x {path} {folder}/"}.get(
        kind, f"tar xf {path} -C {folder}"
    )
    return (
        f"{path} is an archive; unpack it into a folder of its own, mkdir {folder} && {command},"
        f" and give --input={folder}"
    )


def _members(path: Path, name: str) -> Iterator[File]:
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir() and not _is_hidden(info.filename):
                    inside = COMPRESSED.sub("", info.filename)
                    yield File(f"{name.removesuffix('.zip')}/{inside}", path, info.filename)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError([f"{path} is no zip archive that can be read ({error})"]) from None


@contextlib.contextmanager
def open_binary(file: File) -> Iterator[io.BufferedIOBase]:
    """The file's content, decompressed.

    Raises:
        InputError: the file cannot be opened, or what it is compressed with is not installed.
    """
    with contextlib.ExitStack() as stack:
        try:
            if file.member:
                archive = stack.enter_context(zipfile.ZipFile(file.path))
                raw = stack.enter_context(archive.open(file.member))
            else:
                raw = stack.enter_context(file.path.open("rb"))
            opened = _decompressed(raw, file.member or file.path.name)
        except (OSError, zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: encrypted
            raise InputError([f"cannot read {file}: {error}"]) from None
        yield stack.enter_context(contextlib.closing(opened))


def _decompressed(raw: Any, name: str) -> io.BufferedIOBase:
    match = COMPRESSED.search(name)
    kind = match.group(1) if match else ""
    if kind == "gz":
        return gzip.GzipFile(fileobj=raw)
    if kind == "xz":
        return lzma.LZMAFile(raw)
    if kind == "bz2":
        return bz2.BZ2File(raw)
    if kind == "zst":
        return io.BufferedReader(_Zstandard(raw, name), _CHUNK)
    return raw


class _Zstandard(io.RawIOBase):
    """Decompresses zstd; damage and an end too early are errors, as they are with gzip and bz2.

    The library's own reader takes a file that breaks off for one that ends.
    """

    def __init__(self, raw: Any, name: str):
        library = _zstandard(name)
        self._error = library.ZstdError
        self._new_frame = library.ZstdDecompressor().decompressobj
        self._raw, self._frame, self._packed, self._text = raw, None, b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            self._packed = self._packed or self._raw.read(_CHUNK // 8)
            if not self._packed and self._frame is None:
                return 0
            if not self._packed:
                raise EOFError("the last frame is not complete")
            self._decompress()
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def _decompress(self) -> None:
        frame = self._frame = self._frame or self._new_frame()
        try:
            self._text = memoryview(frame.decompress(self._packed))
        except self._error as error:
            raise OSError(str(error)) from None
        self._packed = frame.unused_data if frame.eof else b""
        self._frame = None if frame.eof else frame


def _zstandard(name: str):
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        message = f"{name} is compressed with zstd; pip install zstandard, or: unzstd {name}"
        raise InputError([message]) from None


def lines(file: File) -> Generator[str]:
    r"""The file's lines without their end. Only `\n` ends a line: U+2028 and U+0085 are text.

    Raises:
        InputError: a line is not UTF-8 (with its number), or the compressed data are damaged.
    """
    number = 0
    try:
        with open_binary(file) as opened:
            for number, line in enumerate(opened, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                yield text.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InputError([not_utf8(file, number, error)]) from None
    except DAMAGED as error:
        raise InputError([damaged(file, number, error)]) from None


DAMAGED = (EOFError, OSError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)


def damaged(file: File, number: int, error: BaseException) -> str:
    """The fault of compressed data that break off or are wrong, after a number of lines."""
    where = f"after line {number} " if number else ""
    what = (
        "the file breaks off" if isinstance(error, EOFError) else f"the data are damaged ({error})"
    )
    return f"{file}: {where}{what}; download it again"


def not_utf8(file: File, number: int, error: UnicodeDecodeError) -> str:
    """The fault of a line that is not UTF-8."""
    byte = error.object[error.start]
    return (
        f"{file} line {number}: byte 0x{byte:02x} is not UTF-8; convert the file first"
        f" (iconv -f ENCODING -t UTF-8)"
    )
