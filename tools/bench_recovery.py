"""What is lost when a run is killed or goes on elsewhere: nothing; and what saving and that cost.

    tools/with_python bench_recovery.py [--sections kills,start,saving,topologies] [--kills N]

Prints tables; the last line is one JSON object.
  kills       a small run of the sample text (102 languages mixed, packed, shuffled; dropout, a
              random second expert, four virtual devices) trains once without a stop. Then runs are
              killed (kill -9) at random moments, while they start, train and save, and started
              again until they are done. Each step of each start is compared with the
              uninterrupted run's to the last bit, and so are the last parameters, the optimizer's
              state and the names of all examples that the run at its end was trained on.
  start       the quickstart's run: seconds from a kill to the first new step, and what is compiled
              again. Needs a quiet machine.
  saving      bench_recovery_saving.py: what a save costs a step, the size of a checkpoint, the
              memory that restoring takes.
  topologies  bench_recovery_topologies.py: saved on some devices and processes, restored on others.
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
from typing import Any

import bench_sections
import environment

SECTIONS = ("kills", "start", "saving", "topologies")


def main(arguments: list[str] | None = None) -> None:
    """Runs what was asked for, prints what was found, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    os.environ["JAX_PLATFORMS"] = "cpu"
    found: dict[str, Any] = {}
    for section in options.sections:
        print(f"\n{section}", flush=True)
        with tempfile.TemporaryDirectory(prefix="bench-recovery-") as folder:
            found[section] = _measure(section, pathlib.Path(folder), options)
    print(json.dumps(found))


def _measure(section: str, folder: pathlib.Path, options: argparse.Namespace) -> Any:
    if section == "kills":
        import bench_recovery_kills

        return bench_recovery_kills.kills(
            folder,
            count=options.kills,
            steps=options.steps,
            seed=options.seed,
            longest=options.longest,
        )
    if section == "start":
        import bench_recovery_start

        return bench_recovery_start.measure(folder)
    return _alone(f"bench_recovery_{section}.py")


def _alone(name: str) -> Any:
    """The JSON of a tool's last line; it has devices of its own, so it is a process of its own."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name(name))]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(last, end="", flush=True)
            last = line
    if process.returncode:
        print(last, end="")
        sys.exit(f"bench_recovery: {name} ended with {process.returncode}")
    return json.loads(last)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_recovery.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    bench_sections.add(parser, SECTIONS)
    add("--kills", type=int, default=50, metavar="N", help="default 50")
    add("--steps", type=int, default=100, metavar="N", help="of each run that is killed")
    add("--seed", type=int, default=0, metavar="N", help="of the moments")
    add("--longest", type=float, default=2.0, metavar="S", help="most seconds from step to kill")
    return parser


if __name__ == "__main__":
    main()
