"""A layout as a gin file on top of the user's own."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gshard_train.errors import UserError
from gshard_train.gin_check.files import find_file
from gshard_train.planning.row import Row
from gshard_train.planning.table import outcome
from gshard_train.precompiling.configuration import configured
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.layout import Layout

_FIRST = "# A layout that gshard-plan found"
_IMPORTS = {
    "mesh.": "from gshard_annotate import mesh",
    "experiment.": "from gshard_train import experiment",
    "@layouts.": "from gshard_train import layouts",
    "config.": "from gshard_train.models import config",
}
_OF_MODEL = ("num_groups", "remat", "pipeline_microbatches", "dispatch")


def place_faults(path: str) -> Iterator[str]:
    """Why a file could not be written here, or may not since another is there."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        yield f"--out={path}: there is no folder {folder}; give one that is there"
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield f"--out={path} cannot be written: no permission for {folder}"
    elif Path(path).is_dir():
        yield f"--out={path} is a folder; give a file"
    elif Path(path).exists() and not Path(path).read_bytes().startswith(_FIRST.encode()):
        yield f"--out={path} is there, and gshard-plan did not write it; give another name"


def write(path: str, job: Job, best: Row, describe: Callable[[Job], Result]) -> None:
    """Writes the gin file of a layout, once it was read and describes the same program.

    Args:
      path: of the file, written whole or not at all.
      job: with the user's gin files and bindings.
      best: the layout, and what became of it.
      describe: tells what is known of a job before it is compiled.

    Raises:
      UserError: the file would describe another experiment, since the user's files bind what it
        binds in another way; nothing was written.
    """
    beside = f"{path}.new"
    text = gin_text(job, best)
    try:
        Path(beside).write_text(text, encoding="utf-8")
        again = dataclasses.replace(job, gin_files=(beside,), gin_bindings=())
        if faults := list(_differences(again, best, describe)):
            raise UserError(*faults, "the gin files bind it elsewhere; bind by hand:", text)
        os.replace(beside, path)
    finally:
        Path(beside).unlink(missing_ok=True)


def gin_text(job: Job, best: Row) -> str:
    """The gin file of a layout: the user's files, what flags bound, and the layout."""
    bindings = list(_bindings(best.candidate.layout))
    imports = [line for part, line in _IMPORTS.items() if any(part in each for each in bindings)]
    lines = [f"{_FIRST} for {job.topology}{_slices(job)}.", f"# {outcome(best)} (estimates)"]
    lines += ["", "from __gin__ import dynamic_registration", "", *imports, ""]
    lines += [f'include "{_place(file, job)}"' for file in job.gin_files]
    if job.gin_bindings:
        lines += ["", "# What flags had bound.", *map(str.strip, job.gin_bindings)]
    return "\n".join([*lines, "", *bindings]).rstrip() + "\n"


def _slices(job: Job) -> str:
    return f" x {job.num_slices} slices" if job.num_slices > 1 else ""


def _bindings(layout: Layout) -> Iterator[str]:
    if layout.mesh is not None:
        # The name that models and layouts have for it, so that none of theirs is left unused.
        yield f"MESH_AXES = {dict(layout.mesh)}"
        yield "mesh.make_mesh.axes = %MESH_AXES"
    if layout.slices is not None:
        yield f"mesh.make_mesh.slices = {dict(layout.slices)}"
    if layout.rules is not None:
        yield f"experiment.Experiment.rules = @layouts.{layout.rules}()"
    if layout.microbatches is not None:
        yield f"experiment.Experiment.microbatches = {layout.microbatches}"
    for name in _OF_MODEL:
        if (value := getattr(layout, name)) is not None:
            yield f"config.TransformerConfig.{name} = {value!r}"


def _place(file: str, job: Job) -> str:
    """By package where it was given so; else with its whole path, for any working directory."""
    if os.path.isfile(file):
        return os.path.abspath(file)
    found = find_file(file, job.gin_search_paths)
    by_package = find_file(file)
    return file if by_package is not None or found is None else os.path.abspath(found)


def _differences(job: Job, best: Row, describe: Callable[[Job], Result]) -> Iterator[str]:
    """What of the program that the file describes is otherwise than the layout's."""
    read, wanted = configured(job).experiment, best.candidate.experiment
    for name in ("model", "rules", "microbatches"):
        if (one := getattr(read, name)) != (two := getattr(wanted, name)):
            yield f"with the gin file {name} would be {one!r} instead of {two!r}"
    described = describe(job)
    if described.fault is not None:
        yield described.fault.message
    elif (facts := described.facts) != best.result.facts:
        yield (
            f"with the gin file the mesh would be {dict(facts.mesh if facts else {})} instead of "
            f"{dict(best.candidate.mesh)}, or tensors would lie elsewhere"
        )
