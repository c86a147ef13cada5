"""The binaries as programs: what they print, how they end, and what they import on the way."""

import subprocess
import sys

import pytest

WORK = """
def train(*, model_dir, effective_config="", dry_run=False):
    if model_dir == "wrong":
        from gshard_train.errors import UserError
        raise UserError("wrong model_dir", "and another fault")
    if model_dir == "bug":
        raise ValueError("a bug")
    if model_dir == "stop":
        raise KeyboardInterrupt("stopped at step 3")
    import logging
    logging.getLogger("gshard_train.training").info("our line")
    print("DRY RUN" if dry_run else "TRAINED", model_dir, len(effective_config) > 0)
"""
MAIN = """
import sys
from gshard_train import train
train.main = lambda loaded, dry_run: loaded.call(
    "binary_fake.train", effective_config=loaded.text, dry_run=dry_run
)
try:
    train.run()
finally:
    heavy = {"jax", "tensorflow", "seqio", "clu", "orbax", "numpy", "matplotlib"}
    print("HEAVY", sorted(heavy & set(sys.modules)))
"""
GIN = """
from __gin__ import dynamic_registration
import binary_fake
MODEL_DIR = %gin.REQUIRED
binary_fake.train.model_dir = %MODEL_DIR
"""
FLAGS = [
    *("gin_file", "gin_bindings", "gin_search_paths", "tfds_data_dir"),
    *("seqio_additional_cache_dirs", "dry_run", "multiprocess_gpu", "coordinator_address"),
    *("process_count", "process_index"),  # so far T5X's
    *("process_timeout", "print_config"),
]
TRAINING = """
from __gin__ import dynamic_registration
from gshard_train import data
from gshard_train import decode
from gshard_train import experiment
from gshard_train import optimizer
from gshard_train import training
training.train.train_steps = 3
"""
IMPORTED = """
import sys
from gshard_train import train
try:
    train.run()
finally:
    print("HEAVY", sorted({"tensorflow", "seqio", "clu", "matplotlib", "grain"} & set(sys.modules)))
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
    for flag in FLAGS:
        assert f"--{flag}:" in done.stdout or f"--[no]{flag}:" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--gin_file=run.gin"],
        ["--gin_file=run.gin", "--gin.MODEL_DIR=/m"],
        ["--gin_file=run.gin", "--process_index=3"],
    ],
)
def test_help_and_what_the_text_alone_shows_import_nothing_heavy(run, arguments):
    assert run(*arguments).stdout.splitlines()[-1] == "HEAVY []"


def test_unknown_parameters_import_no_tensorflow(tmp_path):
    (tmp_path / "run.gin").write_text(TRAINING)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, "--gin_file=run.gin", "--gin.train.total_stps=5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines() == [
        "gshard-train: gshard_train.training.train has no parameter 'total_stps' "
        "(--gin.train.total_stps=5); did you mean train_steps?"
    ]
    assert done.stdout == "HEAVY []\n"


def test_flags_and_gin_files_are_complained_about_together(run):
    done = run(
        "--gin_file=run.gin",
        "--gin.MODEL_DIR=/m",
        "--coordinator_address=here",
        "--process_count=2",
        "--tfds_data_dir=nowhere",
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "gshard-train: --coordinator_address=here and --process_count=2 without --process_index: "
        "several processes need all three, each process with its own --process_index",
        "gshard-train: --coordinator_address=here must be HOST:PORT, where process 0 can be "
        "reached by all, such as 10.0.0.1:8476",
        "gshard-train: --tfds_data_dir=nowhere: there is no such directory; give one that is there",
        "gshard-train: --gin.MODEL_DIR=/m: a string needs quotes inside the shell's own: "
        "--gin.MODEL_DIR=\"'/m'\"",
    ]


def test_dry_run_reaches_the_function(run):
    done = run("--gin_file=run.gin", "--gin.MODEL_DIR='/m'", "--dry_run")
    assert done.stdout.splitlines()[0] == "DRY RUN /m True"


def test_print_config_shows_origins_and_runs_nothing(run):
    done = run("--gin_file=run.gin", "--gin.MODEL_DIR='/m'", "--print_config")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "MODEL_DIR = '/m'  # --gin.MODEL_DIR='/m'; before: %gin.REQUIRED (run.gin:4)"
        in done.stdout.splitlines()
    )
    assert "TRAINED" not in done.stdout


def test_help_lists_a_programs_own_flags_to_a_reader_that_has_enough_too():
    command = [sys.executable, "-m", "gshard_train.resize", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as cut_off:
        cut_off.stdout.close()
        assert (cut_off.stderr.read(), cut_off.wait()) == (b"", 0)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    own = done.stdout.partition("\ngshard-resize:\n")[2]
    for flag in ("from_dir", "how", "step", "noise", "router_std"):
        assert f"--{flag}:" in own


@pytest.mark.parametrize("name", ["train", "eval", "infer", "export"])
def test_modules_run_by_name(name):
    command = [sys.executable, "-m", f"gshard_train.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gshard-{name}: --gin_file is missing; for example ")
