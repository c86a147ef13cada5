"""The story of `gshard-m4 prepare`: flags to a plan, the plan to files, and what is printed."""

import argparse
import re
import sys
from pathlib import Path

from gshard_m4.input_error import InputError
from gshard_m4.preparing import report
from gshard_m4.preparing.cleaning import Cleaning
from gshard_m4.preparing.keep_out import kept_out
from gshard_m4.preparing.pipeline import Prepared, prepare
from gshard_m4.preparing.plan import AUTO, DEBIAN, Plan, Source, plan
from gshard_m4.preparing.processes import default_processes
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.state import Work, check_output
from gshard_m4.preparing.surveying import survey

_MOST_LEFT_OUT = 12


def run(options: argparse.Namespace, command_line: str) -> int:
    """Prepares what the flags of `cli.prepare` say; the exit code."""
    try:
        return _run(options, command_line)
    except KeyboardInterrupt:
        print("ended; the same command goes on where it was", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, command_line: str) -> int:
    settings = settings_of(options)
    processes = options.processes or default_processes()
    keeping = kept_out(options.keep_out)
    name = options.corpus or _name_of(options.output)
    check_output(
        options.output, settings.flat() | {"keep_out": keeping.identity}, restart=options.restart
    )
    found = plan(
        sources_of(options, processes),
        languages=options.languages,
        any_language=options.any_language,
        skip_unknown=options.skip_unknown,
        swapped=options.swapped,
    )
    surveyed = survey(found, settings, processes=processes, quiet=options.quiet)
    if empty := [str(file) for file in found.files if not surveyed.files[file].lines]:
        raise InputError([f"{file} is empty; download it again, or take it out" for file in empty])
    if options.dry_run:
        print("\n".join(report.plan_table(surveyed.rows, found.languages)))
        print(
            "\n".join([*_left_out(found), *found.joined, f"nothing is written to {options.output}"])
        )
        return 0
    how = {"kept_out": keeping, "command": command_line, "name": name}
    with Work(options.output, restart=options.restart) as work:
        if options.runner:
            from gshard_m4.preparing.beam import prepare as prepare_on_beam

            beam = {"runner": options.runner, "beam_options": options.beam_options}
            done = prepare_on_beam(found, surveyed, settings, work, **how, **beam)
        else:
            here = {"processes": processes, "quiet": options.quiet}
            done = prepare(found, surveyed, settings, work, **how, **here)
        _finish(done, found, work)
    return 0


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that flags say."""
    return Settings(
        cleaning=Cleaning(max_characters=options.max_characters, max_ratio=options.max_ratio),
        validation_size=options.validation_size,
        test_size=options.test_size,
        min_words=options.min_words,
        across_languages=options.english_elsewhere == "remove",
        clean_held_out=options.clean_held_out,
    )


def sources_of(options: argparse.Namespace, processes: int) -> list[Source]:
    """The sources that flags say; Debian's packages are fetched first."""
    inputs = options.input or [options.output.with_name(f"{options.output.name}.debian")]
    kinds = options.source or [AUTO] * len(inputs)
    licences = options.licence or [""] * len(inputs)
    found = []
    for path, kind, licence in zip(inputs, kinds, licences, strict=True):
        if kind == DEBIAN and options.dry_run:
            raise InputError(["--dry-run cannot tell of debian before it is downloaded"])
        if kind == DEBIAN:
            path = _fetch_debian(path, options, processes)
        found.append(Source(path, kind, licence))
    return found


def _fetch_debian(work: Path, options: argparse.Namespace, processes: int) -> Path:
    from gshard_m4 import debian

    return debian.fetch(
        work,
        languages=options.languages or None,
        any_language=options.any_language,
        processes=processes,
        progress=not options.quiet,
    )


def _name_of(output: Path) -> str:
    name = re.sub("[^a-z0-9_]+", "_", output.resolve().name.casefold()).strip("_")
    if not name:
        raise InputError([f"--output={output} gives no name for the corpus; give --name"])
    return name


def _finish(done: Prepared, found: Plan, work: Work) -> None:
    """Puts shards, report and manifest in place, removes the unfinished state, prints the table."""
    if not done.was_there:
        if faults := report.faults(done.manifest):
            raise InputError(faults)
        text = report.to_json(done.manifest, done.cleaned, found.left_out)
        work.publish(done.manifest, {report.REPORT: text})
    work.end()
    print("\n".join(report.table(done.manifest)))
    notes = [*report.sets(done.cleaned), *report.warnings(done.manifest)]
    for line in [*_left_out(found), *found.joined, *notes]:
        print(line)
    state = "is there already, of the same input and settings" if done.was_there else "is prepared"
    print(f"{work.output} {state}")


def _left_out(found: Plan) -> list[str]:
    shown = [f"left out: {line}" for line in found.left_out[:_MOST_LEFT_OUT]]
    more = len(found.left_out) - len(shown)
    return [*shown, *([f"left out: {more} more, in {report.REPORT}"] if more > 0 else [])]
