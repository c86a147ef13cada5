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
import tempfile
import time

import commands
import environment
import pace

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
  tools/quickstart --steps 20 --trial --model_dir /tmp/t     a look at every part, in a minute

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
        python = options.python or _ensure_environment()
        if options.minutes is not None:
            options.steps = _steps_for(options.minutes, python, options.model_dir)
        outcomes = {stage.title: run_stage(stage) for stage in stages(python, options)}
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
      options: the command line's; `model_dir`, `steps` and `trial` are read.
    """
    model_dir = _near(options.model_dir)
    splits = ["--gin.SPLITS=('validation',)"] if options.trial else []
    folders = [f"--translations={model_dir}/translations", f"--output={model_dir}/report"]
    script = _near(python.parent / "gshard-m4")
    return [
        _train(python, options.model_dir, options.steps),
        Stage("translating", [*_module(python, "infer"), *_gin(options.model_dir), *splits]),
        Stage("scoring", [script, "evaluate", *folders]),
    ]


def _train(python: pathlib.Path, model_dir: pathlib.Path, steps: int | None) -> Stage:
    length = [] if steps is None else [f"--gin.TRAIN_STEPS={steps}"]
    return Stage("training", [*_module(python, "train"), *_gin(model_dir), *length])


def _module(python: pathlib.Path, name: str) -> list[str]:
    return [_near(python), "-m", f"gshard_train.{name}"]


def _gin(model_dir: pathlib.Path) -> list[str]:
    return [f"--gin_file={_GIN_FILE}", f"--gin.MODEL_DIR={_near(model_dir)!r}"]


def _ensure_environment() -> pathlib.Path:
    start = time.monotonic()
    python = environment.ensure()
    print(f"environment ready after {commands.duration(time.monotonic() - start)}")
    return python


def _steps_for(minutes: float, python: pathlib.Path, model_dir: pathlib.Path) -> int:
    steps = pace.kept_steps(minutes, model_dir)
    if steps is None:
        with tempfile.TemporaryDirectory(prefix="gshard-pace-") as place:
            print("\na short trial, to see how many steps fit into the time:")
            run_stage(_train(python, pathlib.Path(place), pace.TRIAL_STEPS))
            steps = pace.measure(minutes, pathlib.Path(place), model_dir)
    if steps is None:
        raise environment.Refusal("the trial logged no steps; give --steps instead of --minutes")
    print(f"\n{minutes:g} minutes: about {steps:,} steps here")
    return steps


def run_stage(stage: Stage) -> commands.Outcome:
    """Shows and runs one stage; raises KeyboardInterrupt if it was stopped, Refusal if it fails."""
    variables = {} if stage.title == "scoring" else _VARIABLES
    print(f"\n$ {commands.shown(stage.command, variables)}", flush=True)
    outcome = commands.run(stage.command, environment=variables)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.status and shutil.disk_usage(environment.ROOT).free < 100e6:
        raise environment.Refusal(
            f"{stage.title} failed and the disk is full; make room, run this again"
        )
    if outcome.status:
        raise environment.Refusal(
            f"{stage.title} failed (exit status {outcome.status}); its reason stands above, and"
            " the command after the last $ repeats it alone"
        )
    return outcome


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
    length.add_argument("--minutes", type=_positive, metavar="N", help="train for about N minutes")
    length.add_argument("--steps", type=_count, metavar="N", help="train for N steps")
    parser.add_argument(
        "--trial",
        action="store_true",
        help="translate the small validation split only: with few steps, does it all work?",
    )
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


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


if __name__ == "__main__":
    main()
