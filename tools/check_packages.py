"""Proves that each package can be released: built, installed alone, imported and tested by itself.

    tools/with_python check_packages.py [PACKAGE ...]

For each package: sdist and wheel build into dist/; the wheel holds its data, settings and licences;
in a new environment it installs with its siblings from dist/, brings nothing that it promises to
do without, `pip check` is content, every module imports, every console script starts, and its own
tests pass from an empty folder. A sibling outside the declared range must be refused.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import tempfile
import time

import commands
import distributions
import environment
import isolation

# what installing a package alone must not bring
ABSENT = {
    "gshard-annotate": {"flax", "gin-config", "seqio", "tensorflow"},
    "gshard-moe": {"gin-config", "seqio", "tensorflow"},
    "gshard-train": set(),
    "gshard-m4": {"flax", "gin-config", "jax", "seqio", "tensorflow"},
}


@dataclasses.dataclass(frozen=True)
class Extra:
    """Extras that are installed together, and the modules that say so where they are missing."""

    name: str
    modules: frozenset[str]
    constraints: pathlib.Path = environment.CONSTRAINTS


_SEQIO = {"gshard_m4.tasks", "gshard_m4.tasks.registry", "gshard_m4.tasks.sources"}
EXTRAS = {
    "gshard-m4": (
        Extra("seqio,parquet", frozenset({*_SEQIO, "gshard_m4.sample.tasks"})),
        Extra(
            "beam,parquet",
            frozenset({"gshard_m4.preparing.beam_steps"}),
            environment.BEAM_CONSTRAINTS,
        ),
    )
}
_NONE = Extra("", frozenset())
_TITLES = ("package", "version", "wheel", "sdist", "installs", "modules", "own tests", "time")
_ROW = "{:22} {:8} {:>9} {:>9} {:>9} {:>8}  {:30} {:>12}"


@dataclasses.dataclass
class Result:
    """What was found out about one package in one environment."""

    title: str
    package: distributions.Package
    installs: int = 0
    modules: str = ""
    tests: str = ""
    seconds: float = 0.0
    faults: list[str] = dataclasses.field(default_factory=list)


def main() -> None:
    """Checks the packages one after the other, then prints a table and one closing line."""
    parser = argparse.ArgumentParser(
        prog="tools/check_packages.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="by default all four")
    asked = parser.parse_args().packages
    if unknown := sorted(set(asked) - set(environment.PACKAGES)):
        known = ", ".join(environment.PACKAGES)
        parser.error(f"unknown package {', '.join(unknown)}; there are {known}")
    start = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="gshard-check-") as place:
            results, refusals = _check(asked or environment.PACKAGES, pathlib.Path(place))
    except (environment.Refusal, OSError) as refusal:
        sys.exit(f"tools/check_packages.py: {refusal}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(_print(results, refusals, time.monotonic() - start))


def _check(
    names: list[str] | tuple[str, ...], place: pathlib.Path
) -> tuple[list[Result], dict[str, str]]:
    uv = environment.find_uv()
    if uv is None:
        raise environment.Refusal("needs uv on PATH or in .venv; `tools/test` puts it into .venv")
    print("building sdists and wheels into dist/", flush=True)
    built = {name: distributions.build(name, uv) for name in environment.PACKAGES}
    results = []
    for name in names:
        for extra in (_NONE, *EXTRAS.get(name, ())):
            folder = place / f"{name}-{extra.name}"
            alone = isolation.Isolated(built[name], folder, uv, extra.constraints)
            results.append(_check_one(alone, extra.name))
            _print_progress(results[-1])
    print("offering siblings from outside the declared range", flush=True)
    doctored = distributions.build_doctored("gshard-annotate", "0.2.0", place / "doctored", uv)
    refusals = {
        f"{name} with {doctored.wheel.name}": isolation.refusal_of(built[name], doctored, place, uv)
        for name in ("gshard-moe", "gshard-train")
        if name in names
    }
    return results, refusals


def _check_one(alone: isolation.Isolated, extra: str) -> Result:
    """Everything about one package in one environment, which is removed afterwards."""
    package = alone.package
    title = f"{package.name}[{extra}]" if extra else package.name
    result = Result(title, package)
    print(f"checking {title}", flush=True)
    start = time.monotonic()
    alone.create(extra)
    present = alone.distributions()
    result.installs = len(present)
    result.faults = alone.check_faults()
    if not extra:
        result.faults += distributions.content_faults(package)
        result.faults += [f"brings {name}" for name in sorted(ABSENT[package.name] & present)]
    result.modules, faults = _import_all(alone, extra)
    result.faults += faults
    alone.add_test_tools()
    result.tests, faults = alone.test()
    result.faults += faults
    result.seconds = time.monotonic() - start
    alone.remove()
    return result


def _import_all(alone: isolation.Isolated, extra: str) -> tuple[str, list[str]]:
    """Modules imported of all, and faults; without its extra a module must name the remedy."""
    count, failed = alone.imports()
    excused = {
        name
        for other in EXTRAS.get(alone.package.name, ())
        for name in other.modules & set(failed)
        if other.name != extra and _remedy(alone.package.name, other) in failed[name]
    }
    faults = [f"{name}: {error}" for name, error in failed.items() if name not in excused]
    return f"{count - len(failed)}/{count}", faults


def _remedy(package: str, extra: Extra) -> str:
    return f"pip install '{package}[{extra.name.partition(',')[0]}]'"


def _print_progress(result: Result) -> None:
    said = "; ".join(result.faults) or "good"
    print(f"  {result.tests} ({commands.duration(result.seconds)}): {said}", flush=True)


def _print(results: list[Result], refusals: dict[str, str], seconds: float) -> int:
    print("\n" + _ROW.format(*_TITLES))
    for result in results:
        sizes = [f"{path.stat().st_size / 1e6:.2f} MB" for path in _files(result.package)]
        cells = (result.title, result.package.version, *sizes, result.installs, result.modules)
        print(_ROW.format(*cells, result.tests, commands.duration(result.seconds)))
    faults = [f"{result.title}: {fault}" for result in results for fault in result.faults]
    for pair, said in refusals.items():
        if "gshard-annotate>=0.1,<0.2" in said:
            print(f"\nrefused, as it must be: {pair}\n  " + said.replace("\n", "\n  "))
        else:
            faults.append(f"{pair} was not refused for the version: {said or 'it installs'}")
    for fault in faults:
        print(f"FAULT {fault}")
    verdict = f"{len(faults)} fault{'s' * (len(faults) > 1)}" if faults else "all good"
    checked = ", ".join(result.title for result in results)
    print(f"\ncheck_packages: {checked}: {verdict} ({commands.duration(seconds)})")
    return 1 if faults else 0


def _files(package: distributions.Package) -> tuple[pathlib.Path, pathlib.Path]:
    return package.wheel, package.sdist


if __name__ == "__main__":
    main()
