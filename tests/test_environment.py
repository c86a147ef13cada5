"""tools/: what a reader is told when an installation cannot work; commands shown and run."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest

import commands
import environment
import run_tests

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"


def test_an_old_python_is_refused_with_its_version() -> None:
    with pytest.raises(environment.Refusal, match=r"3\.11, 3\.12 or 3\.13, this is 3\.10\.2"):
        environment.check_python((3, 10, 2))


def test_a_python_without_builds_is_refused() -> None:
    with pytest.raises(environment.Refusal, match=r"this is 3\.14\.0"):
        environment.check_python((3, 14, 0))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("error: failed to write\n  cause: No space left on device (os error 28)", "disk is full"),
        ("error: Request failed\n  cause: dns error: Name or service not known", "cannot reach"),
        ("WARNING: Retrying ... NewConnectionError('<pip...>')", "cannot reach the Python package"),
        ("Resolved 3\nerror: jax==9 is unsatisfiable\n", "failed: error: jax==9 is unsatisfiable"),
        ("", "failed: no output"),
    ],
)
def test_a_failed_installation_is_one_line(output: str, expected: str) -> None:
    said = environment.explain(output)
    assert expected in said
    assert "\n" not in said


def test_nothing_but_uv_or_pip_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installers", lambda python: iter(()))
    with pytest.raises(environment.Refusal, match="neither uv nor pip"):
        environment.install(environment.PYTHON, ["six"])


def test_pip_is_tried_after_uv_only_when_the_network_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    def failing(said: str) -> list[str]:
        return [sys.executable, "-c", f"print({said!r}); raise SystemExit(1)"]

    def succeeding(tried: pathlib.Path) -> list[str]:
        return [sys.executable, "-c", f"open({str(tried)!r}, 'w')"]

    tried, log = tmp_path / "tried", tmp_path / "log"
    commands_given = iter([[failing("error: no such version"), succeeding(tried)]])
    monkeypatch.setattr(environment, "installers", lambda python: iter(next(commands_given)))
    with pytest.raises(environment.Refusal, match="no such version"):
        environment.install(environment.PYTHON, [], log=log)
    assert not tried.exists()
    commands_given = iter([[failing("dns error"), succeeding(tried)]])
    environment.install(environment.PYTHON, [], log=log)
    assert tried.exists()
    assert log.read_text() == "error: no such version\ndns error\n"


def test_the_launcher_names_what_it_needs_and_found(tmp_path: pathlib.Path) -> None:
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.10" || exit 1\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", TOOLS / "with_python", "quickstart.py"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        "needs Python 3.11, 3.12 or 3.13, found Python 3.8.10;"
        " install one of them (or uv) so that it is on PATH\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["python", "--gin.MODEL_DIR='/tmp/model'"],
        ["python", "--gin.MODEL_DIR='/tmp/two words'", "a b"],
        ["python", '--gin.MODEL_DIR="/tmp/it\'s $HOME"', "it's", "*", ""],
    ],
)
def test_a_shown_command_reads_back_as_itself(command: list[str]) -> None:
    assert shlex.split(commands.shown(command)) == command


def test_a_gin_string_is_shown_in_the_quotes_that_the_readmes_use() -> None:
    shown = commands.shown(["python", "--gin.MODEL_DIR='/tmp/m'"], {"JAX_PLATFORMS": "cpu"})
    assert shown == "JAX_PLATFORMS=cpu python --gin.MODEL_DIR=\"'/tmp/m'\""


@pytest.mark.parametrize(("seconds", "said"), [(5.4, "5 s"), (127, "2 min 07 s")])
def test_durations(seconds: float, said: str) -> None:
    assert commands.duration(seconds) == said


def test_a_command_is_measured() -> None:
    inner = "block = bytearray(200_000_000); raise SystemExit(3)"
    # From a small process: at its start a child counts the memory of the one that starts it.
    code = (
        f"import sys, commands; o = commands.run([sys.executable, '-c', {inner!r}]); "
        "print(o.status, o.interrupted, 200e6 < o.peak_bytes < 300e6)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=TOOLS, capture_output=True, text=True)
    assert run.stdout == "3 False True\n", run.stderr


@pytest.mark.parametrize(("sent", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_interrupted_command_may_put_its_things_away(sent: signal.Signals, group: bool) -> None:
    child = """
import signal, sys, time
def save(*_):
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, save)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(30)
"""
    parent = f"import sys, commands; print(commands.run([sys.executable, '-c', {child!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        env={**os.environ, "PYTHONPATH": str(TOOLS)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        # a terminal sends Ctrl-C to all of the group, a service manager SIGTERM to the first
        if group:
            os.killpg(process.pid, sent)
        else:
            process.send_signal(sent)
        rest = process.stdout.read()
    assert rest.startswith("saved\n")
    assert "status=130" in rest
    assert "interrupted=True" in rest


def test_a_missing_browser_is_named_where_it_cannot_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_tests.shutil, "which", lambda program: None)
    with pytest.raises(environment.Refusal, match="apt-get install chromium chromium-driver"):
        run_tests.ensure_browser()


def test_a_failed_step_ends_the_tests_and_says_what_was_not_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    good, bad = [sys.executable, "-c", ""], [sys.executable, "-c", "raise SystemExit(4)"]
    status = run_tests.run_steps(
        [("first", good, "-"), ("second", bad, "mend it so"), ("third", good, "-")]
    )
    assert status == 4
    summary = capfd.readouterr().out.partition("tools/test: ")[2]
    assert [line.split(" (")[0].split() for line in summary.splitlines()] == [
        ["FAILED"],
        ["first", "passed"],
        ["second", "failed:", "mend", "it", "so"],
        ["third", "not", "run"],
    ]
