"""A prepared directory, opened."""

import bisect
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from gshard_m4.corpus import Pair
from gshard_m4.input_error import InputError
from gshard_m4.prepared.manifest import MANIFEST, Manifest, ShardEntry, parse_manifest
from gshard_m4.prepared.shard import Row, Shard

# Below the 1024 files that many systems give a process.
_MAX_OPEN = 256


class Pairs(Sequence[Pair]):
    """The (source, English) pairs of one language and split; files are opened when they are read.

    Iterating gives the pairs in order and reads each file once.
    """

    def __init__(self, shards: Sequence[ShardEntry], open_shard: Callable[[ShardEntry], Shard]):
        self._shards, self._open = shards, open_shard
        self._ends = list(itertools.accumulate(shard.rows for shard in shards))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, row: int) -> Pair:  # pyright: ignore[reportIncompatibleMethodOverride]
        row = range(len(self))[row]
        number = bisect.bisect_right(self._ends, row)
        shard = self._shards[number]
        return self._open(shard)[row - self._ends[number] + shard.rows]

    def __iter__(self) -> Iterator[Pair]:
        return ((source, english) for source, english, _ in self.with_origin())

    @property
    def digest(self) -> str:
        """A SHA-256 of the files' own in the manifest; no file is read."""
        return hashlib.sha256("".join(shard.sha256 for shard in self._shards).encode()).hexdigest()

    def with_origin(self) -> Iterator[Row]:
        """The rows (source, English, origin) in order."""
        return itertools.chain.from_iterable(map(self._open, self._shards))


class Prepared:
    """What `gshard-m4 prepare` wrote.

    Attributes:
        path: the directory.
        manifest: what it holds.
    """

    def __init__(self, path: Path, manifest: Manifest):
        self.path, self.manifest = path, manifest
        self._cached = functools.lru_cache(maxsize=_MAX_OPEN)(self._open_shard)

    @property
    def source_vocabulary(self) -> Path:
        """Where `gshard-m4 vocabulary` writes the source languages' model."""
        return self.path / "vocabulary" / "source.model"

    @property
    def target_vocabulary(self) -> Path:
        """Where `gshard-m4 vocabulary` writes the model of English."""
        return self.path / "vocabulary" / "target.model"

    def counts(self, split: str) -> dict[str, int]:
        """Code -> rows of a split, 0 where a language lacks it."""
        found = {code: entry.splits.get(split) for code, entry in self.manifest.languages.items()}
        return {code: entry.rows if entry else 0 for code, entry in found.items()}

    def pairs(self, code: str, split: str) -> Pairs:
        """The pairs of a language's split, none where it lacks the split.

        Raises:
            KeyError: for a code that is not among the manifest's languages.
        """
        entry = self.manifest.languages[code].splits.get(split)
        return Pairs(entry.shards if entry else (), self._cached)

    def _open_shard(self, entry: ShardEntry) -> Shard:
        shard = Shard(self.path / entry.file)
        if len(shard) != entry.rows:
            raise InputError(
                [f"{shard.path}: has {len(shard)} rows, the manifest says {entry.rows}"]
            )
        return shard


def open_prepared(path: str | Path, *, verify: bool = False) -> Prepared:
    """The prepared directory at a path, with every file there and of the manifest's size.

    Args:
        path: the directory.
        verify: also compares every file's hash, which reads all of them.

    Raises:
        InputError: naming all that is wrong.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise InputError([f"{folder}: no such directory; give the --output of gshard-m4 prepare"])
    manifest = read_manifest(
        folder,
        missing=f"{folder}: has no {MANIFEST}, so it is unfinished or not prepared; run gshard-m4"
        " prepare to its end",
    )
    if faults := list(_file_faults(folder, manifest, verify)):
        raise InputError(faults)
    return Prepared(folder, manifest)


def read_manifest(folder: Path, *, missing: str) -> Manifest:
    """The manifest of a directory.

    Args:
        folder: the directory.
        missing: the fault where there is none.

    Raises:
        InputError: where there is none that can be read.
    """
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError([missing]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError([f"{folder / MANIFEST}: cannot be read ({error})"]) from None
    return parse_manifest(text, folder / MANIFEST)


def _file_faults(folder: Path, manifest: Manifest, verify: bool) -> Iterator[str]:
    for shard in _shards(manifest):
        path = folder / shard.file
        try:
            size = path.stat().st_size
        except OSError as error:
            yield f"{path}: cannot be read ({error.strerror}); prepare the data again"
            continue
        if size != shard.bytes:
            yield f"{path}: has {size} bytes, the manifest says {shard.bytes}"
        elif verify and (found := _sha256(path)) != shard.sha256:
            yield f"{path}: its SHA-256 is {found}, the manifest says {shard.sha256}"


def _shards(manifest: Manifest) -> Iterable[ShardEntry]:
    for language in manifest.languages.values():
        for split in language.splits.values():
            yield from split.shards


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
