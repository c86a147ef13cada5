"""The same preparation as an Apache Beam pipeline, for corpora that one machine is too slow for.

Cleaning, drawing, filtering and writing are the functions that `pipeline` uses, and the files come
out the same, byte for byte. Workers read the input and write the output by path: both are on a file
system that all of them share. A shard is written by one worker, beside its place and then moved, so
a retried or doubled bundle does no harm; each leaves a note of its counts, from which the manifest
is made at the end.
"""

import importlib
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gshard_m4.input_error import InputError
from gshard_m4.prepared import LanguageEntry, shard_name
from gshard_m4.preparing.clean_language import Cleaned
from gshard_m4.preparing.finish_language import (
    check_counts,
    language_entry,
    shard_entry,
    split_entry,
    write_shard,
)
from gshard_m4.preparing.keep_out import KeptOut
from gshard_m4.preparing.pipeline import Prepared, shards_of
from gshard_m4.preparing.plan import Plan
from gshard_m4.preparing.provenance import manifest_of, run_inputs
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.state import Work, same_as_finished
from gshard_m4.preparing.surveying import Surveyed


def prepare(
    plan: Plan,
    surveyed: Surveyed,
    settings: Settings,
    work: Work,
    *,
    kept_out: KeptOut,
    command: str,
    name: str,
    runner: str,
    beam_options: str = "",
) -> Prepared:
    """Prepares a corpus on a runner of Beam; see `pipeline.prepare`.

    Raises:
        InputError: Beam is not installed, the runner is unknown, or the input has faults.
    """
    beam, options = _beam(runner, beam_options)
    from gshard_m4.preparing.beam_steps import Steps

    all_settings = settings.flat() | {"keep_out": kept_out.identity}
    earlier = same_as_finished(work, all_settings, run_inputs(plan, surveyed), plan.languages)
    if earlier is not None:
        return Prepared(earlier, {}, was_there=True)
    work.begin(all_settings)
    notes = work.folder / "beam"
    shutil.rmtree(notes, ignore_errors=True)
    shards = {code: shards_of(parts, surveyed, settings) for code, parts in plan.languages.items()}
    steps = Steps(settings, work.new.resolve(), notes.resolve(), shards, kept_out)
    with beam.Pipeline(options=options) as pipeline:
        steps.add_to(pipeline, plan.languages)
    cleaned = {code: _cleaned(notes, code, surveyed, shards) for code in plan.languages}
    entries = {code: _entry(notes, one, work.new) for code, one in cleaned.items()}
    manifest = manifest_of(plan, surveyed, entries, all_settings, command=command, name=name)
    return Prepared(manifest, cleaned)


def _beam(runner: str, flags: str) -> tuple[Any, Any]:
    try:
        beam = importlib.import_module("apache_beam")
        options = importlib.import_module("apache_beam.options.pipeline_options")
    except ImportError:
        message = f"--runner={runner} needs Apache Beam: pip install 'gshard-m4[beam]'"
        raise InputError([message]) from None
    try:
        beam.runners.create_runner(runner)
    except ValueError as error:
        raise InputError([f"--runner={runner}: {error}"]) from None
    return beam, options.PipelineOptions([f"--runner={runner}", *shlex.split(flags)])


def _notes(notes: Path, code: str, what: str) -> Iterator[dict[str, Any]]:
    """What workers noted about a language."""
    for path in sorted((notes / code).glob(f"{what}*.json")):
        yield json.loads(path.read_text())


def _cleaned(notes: Path, code: str, surveyed: Surveyed, shards: dict[str, int]) -> Cleaned:
    parts = list(_notes(notes, code, "part"))
    faults = [fault for part in parts for fault in part["faults"]]
    if faults:
        raise InputError(faults)
    (held,) = _notes(notes, code, "held")
    return Cleaned(
        code=code,
        inputs=surveyed.inputs[code],
        read=sum(part["read"] for part in parts),
        removed=dict(sorted(_summed(part["removed"] for part in parts).items())),
        repaired=dict(sorted(_summed(part["repaired"] for part in parts).items())),
        drawn=held["drawn"],
        cleaned=sum(part["cleaned"] for part in parts),
        shards=shards[code],
        held=held["given"],
    )


def _summed(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return total


def _entry(notes: Path, cleaned: Cleaned, output: Path) -> LanguageEntry:
    """A language's part of the manifest; shards that no row came to are written empty."""
    code, count = cleaned.code, cleaned.shards
    by_number = {note["number"]: note for note in _notes(notes, code, "shard")}
    shards, removed, moved = [], Counter(cleaned.removed), 0
    for number in range(count):
        note = by_number.get(number)
        if note is None:
            shards.append(write_shard(output, shard_name(code, "train", number, count), []))
            continue
        shards.append(shard_entry(note["shard"]))
        removed.update(note["removed"])
        moved += note["drawn"]
    (held,) = _notes(notes, code, "held")
    splits = {"train": split_entry(shards)} if count else {}
    splits |= {name: split_entry([shard_entry(s)]) for name, s in held["splits"].items()}
    entry = language_entry(cleaned, splits, removed)
    check_counts(entry, moved, sum(cleaned.drawn.values()))
    return entry
