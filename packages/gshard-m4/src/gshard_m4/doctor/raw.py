"""A directory as downloaded: its layout, and what `gshard-m4 prepare` would refuse or leave out."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gshard_m4.doctor.checks import Finding
from gshard_m4.doctor.raw_rows import PartTask, check_part
from gshard_m4.input_error import InputError
from gshard_m4.preparing.processes import run_all
from gshard_m4.preparing.survey import FileSurvey, survey_file
from gshard_m4.sources import BY_KIND, File, Part, Scan, detect, resolver, scan


def check_raw(
    folder: Path, *, kind: str | None, any_language: bool, processes: int, quiet: bool
) -> tuple[list[Finding], int, int]:
    """What is wrong with it, its languages and rows; every file is read once.

    Raises:
        InputError: where no layout fits, or several do.
    """
    if kind is not None and kind not in BY_KIND:
        raise InputError([f"--source={kind} is not known; there are {', '.join(BY_KIND)}"])
    layout = BY_KIND[kind or detect(folder)]
    found = scan(folder, layout, resolver(any_language=any_language))
    if not found.parts and not found.faults:
        raise InputError([f"{folder}: nothing in it can be read as {layout.kind}", *found.left_out])
    files = sorted({file for part in found.parts for file in part.files})
    sizes = sum(file.path.stat().st_size for file in files)
    surveys = run_all(
        survey_file, files, processes=processes, title="files", rows=sizes, unit="files",
        quiet=quiet,
    )  # fmt: skip
    surveyed = dict(zip(files, surveys, strict=True))
    rows = sum(surveyed[part.files[0]].lines for part in found.parts)
    detail = f"{layout.kind}: {layout.what}; {len(files):,} files"
    findings = [
        Finding(check="layout", detail=detail),
        *_scan_findings(found),
        *_file_findings(surveyed, found.parts),
    ]
    texts = Counter(part.language for part in found.parts)
    tasks = [
        PartTask(part, {file: surveyed[file] for file in part.files}, texts[part.language] == 1)
        for part in found.parts
    ]
    for several in run_all(
        check_part, tasks, processes=processes, title="rows", rows=0, unit="texts", quiet=quiet
    ):
        findings += several
    return findings, len(texts), rows


def _scan_findings(found: Scan) -> Iterator[Finding]:
    for fault in found.faults:
        check = "unknown language" if "unknown language" in fault else "damaged input"
        yield Finding(check=check, detail=fault)
    for note in found.left_out:
        yield Finding(check="left out", detail=note)


def _file_findings(surveyed: dict[File, FileSurvey], parts: list[Part]) -> Iterator[Finding]:
    languages = {file: part.language for part in parts for file in part.files}
    for file, one in surveyed.items():
        empty = [] if one.faults or one.lines else [f"{file} is empty"]
        for fault in (*one.faults, *empty):
            yield Finding(check="damaged input", language=languages[file], detail=fault)
