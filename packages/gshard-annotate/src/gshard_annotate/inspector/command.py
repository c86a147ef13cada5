"""The command line of the inspector.

What is wrong with the input is one line on standard error and exit code 2; nothing is written then.
"""

import argparse
import dataclasses
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from gshard_annotate.inspector.report import Report

_PROG = "python -m gshard_annotate.inspector"
_DESCRIPTION = """\
Compiles a function for a mesh and shows what the compiler made of its annotations: collectives
that nobody asked for, how each value is split, memory, work and the estimated time of a step.

FUNCTION is module:name (or module:object.method) and is looked for in the current folder and
among the installed packages. Nothing is run: arguments need a shape only. They come from --shapes,
or from --args, which names a tuple, or a function that returns one and is given the mesh if it has
a parameter; what is no tuple is the one argument. A function without parameters needs neither.

Devices are virtual CPUs, as many as the mesh needs, or with --topology those of a TPU that is not
there (needs the package libtpu, and one process at a time).
"""
_EPILOG = """\
examples:
  python -m gshard_annotate.inspector model:forward --mesh data=2,expert=4 --shapes 'f32[8,16]'
  python -m gshard_annotate.inspector model:step --mesh data=2,expert=4 --args example \\
      --chip v3 --html report.html --json report.json
  python -m gshard_annotate.inspector model:step --mesh data=2,expert=16 --args example \\
      --topology v3:4x4
  python -m gshard_annotate.inspector model:step --mesh data=2,expert=4 --args example \\
      --diff report.json --fail-on-surprise

exit codes: 0; 1 with --fail-on-surprise for a surprise that is not accepted (with --diff: and that
the earlier report does not have); 2 for input that cannot be used.
"""


class _Parser(argparse.ArgumentParser):
    """One line for what is wrong, without the usage above it."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(_refuse(f"{message} (--help tells more)"))


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of the command."""
    from gshard_annotate.inspector.target import WrongInputError

    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except WrongInputError as error:
        if options.traceback and error.__cause__:
            traceback.print_exception(error.__cause__)
        more = " (--traceback shows where)" if error.__cause__ and not options.traceback else ""
        return _refuse(f"{error}{more if ' raised ' in str(error) else ''}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROG,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("function", metavar="FUNCTION", help="what to look at, as module:name")
    add("--mesh", required=True, metavar="AXES", help="axes and sizes, as data=2,expert=4")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--shapes", metavar="LIST", help="arguments, as 'f32[8,16] bf16[3,4]'")
    given.add_argument("--args", metavar="NAME", help="arguments, as module:name or name")
    add("--topology", metavar="TPU", help="an absent TPU, as v3:4x4 (32 cores) or v5e:16x16")
    add("--chip", metavar="CHIP", help="chip of the estimates, as v3; default: the topology's")
    add("--html", type=Path, metavar="FILE", help="write the report as a page")
    add("--json", type=Path, metavar="FILE", help="write the report as JSON")
    add("--diff", type=Path, metavar="FILE", help="JSON of an earlier report: print what changed "
        "since, and show it on top of the page")  # fmt: skip
    add("--accept", action="append", default=[], metavar="PATTERN", help="allow surprises with "
        "this in their sentence (* is any text); may be given several times")  # fmt: skip
    add("--fail-on-surprise", action="store_true", help="exit code 1 when there are surprises; "
        "with --diff only when there are new ones, whatever their size")  # fmt: skip
    add("--traceback", action="store_true", help="show where a function raised")
    return parser


def _run(options: argparse.Namespace) -> int:
    for option in ("html", "json"):
        _check_writable(f"--{option}", getattr(options, option))
    _check_accepted(options.accept)
    earlier = _read(options.diff) if options.diff else None
    report = _inspect(options)
    shown, failing = report, bool(report.surprises)
    if earlier is not None:
        from gshard_annotate.inspector.differences import diff

        accepting = earlier.accepting(*options.accept)
        shown = diff(dataclasses.replace(accepting, notes=earlier.notes), report)
        failing = bool(shown.surprises.new)
    print(shown.text())
    # The report itself is what a later --diff reads.
    _write("--json", options.json, report.json)
    _write("--html", options.html, shown.html)
    return 1 if options.fail_on_surprise and failing else 0


def _inspect(options: argparse.Namespace) -> "Report":
    from gshard_annotate.inspector import target

    if options.chip:
        target.check_chip(options.chip)
    axes = target.parse_mesh(options.mesh)
    arguments = target.parse_shapes(options.shapes) if options.shapes is not None else ()
    # JAX fixes the number of devices when the first module asks for them: the mesh comes first.
    if options.topology:
        mesh = target.topology_mesh(axes, options.topology)
    else:
        mesh = target.cpu_mesh(axes)
    function = target.load_function(options.function)
    if options.args:
        module = options.function.partition(":")[0]
        arguments = target.load_arguments(options.args, module, mesh)
    target.check_arguments(options.function, function, arguments)
    return _compiled(options, function, arguments, mesh)


def _compiled(
    options: argparse.Namespace, function: Callable, arguments: tuple, mesh: "Mesh"
) -> "Report":
    from gshard_annotate.inspector.inspecting import inspect
    from gshard_annotate.inspector.target import WrongInputError, said

    try:
        return inspect(function, *arguments, mesh=mesh, chip=options.chip, accept=options.accept)
    except Exception as error:
        raise WrongInputError(f"{options.function} raised {said(error)}") from error


def _read(path: Path) -> "Report":
    from gshard_annotate.inspector.report import Report
    from gshard_annotate.inspector.target import WrongInputError

    try:
        return Report.from_json(path.read_text("utf-8"))
    except OSError as error:
        raise WrongInputError(f"--diff {path}: {error.strerror}") from error
    except ValueError as error:
        message = " ".join(str(error).split()).removeprefix("Report.from_json: ")
        raise WrongInputError(f"--diff {path}: {message}") from error


def _check_accepted(patterns: Sequence[str]) -> None:
    from gshard_annotate.inspector.acceptance import check_patterns
    from gshard_annotate.inspector.target import WrongInputError

    try:
        check_patterns("--accept", patterns)
    except ValueError as error:
        raise WrongInputError(str(error)) from error


def _check_writable(option: str, path: Path | None) -> None:
    from gshard_annotate.inspector.target import WrongInputError

    if path is None:
        return
    if path.is_dir():
        raise WrongInputError(f"{option} {path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise WrongInputError(f"{option} {path}: there is no folder {path.parent}; make it first")


def _write(option: str, path: Path | None, make: Callable[[], str]) -> None:
    from gshard_annotate.inspector.json_form import write_beside
    from gshard_annotate.inspector.target import WrongInputError

    if path is None:
        return
    try:
        write_beside(path, make())
    except OSError as error:
        raise WrongInputError(f"{option} {path}: {error.strerror}") from error
    print(f"written: {path}")


def _refuse(message: str) -> int:
    print(f"{_PROG}: {message}", file=sys.stderr)
    return 2
