"""The paper's tables and figures made again, as far as that goes without its machines.

    tools/with_python reproduce_paper.py [--out DIR] [--sections A,B] [--quick]

Compiles every model of Table 1 for the TPU v3 slice that the paper trained it on, which need not be
there, and puts what comes out beside what the paper prints. Writes DIR/paper.html, DIR/paper.md and
DIR/paper.json, and prints the tables. About half an hour on two CPUs, 6 GiB of memory at most; what
was compiled is kept in DIR, so that the same command goes on where it was stopped. `--quick` leaves
out most models and takes minutes.

Sections: parameters (Table 1), memory (Figure 7), compile (its claim), breakdown (Figure 8), growth
(of a step), exchanges (Figure 9), operators (Table 4), cost (Table 3). Needs the TPU compiler,
jax[tpu]; parameters and exchanges do without.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import bench_sections
import environment

SECTIONS = (
    "parameters",
    "memory",
    "compile",
    "breakdown",
    "growth",
    "exchanges",
    "operators",
    "cost",
)
_COMPILED = {"memory", "compile", "breakdown", "growth", "operators", "cost"}
_OPERATOR_CORES = (32, 128, 512, 2048)
_QUICK_CORES = (32, 128, 2048)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the sections asked for; 1 where a program could not be compiled at all."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    # The TPU compiler works in processes of its own.
    os.environ["JAX_PLATFORMS"] = "cpu"
    if _COMPILED & set(options.sections) and importlib.util.find_spec("libtpu") is None:
        sys.exit(
            "reproduce_paper: the TPU compiler (libtpu) is not installed; install it with "
            "pip install 'jax[tpu]', or choose --sections parameters,exchanges"
        )
    try:
        return _make(options)
    except KeyboardInterrupt:
        print(f"\nstopped; {options.out} keeps what was compiled, the same command goes on")
        return 130


def _make(options: argparse.Namespace) -> int:
    import reproduce_paper_page as page
    import reproduce_paper_programs as programs
    from reproduce_paper_tables import markdown

    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"reproduce_paper: --out {options.out} cannot be made: {error.strerror}")
    compiled = programs.Programs(
        options.out / "programs", timeout_seconds=options.timeout, reuse=options.reuse
    )
    found = compiled.all_of(_jobs(options.sections, quick=options.quick))
    sections = [_section(key, found, options) for key in options.sections]
    made = _made(options, found)
    forms = {"made": made, "sections": {one.key: one.form() for one in sections}}
    _write(options.out / "paper.json", json.dumps(forms, indent=1) + "\n")
    _write(options.out / "paper.md", page.markdown_page(sections, made))
    _write(options.out / "paper.html", page.html_page(sections, made))
    print("\n" + "\n".join(map(markdown, sections)), flush=True)
    faults = [one.result.fault for one in found.values() if one.result.fault is not None]
    print(f"{options.out / 'paper.html'}, paper.md, paper.json")
    lacks = any(fault.kind != "too large" for fault in faults)
    return int(lacks or not all(one.rows for one in sections))


def _jobs(sections: Sequence[str], *, quick: bool) -> list[Any]:
    """What is to be compiled for these sections; the claim about compiling first."""
    import reproduce_paper_compiling as compiling
    import reproduce_paper_sizes as sizes
    import reproduce_paper_times as times
    import reproduce_paper_training as training

    of_section: dict[str, Callable[[], dict[Any, Any]]] = {
        "compile": compiling.compile_jobs,
        "breakdown": times.breakdown_jobs,
        "growth": times.breakdown_jobs,
        "memory": sizes.memory_jobs,
        "cost": training.cost_jobs,
    }
    jobs = [job for key, jobs in of_section.items() if key in sections for job in jobs().values()]
    if not quick:
        return jobs
    few = [job for cores, job in compiling.compile_jobs().items() if cores in _QUICK_CORES]
    return [job for job in jobs if job in few]


def _section(key: str, found: Any, options: argparse.Namespace) -> Any:
    import reproduce_paper_compiling as compiling
    import reproduce_paper_scaling as scaling
    import reproduce_paper_sizes as sizes
    import reproduce_paper_times as times
    import reproduce_paper_training as training

    of_programs = {
        "memory": sizes.memory,
        "compile": compiling.compiling,
        "breakdown": times.breakdown,
        "growth": times.growth,
        "cost": training.cost,
    }
    if key in of_programs:
        return of_programs[key](found)
    if key == "operators":
        try:
            return scaling.operators(_operators(options))
        except subprocess.SubprocessError as error:
            return scaling.operators({}, f"The operators could not be compiled: {error}")
    return {"parameters": sizes.parameters, "exchanges": scaling.exchanges}[key]()


def _operators(options: argparse.Namespace) -> dict[str, Any]:
    """Table 4's programs, or what is kept of them."""
    import reproduce_paper_programs as programs
    import reproduce_paper_scaling as scaling

    cores = _OPERATOR_CORES[:2] if options.quick else _OPERATOR_CORES
    path = options.out / "programs" / f"operators-{cores[-1]}.json"
    of = {"sources": scaling.sources(), "versions": programs.versions()}
    try:
        kept = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        kept = {}
    if kept and (options.reuse or {name: kept.get(name) for name in of} == of):
        return kept["found"]
    print("compiling the operators of Table 4", flush=True)
    found = scaling.compiled_operators(cores, timeout_seconds=options.timeout)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, json.dumps({**of, "found": found}) + "\n")
    return found


def _made(options: argparse.Namespace, found: Any) -> dict[str, str]:
    import reproduce_paper_page as page
    import reproduce_paper_programs as programs

    said = {"date": page.today(), "command": _command(options)}
    versions = programs.versions() if found else {}
    said |= {"compiler": ", ".join(f"{name} {one}" for name, one in versions.items())}
    if any(one.sources != programs.sources() for one in found.values()):
        said["of other sources"] = "some programs are of other sources than those here (--reuse)"
    return {name: one for name, one in said.items() if one}


def _command(options: argparse.Namespace) -> str:
    words = ["tools/with_python reproduce_paper.py"]
    if options.sections != SECTIONS:
        words.append(f"--sections {','.join(options.sections)}")
    return " ".join(words + ["--quick"] * options.quick)


def _write(path: pathlib.Path, text: str) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text, "utf-8")
    new.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reproduce_paper", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("paper"), metavar="DIR", help="where to"
    )
    bench_sections.add(parser, SECTIONS)
    parser.add_argument("--quick", action="store_true", help="three models of 36 layers alone")
    parser.add_argument(
        "--timeout", type=_seconds, default=900, metavar="SECONDS", help="for one program"
    )
    parser.add_argument(
        "--reuse", action="store_true", help="take what was compiled of other sources, too"
    )
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text}: give seconds above 0")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
