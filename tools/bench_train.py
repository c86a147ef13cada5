"""What training costs beside the compiled step, with experts beside without, and until it starts.

    tools/with_python bench_train.py [--sections loop,experts,start] [--steps N] [--rounds N]

Prints tables; the last line is one JSON object. The model is the quickstart's, on eight virtual
CPU devices.
  loop     the time of a step in the real training loop over that of the compiled step alone. Both
           take turns, N steps each, inside one run; a report falls into every turn. With a feed
           that gives one batch again and again, and with the quickstart's, which mixes and
           tokenises on the cores that are the devices here.
  experts  a training step with experts over one of a dense model with the same active FLOPs: as
           wide as what a token passes through. At the quickstart's size and at four times its
           width.
  start    seconds until --help, an error in gin text, an unknown parameter, the first step of a
           new run, and the first step of a run that goes on and finds its programs compiled.
           Programs of their own, each with nothing else running here: needs a quiet machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
from typing import Any

import bench_sections
import environment

SECTIONS = ("loop", "experts", "start")
TARGETS = {"loop": 1.03, "experts": 1.3}


def main(arguments: list[str] | None = None) -> None:
    """Measures what was asked for, prints it, and closes with the JSON."""
    options = _parser().parse_args(arguments)
    if importlib.util.find_spec("gshard_train") is None:
        python = environment.ensure(development=True)
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    os.environ["JAX_PLATFORMS"] = "cpu"
    found: dict[str, Any] = {}
    _print_load("start")
    with tempfile.TemporaryDirectory(prefix="bench-train-") as folder:
        if "loop" in options.sections:
            found["loop"] = _loop(pathlib.Path(folder, "loop"), options)
        if "experts" in options.sections:
            found["experts"] = _experts(options)
        if "start" in options.sections:
            found["start"] = _start(pathlib.Path(folder, "start"), options)
    _print_load("end")
    print(json.dumps(found))


def _loop(model_dir: pathlib.Path, options: argparse.Namespace) -> dict[str, float]:
    import bench_train_steps

    found = {}
    print(f"\n{'':28}{'ms a step':>12}{'/bare':>9}   median of {options.rounds} turns")
    for name, reads in (("a feed that takes no time", False), ("the quickstart's feed", True)):
        times = bench_train_steps.loop_and_bare(
            model_dir / str(reads), steps=options.steps, rounds=options.rounds, reads=reads
        )
        ratio = bench_train_steps.median_ratio(times["loop"], times["bare"])
        print(f"{'bare step':28}{1000 * min(times['bare']):>12.1f}{1:>9.3f}")
        print(f"{name:28}{1000 * min(times['loop']):>12.1f}{ratio:>9.3f}", flush=True)
        found["ratio" if reads else "ratio_without_reading"] = round(ratio, 4)
    print(
        f"the loop adds {found['ratio_without_reading'] - 1:.1%} (target "
        f"{TARGETS['loop'] - 1:.0%}), with reading on the same cores {found['ratio'] - 1:.1%}"
    )
    return found


def _experts(options: argparse.Namespace) -> dict[str, Any]:
    import bench_train_steps

    found = {}
    print(f"\n{'':12}{'experts ms':>12}{'dense ms':>10}{'ratio':>8}{'active FLOPs ratio':>20}")
    for width in options.widths:
        times, flops = bench_train_steps.experts_and_dense(width, rounds=options.rounds)
        ratio = bench_train_steps.median_ratio(times["experts"], times["dense"])
        milliseconds = [1000 * min(times[name]) for name in ("experts", "dense")]
        print(
            f"{f'width {width}':12}{milliseconds[0]:>12.1f}{milliseconds[1]:>10.1f}{ratio:>8.2f}"
            f"{flops:>20.3f}"
        )
        found[str(width)] = {"ratio": round(ratio, 3), "flops_ratio": round(flops, 4)}
    print(f"target: {TARGETS['experts']} on CPU")
    return found


def _start(model_dir: pathlib.Path, options: argparse.Namespace) -> dict[str, float]:
    import bench_train_start

    print(f"\n{'':34}{'seconds':>9}{'target':>9}")
    found = {}
    for name, seconds, target in bench_train_start.measure(model_dir, tries=options.tries):
        print(f"{name:34}{seconds:>9.2f}{'' if target is None else f'{target:g}':>9}", flush=True)
        found[name] = round(seconds, 2)
    return found


def _print_load(when: str) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"load average at the {when}: {load} ({os.cpu_count()} CPUs)", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/with_python bench_train.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    bench_sections.add(parser, SECTIONS)
    add("--steps", type=int, default=25, metavar="N", help="of a turn; by default %(default)s")
    add("--rounds", type=int, default=9, metavar="N", help="turns; by default %(default)s")
    add("--tries", type=int, default=3, metavar="N", help="of a short start; the fastest counts")
    add("--widths", type=_widths, default=(64, 256), metavar="M,M", help="by default 64,256")
    return parser


def _widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(map(int, text.split(",")))
    except ValueError:
        widths = ()
    if not widths or any(width < 32 or width % 32 for width in widths):
        raise argparse.ArgumentTypeError(f"{text}: give multiples of 32, such as 64,256")
    return widths


if __name__ == "__main__":
    main()
