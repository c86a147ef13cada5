"""Preparing a corpus on one machine, from a plan to a manifest.

    survey   every file is read once: hash, lines, UTF-8, sides of equal length, direction
    clean    each language: rows are cleaned, put into files by key, held-out sets drawn
    finish   each language: duplicates and held-out sentences go, shards are written
    manifest

Languages are independent but for the held-out English of all, which stands between the last two.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from gshard_m4.prepared import LanguageEntry, Manifest
from gshard_m4.preparing import finish_language as finishing
from gshard_m4.preparing.clean_language import (
    Cleaned,
    CleanTask,
    clean_language,
    read_cleaned,
    read_english,
)
from gshard_m4.preparing.finish_language import FinishTask, finish_language
from gshard_m4.preparing.held_out import union
from gshard_m4.preparing.keep_out import KeptOut
from gshard_m4.preparing.plan import Plan
from gshard_m4.preparing.processes import run_all
from gshard_m4.preparing.provenance import manifest_of, run_inputs
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.state import Work, digest, same_as_finished
from gshard_m4.preparing.survey import part_rows
from gshard_m4.preparing.surveying import Surveyed
from gshard_m4.sources import Part


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What a run made.

    Attributes:
        manifest: not written yet: that ends the run.
        cleaned: each language's first pass.
        was_there: all of it was made by an earlier run.
    """

    manifest: Manifest
    cleaned: Mapping[str, Cleaned]
    was_there: bool = False


def prepare(
    plan: Plan,
    surveyed: Surveyed,
    settings: Settings,
    work: Work,
    *,
    kept_out: KeptOut,
    processes: int,
    command: str,
    name: str,
    quiet: bool = False,
) -> Prepared:
    """Prepares a corpus; languages that an earlier, unfinished run has finished are kept.

    Args:
        plan: what to read.
        surveyed: the plan's files.
        settings: how.
        work: the output, and what is there of an earlier run.
        kept_out: further held-out sets.
        processes: how many work at a time.
        command: the command line, for the manifest.
        name: of the corpus, for people.
        quiet: no progress bars.
    """
    all_settings = settings.flat() | {"keep_out": kept_out.identity}
    inputs = run_inputs(plan, surveyed)
    earlier = same_as_finished(work, all_settings, inputs, plan.languages)
    if earlier is not None:
        return Prepared(earlier, {}, was_there=True)
    work.begin(all_settings)
    cleaned = _clean_all(plan, surveyed, settings, kept_out, work, processes, quiet)
    entries = _finish_all(plan, cleaned, settings, kept_out, work, processes, quiet)
    manifest = manifest_of(plan, surveyed, entries, all_settings, command=command, name=name)
    return Prepared(manifest, cleaned)


def _clean_all(
    plan: Plan,
    surveyed: Surveyed,
    settings: Settings,
    kept_out: KeptOut,
    work: Work,
    processes: int,
    quiet: bool,
) -> dict[str, Cleaned]:
    """The first pass over every language that has not been through it, or has not been finished."""
    found: dict[str, Cleaned] = {}
    tasks = []
    for code, parts in plan.languages.items():
        earlier = read_cleaned(work.cleaned(code))
        if earlier is not None and earlier.inputs == surveyed.inputs[code]:
            found[code] = earlier
            continue
        tasks.append(_clean_task(code, parts, surveyed, settings, work, kept_out))
    tasks.sort(key=lambda task: -surveyed.rows[task.code])
    rows = sum(surveyed.rows[task.code] for task in tasks)
    for task in tasks:
        work.done(task.code).unlink(missing_ok=True)
    new = run_all(
        clean_language, tasks, processes=processes, title="cleaning", rows=rows, quiet=quiet
    )
    found |= {cleaned.code: cleaned for cleaned in new}
    return {code: found[code] for code in plan.languages}


def _clean_task(
    code: str,
    parts: Sequence[Part],
    surveyed: Surveyed,
    settings: Settings,
    work: Work,
    kept_out: KeptOut,
) -> CleanTask:
    return CleanTask(
        code, tuple(parts), work.cleaned(code), settings, surveyed.inputs[code],
        shards_of(parts, surveyed, settings), kept_out.only(code),
    )  # fmt: skip


def shards_of(parts: Sequence[Part], surveyed: Surveyed, settings: Settings) -> int:
    """The number of shards of a language's training text, 0 where it has none."""
    training = [part_rows(part, surveyed.files) for part in parts if part.split == "train"]
    return settings.shards(sum(training)) if training else 0


def _finish_all(
    plan: Plan,
    cleaned: Mapping[str, Cleaned],
    settings: Settings,
    kept_out: KeptOut,
    work: Work,
    processes: int,
    quiet: bool,
) -> dict[str, LanguageEntry]:
    """The second pass over every language that has not been through it with these held-out sets."""
    everywhere = union([read_english(work.cleaned(code)) for code in cleaned] + [kept_out.english])
    np.save(work.everywhere, everywhere)
    identity = digest([hashlib.sha256(everywhere.tobytes()).hexdigest(), kept_out.identity])
    entries: dict[str, LanguageEntry] = {}
    tasks = []
    for code, one in cleaned.items():
        done = finishing.finished(work.done(code), one.inputs, identity, work.new)
        if done is not None:
            entries[code] = done
            continue
        tasks.append(
            FinishTask(
                one, work.cleaned(code), work.new,
                work.everywhere, identity, kept_out.of(code), settings.across_languages,
                work.done(code),
            )
        )  # fmt: skip
    tasks.sort(key=lambda task: -task.cleaned.cleaned)
    rows = sum(task.cleaned.cleaned for task in tasks)
    written = run_all(
        finish_language, tasks, processes=processes, title="writing", rows=rows, quiet=quiet
    )
    entries |= {task.cleaned.code: entry for task, entry in zip(tasks, written, strict=True)}
    return {code: entries[code] for code in plan.languages}
