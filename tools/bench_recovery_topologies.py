"""A checkpoint on other devices and processes than those that saved it: the same run goes on.

    tools/with_python bench_recovery_topologies.py [--sections examples,processes,meshes]
        [--every N]

Prints tables; the last line is one JSON object. A small run of the sample text, packed, with
dropout and a random second expert, in float32 (Adam) and in float64 (Adafactor).
  examples   what 1, 2 and 4 processes are fed next from a checkpoint: 200 examples, by name and by
             token.
  processes  saved with two processes of four devices, restored with one of eight and four of two.
  meshes     saved on every split of eight devices into data, expert and model, restored on every
             split of 8, 4, 2 and 1, and from 4, 2 and 1 back on 8: every array bit for bit, then
             a step, and for each mesh 20 steps.
Distances are the largest difference as a share of the largest entry: of loss and gradient norm,
and for the first step also of every parameter and moment after it. Routing is discontinuous: in
float32 rounding alone sends a token elsewhere sooner or later, and 20 steps are told only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import bench_sections
import environment

SECTIONS = ("examples", "processes", "meshes")
DTYPES = ("float32", "float64")
FIRST_STEP = 1e-5  # in float32; in float64 it has to be as near as the twenty steps
TWENTY_STEPS = 1e-9  # in float64


def main(arguments: list[str] | None = None) -> None:
    """Saves and restores, prints what was found, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    os.environ["JAX_PLATFORMS"] = "cpu"
    found: dict[str, Any] = {}
    for section in options.sections:
        began = time.monotonic()
        found[section] = _MEASURES[section](options)
        print(f"{section}: {time.monotonic() - began:.0f} s\n", flush=True)
    print(json.dumps(found))


def _examples(_: argparse.Namespace) -> dict[str, int]:
    import bench_recovery_processes

    found = bench_recovery_processes.same_examples()
    print(
        f"the next {found['examples']} examples of two processes: {found['differ_with_1']} others "
        f"with one, {found['differ_with_4']} others with four"
    )
    return found


def _processes(_: argparse.Namespace) -> list[dict[str, Any]]:
    import bench_recovery_processes

    print(f"{'':10}processes    first step   20 steps     last arrays")
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-topologies-") as folder:
        for dtype in DTYPES:
            for one in bench_recovery_processes.goes_on(dtype, pathlib.Path(folder)):
                found.append(one)
                print(
                    f"{dtype:10}2 -> {one['restored_with']:<8}{_judged(one)}"
                    f"{one['last_arrays']:.1e}",
                    flush=True,
                )
    return found


def _meshes(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Both precisions at once, each in a process of its own."""
    script = str(pathlib.Path(__file__).with_name("bench_recovery_meshes.py"))
    # Warnings of a feed that is small on purpose, and of compilers on a busy machine.
    with tempfile.TemporaryFile("w+") as said:
        started = [
            subprocess.Popen(
                [sys.executable, script, dtype, str(options.every)],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
            for dtype in DTYPES
        ]
        printed = [process.communicate()[0] for process in started]
        if any(process.returncode for process in started):
            said.seek(0)
            sys.exit(f"bench_recovery_topologies: {script} failed\n{said.read()[-4000:]}")
    found = [json.loads(text.splitlines()[-1]) for text in printed]
    print(f"{'':10}devices   restores   arrays that differ   first step   20 steps")
    for dtype in found:
        for one in dtype["found"]:
            print(
                f"{dtype['dtype']:10}{one['saved_on']} -> {one['restored_on']}"
                f"{one['restores']:>13}{one['tensors_that_differ']:>21}   "
                f"{_judged({**one, 'dtype': dtype['dtype']})}"
            )
        print(f"{'':10}nearest two experts: {dtype['least_distance_of_experts']:.3f}", flush=True)
    return found


def _judged(one: dict[str, Any]) -> str:
    """Both distances, with a mark where one is larger than it may be."""
    exact = one["dtype"] == "float64"
    limits = {"first_step": TWENTY_STEPS if exact else FIRST_STEP}
    limits["twenty_steps"] = TWENTY_STEPS if exact else float("inf")
    return "".join(
        f"{one[name]:.1e}{'!' if one[name] > limit else '':6}" for name, limit in limits.items()
    )


_MEASURES = {"examples": _examples, "processes": _processes, "meshes": _meshes}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_recovery_topologies.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench_sections.add(parser, SECTIONS)
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="only each N-th split of the devices"
    )
    return parser


if __name__ == "__main__":
    main()
