"""Results of compiling, kept in a folder: a search that was stopped goes on where it was."""

import contextlib
import dataclasses
import hashlib
import json
import os
from pathlib import Path

from gshard_train.errors import UserError
from gshard_train.precompiling import job_json
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.layout import Layout
from gshard_train.precompiling.sources import compiler_flags, sources, versions


class Kept:
    """Results in a folder, by what they depend on.

    Kept are programs and those that are too large. What crashed or took too long is tried again,
    and so is everything once our sources or the compiler are others.

    Args:
      folder: made where it is not there.
      text: the effective configuration, which the layouts change.

    Raises:
      UserError: the folder cannot be made or written.
    """

    def __init__(self, folder: str | os.PathLike[str], text: str):
        self._folder, self._text = Path(folder), text
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(self._folder, os.W_OK | os.X_OK)
        except OSError as error:
            raise UserError(f"--results={folder} cannot be made: {error.strerror}") from error
        if not writable:
            raise UserError(f"--results={folder} cannot be written; give another folder")

    def result(self, job: Job) -> Result | None:
        """What became of a job before; None where it has to be compiled."""
        # A file of another version, or half a file of a disk that was full, counts as none.
        with contextlib.suppress(FileNotFoundError, ValueError):
            found = job_json.result_from_json(self._path(job).read_text(encoding="utf-8"))
            return dataclasses.replace(found, job=job)
        return None

    def is_outdated(self, job: Job) -> bool:
        """Whether there is nothing but what other sources or another compiler made of it."""
        name = self._path(job).name
        others = self._folder.glob(f"{name.partition('-')[0]}-*.json")
        return any(other.name != name for other in others)

    def keep(self, result: Result) -> None:
        """Writes a result, whole or not at all.

        Raises:
          OSError: it cannot be written.
        """
        if result.fault is not None and result.fault.kind != "too large":
            return
        path = self._path(result.job)
        beside = path.with_suffix(f".{os.getpid()}.new")
        try:
            beside.write_text(job_json.result_json(result), encoding="utf-8")
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)

    def _path(self, job: Job) -> Path:
        layout = {
            field.name: getattr(job.layout, field.name) for field in dataclasses.fields(Layout)
        }
        asked = [self._text, layout, job.topology, job.num_slices, job.mode]
        made_by = [sources(), versions(), compiler_flags()]
        return self._folder / f"{_hash(asked, 20)}-{_hash(made_by, 8)}.json"


def _hash(key: object, length: int) -> str:
    text = json.dumps(key, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def default_folder() -> Path:
    """Where results are kept that no folder was named for."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "gshard-train", "plans")
