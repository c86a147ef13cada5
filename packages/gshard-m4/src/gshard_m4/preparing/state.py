"""What an output folder holds already: nothing, an unfinished run, or a prepared directory.

An unfinished run is in `.prepare`: `run.json` says what it is of, `cleaned/<code>` are languages
through the first pass, `done/<code>.json` those through the second, and `new` is the directory to
be. Every one of them appears when it is whole, so a run can be ended at any time and goes on from
there. What an earlier run made stays as it is until all of the new one is there.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
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


class Work(contextlib.AbstractContextManager["Work"]):
    """The folder of an unfinished run, inside the output, which one process has at a time.

    Attributes:
        output: the prepared directory.
        folder: of the unfinished run.
        new: where shards are written, until all are there and take their places in the output.
        restart: whether the output is made anew, whatever an earlier run made.
    """

    def __init__(self, output: Path, *, restart: bool = False):
        self.output, self.folder = output, output / WORK
        self.new, self.restart = self.folder / "new", restart
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
        if (self.new / MANIFEST).exists():  # ended while it took its place
            self._replace_earlier()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
        if self.folder.is_dir() and [path.name for path in self.folder.iterdir()] == [_LOCK]:
            self.remove()

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Notes the run's settings; with `restart`, clears an unfinished run of another kind."""
        run = {"settings": dict(settings), "restart": self.restart}
        if self.restart and _read_run(self.output) != run:
            for path in [path for path in self.folder.iterdir() if path.name != _LOCK]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_all(self.folder, {_RUN: json.dumps(run)})

    def remove(self) -> None:
        """Removes the folder, and the output where nothing else is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if not any(self.output.iterdir()):
            self.output.rmdir()

    def publish(self, manifest: Manifest, files: Mapping[str, str]) -> None:
        """Puts all that was made in the place of what an earlier run made; other files stay.

        Args:
            manifest: of the new shards.
            files: names and texts of further files.
        """
        write_all(self.new, files)
        manifest.write(self.new)
        self._replace_earlier()

    def end(self) -> None:
        """Removes what only an unfinished run needs."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _replace_earlier(self) -> None:
        """The manifest goes first and comes last: without it the directory is unfinished."""
        new = set(_shards(self.new / MANIFEST))
        for name in set(_shards(self.output / MANIFEST)) - new:
            (self.output / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other files are in it
                (self.output / name).parent.rmdir()
        (self.output / MANIFEST).unlink(missing_ok=True)
        for name in sorted(new):
            _move(self.new / name, self.output / name)
        for path in sorted(self.new.iterdir()):
            if path.is_file() and path.name != MANIFEST:
                _move(path, self.output / path.name)
        _move(self.new / MANIFEST, self.output / MANIFEST)


def _shards(path: Path) -> Iterator[str]:
    """The files that a manifest names; none where it is not there or cannot be read."""
    try:
        manifest = parse_manifest(path.read_text(encoding="utf-8"), path)
    except (FileNotFoundError, UnicodeDecodeError, InputError):
        return
    for language in manifest.languages.values():
        for split in language.splits.values():
            yield from (shard.file for shard in split.shards)


def _move(path: Path, place: Path) -> None:
    if path.exists():  # else a run that was ended has moved it
        place.parent.mkdir(exist_ok=True)
        path.replace(place)


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
    work: Work, settings: Mapping[str, Any], inputs: str, languages: Collection[str]
) -> Manifest | None:
    """The manifest of a finished directory of the same input; None where there is none.

    With `work.restart` there is none, whatever is there.

    Raises:
        InputError: the directory is finished, of another input, or files of it are missing.
    """
    output, path = work.output, work.output / MANIFEST
    if work.restart or not path.exists():
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
    return (_read_run(output) or {}).get("settings")


def _read_run(output: Path) -> dict[str, Any] | None:
    """What an unfinished run noted; None where there is none."""
    path = output / WORK / _RUN
    return json.loads(path.read_text()) if path.exists() else None


def _differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted({*earlier, *now})
    return [
        f"{name} {earlier.get(name)!r}, now {now.get(name)!r}"
        for name in names
        if earlier.get(name) != now.get(name)
    ]
