"""A search from gin files to a table, and to a gin file of the fastest layout that fits."""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gshard_annotate.inspector.json_form import write_beside
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment
from gshard_train.planning import conclusion, page, table, winner
from gshard_train.planning.floor import Floors
from gshard_train.planning.guess import Guess
from gshard_train.planning.kept import Kept
from gshard_train.planning.machine import Machine, machine_of
from gshard_train.planning.options import Options
from gshard_train.planning.progress import SearchProgress
from gshard_train.planning.row import Candidate, Row
from gshard_train.planning.search import Found, Limits, Search, rank
from gshard_train.planning.space import Space, candidates
from gshard_train.precompiling.advice import Compiles
from gshard_train.precompiling.compiler import Compiler
from gshard_train.precompiling.configuration import configured
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.layout import Layout

CompilerOf = Callable[..., Compiler]
_FIRST_ONES = 10


class Question(NamedTuple):
    """What is searched, once everything about it was checked."""

    own: Candidate | None
    others: list[Candidate]
    refused: Mapping[str, int]
    machine: Machine

    @property
    def least_bytes(self) -> int:
        """The smallest floor of memory."""
        own = [self.own] if self.own else []
        return min((one.floor.bytes for one in [*own, *self.others]), default=0)


def plan(job: Job, options: Options, *, compiler_of: CompilerOf = Compiler) -> Found | None:
    """Searches, prints the table and writes the winner; None for a dry run.

    Args:
      job: the gin files and the machine; its layout is taken for that of the files.
      options: of the search.
      compiler_of: makes the compiler, for tests.

    Raises:
      UserError: with everything that is wrong with flags, gin files or topology.
      KeyboardInterrupt: Ctrl-C came; what was found is printed.
    """
    began = time.monotonic()
    text, experiment = _checked(job, options)
    kept = Kept(options.results, text)
    progress = SearchProgress(options.time_limit, options.candidates)
    with progress, compiler_of(on_progress=progress.compiling) as compiler:
        described = compiler.describe(job)
        question = _question(job, experiment, described, options)
        if described.fault is not None:
            progress.say(f"the gin files' own layout is refused: {described.fault.message}")
        if options.dry_run:
            print(_first_ones(question))
            return None
        limits = Limits(
            seconds=options.time_limit - (time.monotonic() - began),
            candidates=options.candidates,
            device_bytes=question.machine.device_bytes,
        )
        search = Search(question.own, question.others, limits, on_row=progress.row)
        found = search.run(_compile(job, compiler, kept, options.compile_limit))
        progress.close()
        said = conclusion.conclusion(found, question.least_bytes, options)
        print(table.report(found, question.refused), said, sep="\n")
        if options.html:
            write_beside(options.html, page.page(job, found, question.refused, said))
        if found.best is not None and options.out:
            winner.write(options.out, job, found.best, compiler.describe)
            given = " ".join(f"--gin_file={file}" for file in job.gin_files)
            print(f"{options.out} has it: give --gin_file={options.out} in place of {given}")
    if found.ended == "interrupted":
        raise KeyboardInterrupt(f"interrupted; the same command goes on from {options.results}")
    return found


def _checked(job: Job, options: Options) -> tuple[str, Experiment]:
    """The effective configuration, and the experiment that it describes.

    Raises:
      UserError: with the faults of flags and gin files together.
    """
    faults = list(options.faults())
    if options.out and not options.dry_run:
        faults += winner.place_faults(options.out)
    try:
        found = configured(job)
    except UserError as error:
        raise UserError(*faults, *error.faults) from error
    if faults:
        raise UserError(*faults)
    return found.text, found.experiment


def _question(job: Job, experiment: Experiment, described: Result, options: Options) -> Question:
    machine = machine_of(job, described)
    experiment = job.layout.applied(experiment)
    facts, vary = described.facts, options.vary
    if facts is None and "mesh" not in vary:
        raise UserError(
            *(described.fault.message if described.fault else "").split("\n"),
            "so there is no mesh to begin with, and --vary lacks mesh; mend it, or add mesh",
        )
    space = Space(
        num_devices=machine.num_devices,
        num_slices=job.num_slices,
        vary=vary,
        own_mesh=facts.mesh if facts else None,
    )
    found = candidates(experiment, space)
    floors = Floors(experiment, machine.chip)
    refused, others = collections.Counter(found.refused), []
    for layout, applied in found.items():
        mesh = layout.mesh or space.own_mesh or {}
        try:
            floor = floors.of(applied, mesh)
        except ValueError:
            refused["a parameter cannot be divided"] += 1
            continue
        layout = _over(job.layout, layout)
        others.append(Candidate(layout=layout, experiment=applied, mesh=mesh, floor=floor))
    own = None
    if facts is not None:
        floor = floors.of(experiment, facts.mesh)
        own = Candidate(
            layout=job.layout, experiment=experiment, mesh=facts.mesh, floor=floor, own=True
        )
    return Question(own, others, refused, machine)


def _first_ones(question: Question) -> str:
    guess, room = Guess([]), question.machine.device_bytes
    others = sorted(question.others, key=lambda one: rank(one, guess, room))
    own = [question.own] if question.own else []
    shown = [*own, *others[:_FIRST_ONES]]
    return table.first_ones(shown, len(own) + len(others), question.refused)


def _over(own: Layout, layout: Layout) -> Layout:
    """A layout with what it leaves open as the other has it."""
    given = {field.name: getattr(layout, field.name) for field in dataclasses.fields(Layout)}
    return dataclasses.replace(own, **{n: each for n, each in given.items() if each is not None})


def _compile(
    job: Job, compiler: Compiles, kept: Kept, longest: float
) -> Callable[[Candidate, float], Row | None]:
    """Compiles candidates, or finds what an earlier search made of them."""

    def compiled(candidate: Candidate, seconds_left: float) -> Row | None:
        asked = dataclasses.replace(job, layout=candidate.layout)
        if (found := kept.result(asked)) is not None:
            return Row(candidate=candidate, result=found, kept=True)
        limit = min(seconds_left, longest)
        result = compiler.compile(asked, timeout_seconds=limit)
        if result.fault and result.fault.kind == "timed out" and limit == seconds_left:
            return None
        kept.keep(result)
        return Row(candidate=candidate, result=result)

    return compiled
