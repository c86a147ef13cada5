"""What an output folder holds already: nothing, an unfinished run, or a prepared directory.

An unfinished run is in `.prepare`: `run.json` says what it is of, `cleaned/<code>` are languages
through the first pass, `done/<code>.json` those through the second. Every one of them appears when
it is whole, so a run can be ended at any time and goes on from there.
"""

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, Any

from gshard_m4.input_error import InputError
from gshard_m4.prepared import MANIFEST, Manifest, open_prepared, parse_manifest
from gshard_m4.writing import write_all

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

WORK = ".prepare"
_RUN = "run.json"
_LOCK = "lock"
_SHARD = re.compile(r"\.?(train|validation|test)-\d{5}-of-\d{5}\.tsv\.gz(\.partial)?")


class Work(contextlib.AbstractContextManager["Work"]):
    """The folder of an unfinished run, inside the output, which one process has at a time."""

    def __init__(self, output: Path):
        self.output, self.folder = output, output / WORK
        self._lock: IO[str] | None = None

    def cleaned(self, code: str) -> Path:
        """The folder of a language's first pass."""
        return self.folder / "cleaned" / code

    def done(self, code: str) -> Path:
        """The file of a language's second pass."""
        return self.folder / "done" / f"{code}.json"

    @property
    def everywhere(self) -> Path:
        """The English keys of all held-out sets."""
        return self.folder / "held_out_english.npy"

    def __enter__(self) -> "Work":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / _LOCK).open("w")
        except OSError as error:
            raise InputError([f"cannot write to --output={self.output}: {error}"]) from None
        if not _locked(self._lock):
            self._lock.close()
            raise InputError([f"another process prepares --output={self.output} at this moment"])
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
        if self.folder.is_dir() and [path.name for path in self.folder.iterdir()] == [_LOCK]:
            self.remove()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Notes the run's settings."""
        write_all(self.folder, {_RUN: json.dumps({"settings": settings})})

    def remove(self) -> None:
        """Removes the folder, and the output where nothing else is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if not any(self.output.iterdir()):
            self.output.rmdir()

    def clear(self) -> None:
        """Removes an earlier run's manifest, unfinished state and shards; other files stay."""
        path = self.output / MANIFEST
        path.unlink(missing_ok=True)
        for path in [path for path in self.folder.iterdir() if path.name != _LOCK]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._remove_shards(set())

    def end(self, manifest: Manifest) -> None:
        """Removes what an unfinished run needs, and shards that the manifest does not name."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._remove_shards(
            {
                shard.file
                for language in manifest.languages.values()
                for split in language.splits.values()
                for shard in split.shards
            }
        )

    def _remove_shards(self, named: Collection[str]) -> None:
        for path in self.output.glob("*/*.tsv.gz*"):
            is_shard = _SHARD.fullmatch(path.name) is not None
            if is_shard and path.relative_to(self.output).as_posix() not in named:
                path.unlink()


def _locked(file: IO[str]) -> bool:
    """Whether this process has the file for itself until it ends; yes where locks are unknown."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def digest(value: Any) -> str:
    """A short hash of anything that JSON can hold."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def check_output(output: Path, settings: Mapping[str, Any], *, restart: bool) -> None:
    """Whether the output may be written, before anything is read.

    Raises:
        InputError: it is something else than an output, or was begun with other settings.
    """
    if output.exists() and not output.is_dir():
        raise InputError([f"--output={output} is a file; give a folder"])
    _check_is_ours(output)
    earlier = None if restart else _earlier_settings(output)
    if earlier is not None:
        differences = _differences(earlier, settings)
        if differences:
            raise InputError(
                [f"--output={output} was made with other settings: {'; '.join(differences)}. Give"
                 " another --output, the same settings, or --restart to make it anew"]
            )  # fmt: skip


def same_as_finished(
    output: Path, settings: Mapping[str, Any], inputs: str, languages: Collection[str]
) -> Manifest | None:
    """The manifest of a finished directory of the same input; None where there is none.

    Raises:
        InputError: the directory is finished, of another input, or files of it are missing.
    """
    path = output / MANIFEST
    if not path.exists():
        return None
    manifest = parse_manifest(path.read_text(encoding="utf-8"), path)
    if manifest.settings == {**settings, "inputs": inputs}:
        open_prepared(output)  # every file is there and of its size
        return manifest
    new = ", ".join(sorted(set(languages) - set(manifest.languages)))
    gone = ", ".join(sorted(set(manifest.languages) - set(languages)))
    how = [f"{new} would be new"] * bool(new) + [f"{gone} would go"] * bool(gone)
    raise InputError(
        [f"--output={output} is prepared from other input than now"
         f" ({' and '.join(how) or 'files, layouts or licences have changed'}); give another"
         " --output, or --restart to make it anew"]
    )  # fmt: skip


def _check_is_ours(output: Path) -> None:
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not (output / MANIFEST).exists() and not (output / WORK).exists():
        there = ", ".join(sorted(path.name for path in output.iterdir())[:3])
        raise InputError(
            [f"--output={output} holds {there} and is no prepared directory; give a new folder"]
        )


def _earlier_settings(output: Path) -> dict[str, Any] | None:
    if (path := output / MANIFEST).exists():
        manifest = parse_manifest(path.read_text(encoding="utf-8"), path)
        return {name: value for name, value in manifest.settings.items() if name != "inputs"}
    if (path := output / WORK / _RUN).exists():
        return json.loads(path.read_text())["settings"]
    return None


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted({*earlier, *now})
    return [
        f"{name} {earlier.get(name)!r}, now {now.get(name)!r}"
        for name in names
        if earlier.get(name) != now.get(name)
    ]
