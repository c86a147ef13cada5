"""Results of compiling, kept in a folder: a search that was stopped goes on where it was."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path

import gshard_annotate
import gshard_moe
import gshard_train
from gshard_train.errors import UserError
from gshard_train.precompiling import job_json
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.layout import Layout

_LIBRARIES = ("jax", "jaxlib", "libtpu", "flax", "optax")
_OWN = (gshard_annotate, gshard_moe, gshard_train)


class Kept:
    """Results in a folder, by what they depend on.

    Kept are programs and those that are too large. What crashed or took too long is tried again.

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

    def keep(self, result: Result) -> None:
        """Writes a result, whole or not at all."""
        if result.fault is not None and result.fault.kind != "too large":
            return
        path = self._path(result.job)
        beside = path.with_suffix(f".{os.getpid()}.new")
        beside.write_text(job_json.result_json(result), encoding="utf-8")
        os.replace(beside, path)

    def _path(self, job: Job) -> Path:
        layout = {
            field.name: getattr(job.layout, field.name) for field in dataclasses.fields(Layout)
        }
        key = [self._text, layout, job.topology, job.num_slices, job.mode, _versions()]
        text = json.dumps(key, default=dict)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.json"


def default_folder() -> Path:
    """Where results are kept that no folder was named for."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "gshard-train", "plans")


@functools.cache
def _versions() -> dict[str, str]:
    """Of what makes programs; of our packages the source, since an editable one has one version."""
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    for package in _OWN:
        digest = hashlib.sha256()
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(file.read_bytes())
        found[package.__name__] = digest.hexdigest()
    return found
