"""The rows of a text as downloaded: what stops `prepare`, and how much it would remove."""

import contextlib
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from gshard_m4.doctor.checks import Finding
from gshard_m4.preparing.clean_rows import clean_row
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.survey import FileSurvey, part_faults, part_rows
from gshard_m4.sources import File, Part
from gshard_m4.sources.readers import rows

_SAMPLE = 2_000


@dataclasses.dataclass(frozen=True)
class PartTask:
    """A text to look at, what was found of its files, and whether its language has no other."""

    part: Part
    files: Mapping[File, FileSurvey]
    alone: bool


def check_part(task: PartTask) -> list[Finding]:
    """What is wrong with a text; where nothing is, what cleaning would remove of training text."""
    part = task.part
    faults = part_faults(part, task.files, alone=task.alone)
    if faults:
        details = (fault.removeprefix(f"{part.language}: ") for fault in faults)
        return [
            Finding(check="damaged input", language=part.language, split=part.split, detail=detail)
            for detail in details
        ]
    broken = any(task.files[file].faults for file in part.files)
    return [] if broken or part.split != "train" else list(_removed(task))


def _removed(task: PartTask) -> Iterator[Finding]:
    """The share of removed rows, by a sample from all over the text."""
    part, why, of = task.part, Counter[str](), 0
    every = max(1, part_rows(part, task.files) // _SAMPLE)
    with contextlib.closing(rows(part)) as opened:
        for row in itertools.islice(opened, 0, None, every):
            of += 1
            outcome = clean_row(row, 0, part.script, Settings(), whole=False).outcome
            why.update([outcome] if isinstance(outcome, str) else [])
    if count := why.total():
        reasons = ", ".join(f"{reason} {n / of:.1%}" for reason, n in why.most_common())
        where = " and ".join(str(file) for file in part.files)
        yield Finding(
            check="would be removed",
            language=part.language,
            split=part.split,
            rows=count,
            of=of,
            detail=f"about {count / of:.1%} of {where} ({reasons}), by {of:,} rows",
        )
