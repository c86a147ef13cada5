"""Formatting, lint, types and tests in one command, with everything they need installed first.

Stops at the first step that fails; the closing lines say which steps passed and how to go on.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import commands
import environment

_DESCRIPTION = """\
Installs what the tests need (Python packages into .venv; Chromium through apt-get, where missing),
then runs ruff format, ruff check, pyright and pytest. Arguments not listed here go to pytest.
"""
_EXAMPLES = """\
examples:
  tools/test                               everything, as CI does
  tools/test --fast                        without the tests marked slow
  tools/test packages/gshard-moe -k top2   the checks, then some of the tests
"""
# Debian's names; the report's page is opened in a real browser
_BROWSER = {"chromium": "chromium", "chromedriver": "chromium-driver"}


def main() -> None:
    """Runs the steps and prints what came of each."""
    options, pytest_arguments = _parser().parse_known_args()
    python = options.python and pathlib.Path(os.path.abspath(options.python))
    os.chdir(environment.ROOT)
    try:
        python = python or environment.ensure(development=True)
        ensure_browser()
        failed = run_steps(steps(python, options.fast, pytest_arguments))
    except (environment.Refusal, OSError) as refusal:
        sys.exit(f"tools/test: {refusal}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(failed)


def steps(
    python: pathlib.Path, fast: bool, pytest_arguments: list[str]
) -> list[tuple[str, list[str], str]]:
    """Name, command and remedy of each step.

    Args:
      python: interpreter of the environment that holds the packages and their test tools.
      fast: leave out the tests marked slow.
      pytest_arguments: passed to pytest as they are.
    """
    run = [os.path.relpath(python), "-m"]
    slow = ["-m", "not slow"] if fast else []
    # Some tests asked for are few: starting more processes would take longer than it saves.
    # In the order of testpaths: xdist would put files of few tests last, which are the longest.
    order = ["--dist", "loadfile", "--no-loadscope-reorder"]
    spread = [] if pytest_arguments else ["-n", str(_processes()), *order]
    write = commands.shown([*run, "ruff", "format"])
    mend = commands.shown([*run, "ruff", "check", "--fix"])
    return [
        ("format", [*run, "ruff", "format", "--check"], f"`{write}` writes it so"),
        ("lint", [*run, "ruff", "check"], f"`{mend}` mends what can be mended"),
        ("types", [*run, "pyright", "--pythonpath", run[0]], "each line above names a place"),
        (
            "tests",
            [*run, "pytest", *spread, *slow, *pytest_arguments],
            "the summary above names each test",
        ),
    ]


def run_steps(todo: list[tuple[str, list[str], str]]) -> int:
    """Exit status of the first step that failed, 0 if none did."""
    report = []
    status = 0
    for name, command, remedy in todo:
        if status:
            report.append(f"  {name:8} not run")
            continue
        print(f"\n$ {commands.shown(command)}", flush=True)
        outcome = commands.run(command)
        if outcome.interrupted:
            raise KeyboardInterrupt
        status = outcome.status
        verdict = f"failed: {remedy}" if status else "passed"
        report.append(f"  {name:8} {verdict} ({commands.duration(outcome.seconds)})")
    print(f"\ntools/test: {'FAILED' if status else 'all passed'}", *report, sep="\n", flush=True)
    return status


def _processes() -> int:
    """One per processor, as far as memory goes: each takes up to 5 GB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, memory // (5 * 10**9)))


def ensure_browser() -> None:
    """Installs Chromium and its driver where they are missing and that is allowed here."""
    missing = [package for program, package in _BROWSER.items() if shutil.which(program) is None]
    if not missing:
        return
    apt = _apt()
    if apt is None:
        raise environment.Refusal(
            f"the report's page is tested in a browser: install {' and '.join(missing)}"
            " (Debian, Ubuntu: apt-get install chromium chromium-driver) so that `chromium` and"
            " `chromedriver` are on PATH"
        )
    print(f"installing {' and '.join(missing)} with apt-get", flush=True)
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        result = subprocess.run([*apt, "-q", *command], capture_output=True, text=True, check=False)
    if result.returncode:
        said = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        raise environment.Refusal(f"apt-get could not install {' '.join(missing)}: {said[-1]}")


def _apt() -> list[str] | None:
    """apt-get with the right to install, or None."""
    if shutil.which("apt-get") is None:
        return None
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    if os.geteuid() == 0:
        return quiet
    sudo = shutil.which("sudo")
    if (
        sudo
        and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0
    ):
        return [sudo, "-n", *quiet]
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/test",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--fast", action="store_true", help="leave out the tests marked slow")
    parser.add_argument(
        "--python",
        type=pathlib.Path,
        metavar="PYTHON",
        help="use this interpreter's environment as it is and install no Python packages",
    )
    return parser


if __name__ == "__main__":
    main()
