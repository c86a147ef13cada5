"""A search from gin files to a table, and to a gin file of the fastest layout that fits."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
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
from gshard_train.planning.question import Others, other_layouts, own_layout, space_of
from gshard_train.planning.row import Candidate, Row
from gshard_train.planning.search import Found, Limits, Search, rank
from gshard_train.precompiling.advice import Compiles
from gshard_train.precompiling.compiler import Compiler
from gshard_train.precompiling.configuration import configured
from gshard_train.precompiling.job import Job

CompilerOf = Callable[..., Compiler]
_FIRST_ONES = 10


class Question(NamedTuple):
    """What is searched: `own` is there at once, the others are checked meanwhile."""

    own: Candidate | None
    checking: Future[Others]
    machine: Machine
    progress: SearchProgress

    def wait(self) -> list[Candidate]:
        """The other layouts, once they were checked."""
        if not self.checking.done():
            self.progress.checking()
        return self.checking.result().candidates

    @property
    def refused(self) -> Mapping[str, int]:
        """How many layouts the checks refused, for which reason; those that were checked."""
        return self.checking.result().refused if self.checking.done() else {}

    @property
    def least_bytes(self) -> int:
        """The smallest floor of memory; 0 where there is none."""
        others = self.checking.result().candidates if self.checking.done() else []
        own = [self.own] if self.own else []
        return min((one.floor.bytes for one in [*own, *others]), default=0)


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
    with (
        progress,
        ThreadPoolExecutor(1) as aside,
        compiler_of(on_progress=progress.compiling) as compiler,
    ):
        question = _question(job, experiment, compiler, aside, options, progress)
        if options.dry_run:
            print(_first_ones(question))
            return None
        limits = Limits(
            seconds=options.time_limit - (time.monotonic() - began),
            candidates=options.candidates,
            device_bytes=question.machine.device_bytes,
        )
        search = Search(question.own, question.wait, limits, on_row=progress.row)
        found = search.run(_compile(job, compiler, kept, options.compile_limit, progress))
        progress.close()
        _tell(job, found, question, options)
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


def _question(
    job: Job,
    experiment: Experiment,
    compiler: Compiler,
    aside: ThreadPoolExecutor,
    options: Options,
    progress: SearchProgress,
) -> Question:
    """The own layout, which the compiler may have at once, while the others are checked aside."""
    experiment = job.layout.applied(experiment)
    making = aside.submit(Floors, experiment)
    described = compiler.describe(job)
    if described.fault is not None:
        progress.say("the gin files' own layout is refused, others are searched; to mend it:")
        for line in described.fault.message.splitlines():
            progress.say(f"  {line}")
    machine = machine_of(job, described)
    space = space_of(job, described, machine, options.vary)
    floors = making.result()
    own = own_layout(job, experiment, described, floors, machine)
    checking = aside.submit(other_layouts, job, experiment, space, floors, machine)
    return Question(own, checking, machine, progress)


def _tell(job: Job, found: Found, question: Question, options: Options) -> None:
    """Prints what was found, and writes the page."""
    said = conclusion.conclusion(found, question.least_bytes, options)
    print(*filter(None, (table.report(found, question.refused), said)), sep="\n")
    if options.html:
        write_beside(options.html, page.page(job, found, question.refused, said))


def _first_ones(question: Question) -> str:
    guess, room = Guess([]), question.machine.device_bytes
    others = sorted(question.wait(), key=lambda one: rank(one, guess, room))
    own = [question.own] if question.own else []
    shown = [*own, *others[:_FIRST_ONES]]
    return table.first_ones(shown, len(own) + len(others), question.refused)


def _compile(
    job: Job, compiler: Compiles, kept: Kept, longest: float, progress: SearchProgress
) -> Callable[[Candidate, float], Row | None]:
    """Compiles candidates, or finds what an earlier search made of them."""

    def compiled(candidate: Candidate, seconds_left: float) -> Row | None:
        asked = dataclasses.replace(job, layout=candidate.layout)
        if (found := kept.result(asked)) is not None:
            return Row(candidate=candidate, result=found, kept=True)
        if kept.is_outdated(asked):
            progress.once("results kept by other sources or another compiler are not taken")
        limit = min(seconds_left, longest)
        result = compiler.compile(asked, timeout_seconds=limit)
        if result.fault and result.fault.kind == "timed out" and limit == seconds_left:
            return None
        try:
            kept.keep(result)
        except OSError as error:
            progress.once(f"results are not kept: {error}")
        return Row(candidate=candidate, result=result)

    return compiled
