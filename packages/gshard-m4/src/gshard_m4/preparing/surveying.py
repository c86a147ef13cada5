"""Reading every file of a plan once, before anything is prepared."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from gshard_m4.input_error import InputError
from gshard_m4.preparing.plan import Plan
from gshard_m4.preparing.processes import run_all
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.state import digest
from gshard_m4.preparing.survey import FileSurvey, part_faults, part_rows, survey_file
from gshard_m4.sources import File, Part


@dataclasses.dataclass(frozen=True)
class Surveyed:
    """A plan whose files were read once.

    Attributes:
        files: what was found of each.
        rows: code -> rows of the language, about.
        inputs: code -> what identifies the language's input.
    """

    files: Mapping[File, FileSurvey]
    rows: Mapping[str, int]
    inputs: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class _Checked:
    part: Part
    files: Mapping[File, FileSurvey]
    alone: bool


def _check(one: _Checked) -> list[str]:
    return part_faults(one.part, one.files, alone=one.alone)


def survey(plan: Plan, settings: Settings, *, processes: int, quiet: bool = False) -> Surveyed:
    """Reads every file of a plan once.

    Raises:
        InputError: everything that is wrong with the files.
    """
    files = sorted(plan.files, key=lambda file: -file.path.stat().st_size)
    found = run_all(
        survey_file, files, processes=processes, title="reading", rows=0, unit="files", quiet=quiet
    )
    by_file = dict(zip(files, found, strict=True))
    faults = [fault for file in sorted(files) for fault in by_file[file].faults]
    tasks = [
        _Checked(part, {file: by_file[file] for file in part.files}, len(parts) == 1)
        for parts in plan.languages.values()
        for part in parts
    ]
    checked = run_all(
        _check, tasks, processes=processes, title="checking", rows=0, unit="texts", quiet=quiet
    )
    faults.extend(fault for several in checked for fault in several)
    if faults:
        raise InputError(list(dict.fromkeys(faults)))
    rows = {
        code: sum(part_rows(part, by_file) for part in parts)
        for code, parts in plan.languages.items()
    }
    inputs = {
        code: digest([settings.flat(), *(_identity(part, by_file) for part in parts)])
        for code, parts in plan.languages.items()
    }
    return Surveyed(by_file, rows, inputs)


def _identity(part: Part, files: Mapping[File, FileSurvey]) -> list[Any]:
    """Everything about a part that decides its rows; not where its files are."""
    hashes = [files[file].sha256 for file in part.files]
    return [part.kind, part.split, part.reader, part.columns, part.origin, part.swapped, *hashes]
