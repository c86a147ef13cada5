"""The binaries as programs: what they print, how they end, and how soon."""

import subprocess
import sys
import time

import pytest

WORK = """
def train(*, model_dir, effective_config=""):
    if model_dir == "wrong":
        from gshard_train.errors import UserError
        raise UserError("wrong model_dir", "and another fault")
    if model_dir == "bug":
        raise ValueError("a bug")
    if model_dir == "stop":
        raise KeyboardInterrupt("stopped at step 3")
    import logging
    logging.getLogger("gshard_train.training").info("our line")
    print("TRAINED", model_dir, len(effective_config) > 0)
"""
MAIN = """
import sys
from gshard_train import train
train.main = lambda loaded: loaded.call("binary_fake.train", effective_config=loaded.text)
try:
    train.run()
finally:
    print("HEAVY", sorted({"jax", "tensorflow", "orbax", "numpy"} & set(sys.modules)))
"""
GIN = """
from __gin__ import dynamic_registration
import binary_fake
MODEL_DIR = %gin.REQUIRED
binary_fake.train.model_dir = %MODEL_DIR
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "binary_fake.py").write_text(WORK)
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "run.gin").write_text(GIN)

    def run(*arguments):
        command = [sys.executable, "main.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_bound_function_runs_with_the_effective_configuration(run):
    done = run("--gin_file=run.gin", "--gin.MODEL_DIR='/m'")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "TRAINED /m True"


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["--gin_file=run.gin"],
            [
                "MODEL_DIR is required (run.gin:4) and not set; "
                "add --gin.MODEL_DIR=\"'/path/to/model'\""
            ],
        ),
        (
            ["--gin_file=run.gin", "--gin.MODEL_DIR=/m", "--gin.MODLE_DIR='x'"],
            [
                "--gin.MODEL_DIR=/m: a string needs quotes inside the shell's own: "
                "--gin.MODEL_DIR=\"'/m'\"",
                "unknown macro 'MODLE_DIR' in --gin.MODLE_DIR='x'; did you mean MODEL_DIR?",
            ],
        ),
        (
            ["--gin_file=run.gin", "--gin.MODEL_DIR='wrong'"],
            ["wrong model_dir", "and another fault"],
        ),
        (["run.gin"], ["unexpected argument 'run.gin'; did you mean --gin_file=run.gin?"]),
        (
            ["--gin_fiel=run.gin"],
            [
                "Unknown command line flag 'gin_fiel'. Did you mean: gin_file ?; "
                "--help lists the flags"
            ],
        ),
    ],
)
def test_faults_are_lines_with_exit_code_2(run, arguments, lines):
    done = run(*arguments)
    assert done.stderr.splitlines() == [f"gshard-train: {line}" for line in lines]
    assert done.returncode == 2


def test_a_bug_keeps_its_traceback(run):
    done = run("--gin_file=run.gin", "--gin.MODEL_DIR='bug'")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: a bug")


def test_verbosity_shows_the_traceback_of_a_fault(run):
    done = run("--gin_file=run.gin", "--gin.MODEL_DIR='wrong'", "--verbosity=1")
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("gshard-train: and another fault\n")


def test_interruption_ends_with_130_and_its_message(run):
    done = run("--gin_file=run.gin", "--gin.MODEL_DIR='stop'")
    assert (done.returncode, done.stderr) == (130, "gshard-train: stopped at step 3\n")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_flags(run, flag):
    done = run(flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Trains the model that gin files describe.\n")
    for name in ("--gin_file", "--gin_bindings", "--gin_search_paths"):
        assert name in done.stdout


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--gin_file=run.gin"], ["--gin_file=run.gin", "--gin.MODEL_DIR=/m"]]
)
def test_help_and_early_faults_import_nothing_heavy_and_are_quick(run, arguments):
    times = []
    for _ in range(3):
        start = time.monotonic()
        done = run(*arguments)
        times.append(time.monotonic() - start)
        assert done.stdout.splitlines()[-1] == "HEAVY []"
    assert min(times) < 1.5


@pytest.mark.parametrize("name", ["train", "infer"])
def test_modules_run_by_name(name):
    command = [sys.executable, "-m", f"gshard_train.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gshard-{name}: --gin_file is missing; for example ")
