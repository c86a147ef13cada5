"""Writes tools/constraints.txt: a `name==version` line for everything that the tools may install.

And tools/constraints-beam.txt, the same for `gshard-m4[beam,parquet]` in an environment of its own.

Run it after a dependency changes. Pinned versions stay unless named with --upgrade. Needs uv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import environment

_EXTRAS = {"gshard-train": "[tpu]", "gshard-m4": "[parquet,seqio]"}


def main() -> None:
    """Resolves the four packages, their extras and the test tools together."""
    parser = argparse.ArgumentParser(prog="tools/pin_constraints.py", description=__doc__)
    parser.add_argument(
        "--upgrade", action="append", default=[], metavar="NAME", help="take its newest"
    )
    upgraded = parser.parse_args().upgrade
    uv = environment.find_uv()
    if uv is None:
        sys.exit("tools/pin_constraints.py: needs uv on PATH; `pip install uv` brings it")
    everything = [f"./packages/{name}{_EXTRAS.get(name, '')}" for name in environment.PACKAGES]
    for path, packages in (
        (environment.CONSTRAINTS, everything),
        (environment.BEAM_CONSTRAINTS, ["./packages/gshard-m4[beam,parquet]"]),
    ):
        pinned = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in pinned if line.partition("==")[0] not in upgraded]
        path.write_text("".join(f"{line}\n" for line in resolve(uv, packages, kept)))


def resolve(uv: str, packages: list[str], kept: list[str]) -> list[str]:
    """`name==version` for every distribution, the same on each platform and supported Python.

    Args:
      uv: the program.
      packages: what is installed, with extras, beside the test tools.
      kept: pins that must hold.
    """
    command = [uv, "pip", "compile", "-", "--universal", "--python-version", "3.11"]
    command += ["--no-header", "--no-annotate", "--quiet"]
    for name in environment.PACKAGES:
        command += ["--no-emit-package", name]
    tools = environment.REQUIREMENTS.read_text().splitlines()
    done = subprocess.run(
        command,
        input="\n".join(packages + tools + kept),
        capture_output=True,
        text=True,
        cwd=environment.ROOT,
        check=False,
    )
    if done.returncode:
        sys.exit(f"tools/pin_constraints.py: {done.stderr.strip()}")
    # a pin for another platform does no harm here, so the conditions are left out
    lines = [line.partition(" ;")[0].strip() for line in done.stdout.splitlines()]
    names = [line.partition("==")[0] for line in lines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        sys.exit(f"tools/pin_constraints.py: two versions of {', '.join(twice)}; pin one of them")
    return lines


if __name__ == "__main__":
    main()
