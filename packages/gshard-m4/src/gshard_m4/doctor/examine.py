"""The story of an examination: which kind of directory, what is checked, in which order."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gshard_m4.asked_languages import codes_in
from gshard_m4.doctor.checks import Finding
from gshard_m4.doctor.files import check_files, check_manifest, manifest_of
from gshard_m4.doctor.keys import Held, english_of_all, held_of
from gshard_m4.doctor.rows import LanguageTask, check_rows
from gshard_m4.input_error import InputError
from gshard_m4.prepared import MANIFEST, Prepared
from gshard_m4.preparing.cleaning import Cleaning
from gshard_m4.preparing.processes import run_all
from gshard_m4.preparing.state import WORK

PREPARED, RAW = "prepared", "as downloaded"


@dataclasses.dataclass(frozen=True)
class Examination:
    """What was looked at, and all that was found.

    Attributes:
        path: the directory.
        kind: prepared or as downloaded.
        languages: how many.
        rows: how many were read.
        findings: faults and notes.
    """

    path: Path
    kind: str
    languages: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are faults."""
        return tuple(one for one in self.findings if one.is_fault)


def examine(
    path: Path,
    *,
    languages: Sequence[str] = (),
    kind: str | None = None,
    any_language: bool = False,
    hashes: bool = True,
    processes: int = 1,
    quiet: bool = True,
) -> Examination:
    """Everything that is wrong with a directory.

    Args:
        path: what `gshard-m4 prepare` wrote, or a corpus as downloaded.
        languages: any codes of those to look at in a prepared directory, all where none is given.
        kind: layout of a corpus as downloaded; found out where none is given.
        any_language: whether languages outside M4 belong to it.
        hashes: whether the hash of every file is compared.
        processes: languages, or files, at a time.
        quiet: no progress bar.

    Raises:
        InputError: where the directory cannot be read at all.
    """
    if not path.exists():
        raise InputError([f"{path}: no such file or directory"])
    if kind is None and is_prepared(path):
        return _prepared(path, languages, hashes, processes, quiet)
    from gshard_m4.doctor.raw import check_raw

    findings, count, rows = check_raw(
        path, kind=kind, any_language=any_language, processes=processes, quiet=quiet
    )
    return Examination(path, RAW, count, rows, tuple(findings))


def is_prepared(path: Path) -> bool:
    """Whether it is what `gshard-m4 prepare` wrote, to its end or not."""
    if any((path / name).exists() for name in (MANIFEST, WORK)):
        return True
    return any(path.glob("*/*-?????-of-?????.tsv.gz"))


def _prepared(
    path: Path, chosen: Sequence[str], hashes: bool, processes: int, quiet: bool
) -> Examination:
    manifest = manifest_of(path)
    chosen, faults = codes_in(manifest.languages, chosen, str(path))
    if faults:
        raise InputError(faults)
    usable, findings = check_files(path, manifest, hashes=hashes)
    findings += check_manifest(manifest)
    codes = list(chosen or manifest.languages)
    tasks, broken = _tasks(usable, codes)
    rows = sum(map(_rows, tasks))
    tasks.sort(key=_rows, reverse=True)
    for found in run_all(
        check_rows, tasks, processes=processes, title="rows", rows=rows, quiet=quiet
    ):
        findings += found
    from gshard_m4.doctor.vocabularies import check_vocabularies

    readable = [task.code for task in tasks]
    findings += [*broken, *check_vocabularies(usable, sorted(readable))]
    wanted = [one for one in findings if not chosen or one.language in ("", "en", *chosen)]
    wanted.sort(key=lambda one: (one.language, one.split))
    return Examination(path, PREPARED, len(codes), rows, tuple(wanted))


def _tasks(prepared: Prepared, codes: Sequence[str]) -> tuple[list[LanguageTask], list[Finding]]:
    """A task for each language; held-out sets of all languages count for each."""
    found: dict[str, Held] = {}
    broken = []
    for code in prepared.manifest.languages:
        try:
            found[code] = held_of(prepared, code)
        except InputError as error:
            broken.append(Finding(check="file", language=code, detail=error.faults[0]))
    # A corpus that was prepared with --english-elsewhere=keep has such rows by choice.
    kept = prepared.manifest.settings.get("across_languages") is False
    everywhere = english_of_all({} if kept else found)
    cleaning = _cleaning(prepared.manifest.settings)
    return [
        LanguageTask(
            prepared.path,
            dataclasses.replace(
                prepared.manifest, languages={code: prepared.manifest.languages[code]}
            ),
            code,
            cleaning,
            found[code],
            everywhere,
        )
        for code in codes
        if code in found
    ], broken


def _rows(task: LanguageTask) -> int:
    return sum(part.rows for part in task.manifest.languages[task.code].splits.values())


def _cleaning(settings: Mapping[str, Any]) -> Cleaning:
    """What the directory was cleaned by, as far as it says so."""
    names = {field.name for field in dataclasses.fields(Cleaning)}
    return Cleaning(**{name: settings[name] for name in names & set(settings)})
