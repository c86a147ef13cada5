"""From a fresh clone to a trained translation model and its scores, through the real programs.

Three commands are shown and run: gshard_train.train, gshard_train.infer and gshard-m4 evaluate.
Each can be repeated by hand from the folder that this was started in.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import shutil
import sys
import time

import commands
import environment

_DESCRIPTION = """\
Trains a small sparsely gated translation model, about 100 languages into English, on the text that
ships in gshard-m4 and over eight virtual CPU devices; translates held-out phrases; scores them for
each language. Makes .venv in the checkout if it is not there. Needs Python 3.11 to 3.13 and pip;
uv is used if there is one. Every command is shown before it runs, so that you can repeat it.
"""
_EXAMPLES = """\
examples:
  tools/quickstart                     the whole run; once more: goes on, or says that it is done
  tools/quickstart --minutes 30        trains longer, for better translations
  tools/quickstart --model_dir /tmp/m  keeps checkpoints, translations and report there

Ctrl-C stops it and leaves a checkpoint behind; the same command then goes on from it.
"""
_GIN_FILE = "gshard_m4/configs/quickstart.gin"
# libtpu, where it is installed, would be asked first and prints alarming lines without a TPU
_VARIABLES = {"JAX_PLATFORMS": "cpu"}


@dataclasses.dataclass(frozen=True)
class Stage:
    """One of the programs that make up the run."""

    title: str
    command: list[str]


def main() -> None:
    """Installs what is missing, runs the stages, says what they took and where the report is."""
    options = _parser().parse_args()
    try:
        start = time.monotonic()
        python = options.python or environment.ensure()
        if options.python is None:
            print(f"environment ready after {commands.duration(time.monotonic() - start)}")
        outcomes = _run_all(stages(python, options))
    except (environment.Refusal, OSError) as refusal:
        sys.exit(f"tools/quickstart: {refusal}")
    except KeyboardInterrupt:
        print("\ntools/quickstart: stopped; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
    _print_costs(outcomes)
    print(f"report: {_near(options.model_dir / 'report' / 'report.html')}")


def stages(python: pathlib.Path, options: argparse.Namespace) -> list[Stage]:
    """The programs with their arguments, paths as short as the current folder allows.

    Args:
      python: interpreter of the environment that holds the four packages.
      options: the command line's; `model_dir`, `minutes` and `steps` are read.
    """
    model_dir = _near(options.model_dir)
    gin = [f"--gin_file={_GIN_FILE}", f"--gin.MODEL_DIR={model_dir!r}"]
    length = []
    if options.minutes is not None:
        length = [f"--gin.TRAIN_MINUTES={options.minutes:g}"]
    elif options.steps is not None:
        length = [f"--gin.TRAIN_STEPS={options.steps}"]
    run = [_near(python), "-m"]
    evaluate = [_near(python.parent / "gshard-m4"), "evaluate"]
    folders = [f"--translations={model_dir}/translations", f"--output={model_dir}/report"]
    return [
        Stage("training", [*run, "gshard_train.train", *gin, *length]),
        Stage("translating", [*run, "gshard_train.infer", *gin]),
        Stage("scoring", [*evaluate, *folders]),
    ]


def _run_all(todo: list[Stage]) -> dict[str, commands.Outcome]:
    outcomes = {}
    for stage in todo:
        variables = {} if stage.title == "scoring" else _VARIABLES
        print(f"\n$ {commands.shown(stage.command, variables)}", flush=True)
        outcomes[stage.title] = commands.run(stage.command, environment=variables)
        _check(stage.title, outcomes[stage.title])
    return outcomes


def _check(title: str, outcome: commands.Outcome) -> None:
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.status and shutil.disk_usage(environment.ROOT).free < 100e6:
        raise environment.Refusal(f"{title} failed and the disk is full; make room, run this again")
    if outcome.status:
        raise environment.Refusal(
            f"{title} failed (exit status {outcome.status}); its reason stands above, and the"
            " command after the last $ repeats it alone"
        )


def _print_costs(outcomes: dict[str, commands.Outcome]) -> None:
    print(f"\n{'':12}{'time':>12}{'peak memory':>14}")
    for title, outcome in outcomes.items():
        _print_cost(title, outcome.seconds, outcome.peak_bytes)
    total = sum(outcome.seconds for outcome in outcomes.values())
    _print_cost("together", total, max(outcome.peak_bytes for outcome in outcomes.values()))


def _print_cost(title: str, seconds: float, peak_bytes: int) -> None:
    print(f"{title:12}{commands.duration(seconds):>12}{peak_bytes / 2**30:>10.2f} GiB")


def _near(path: pathlib.Path) -> str:
    """The path from the current folder if it lies below it, otherwise from the root."""
    # not resolve(): .venv/bin/python is a link, and what it points to has no packages
    absolute = pathlib.Path(os.path.abspath(path))
    here = pathlib.Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/quickstart",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=_positive, metavar="N", help="train for N minutes")
    length.add_argument("--steps", type=int, metavar="N", help="train for N steps")
    parser.add_argument(
        "--model_dir",
        type=pathlib.Path,
        metavar="DIR",
        default=environment.ROOT / "quickstart",
        help="where everything is written (default: quickstart/ in the checkout)",
    )
    parser.add_argument(
        "--python",
        type=pathlib.Path,
        metavar="PYTHON",
        help="use this interpreter's environment as it is and install nothing",
    )
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    main()
