import os
import pathlib
import subprocess
import sys

import pytest

from gshard_annotate.inspector import command

SAMPLE = pathlib.Path(__file__).with_name("report.json")
PROG = "python -m gshard_annotate.inspector"
MESH = ("--mesh", "data=2,expert=4")

MODEL = """\
import jax
import jax.numpy as jnp
from gshard_annotate import mesh_split, split

number = 3


def exchange(x):
    x = split(x, 0, ("data", "expert"))
    return mesh_split(x, [0, 1], ["data", "expert"])


def weighted(w, x):
    return x @ w


def shapes(mesh):
    assert mesh.shape == {"data": 2, "expert": 4}
    return jax.ShapeDtypeStruct((4, 6), jnp.float32), jax.ShapeDtypeStruct((8, 4), jnp.float32)


def zeros():
    return jnp.zeros((8, 4, 16))


def broken_shapes():
    return 1 // 0


def broken(x):
    return split(x, 0, "exprt")


def twice(x):
    raise RuntimeError("one thing\\n  and another")


class Layer:
    @staticmethod
    def apply(x):
        return exchange(x)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "inspected_model.py").write_text(MODEL, "utf-8")
    (tmp_path / "inspected_exit.py").write_text("raise SystemExit(3)", "utf-8")
    (tmp_path / "inspected_needs.py").write_text("import inspected_absent", "utf-8")
    (tmp_path / "newer.json").write_text(
        '{"format": "gshard-annotate report", "version": 9}', "utf-8"
    )
    (tmp_path / "old.json").write_text(SAMPLE.read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("inspected_model", "inspected_exit", "inspected_needs"):
        sys.modules.pop(name, None)


def refusal(capsys, *arguments):
    """What the command says on standard error, on one line; it says nothing else."""
    try:
        code = command.run(arguments)
    except SystemExit as exit:
        code = exit.code
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    (line,) = printed.err.splitlines()
    return line.removeprefix(f"{PROG}: ")


WRONG = {
    (): "the following arguments are required: FUNCTION, --mesh (--help tells more)",
    ("inspected_model:exchange",): (
        "the following arguments are required: --mesh (--help tells more)"
    ),
    ("a:b", *MESH, "--colour"): "unrecognized arguments: --colour (--help tells more)",
    ("a:b", *MESH, "--args", "c", "--shapes", "f32[2]"): (
        "argument --shapes: not allowed with argument --args (--help tells more)"
    ),
    ("a:b", "--mesh", "data:2"): (
        "--mesh data:2: 'data:2' is no axis; write it as data=2,expert=4"
    ),
    ("a:b", "--mesh", "data=2,"): "--mesh data=2,: '' is no axis; write it as data=2,expert=4",
    ("a:b", "--mesh", "data=2,data=4"): (
        "--mesh data=2,data=4: axis 'data' is there twice; name it once"
    ),
    ("a:b", "--mesh", "data=2,expert=-1"): (
        "--mesh data=2,expert=-1 on virtual CPU devices: give every axis a size of 1 or more, "
        "4,096 devices at most in all, or a machine with --topology"
    ),
    ("a:b", "--mesh", "data=5000"): (
        "--mesh data=5000 on virtual CPU devices: give every axis a size of 1 or more, "
        "4,096 devices at most in all, or a machine with --topology"
    ),
    ("a:b", *MESH, "--chip", "v7"): (
        "--chip: no figures for chip 'v7' (known: v3, v4, v5e, v5p, v6e, a100, h100, h200)"
    ),
    ("a:b", *MESH, "--shapes", "8,16"): (
        "--shapes '8,16' is no list of shapes; write it as 'f32[8,16] bf16[3,4]'"
    ),
    ("a:b", *MESH, "--shapes", "float32[8]"): (
        "--shapes 'float32[8]': no type is called 'float32'; did you mean 'f32'?"
    ),
    ("inspected_model", *MESH): (
        "inspected_model: write it as module:function, as in model:forward"
    ),
    ("inspected_modle:exchange", *MESH): (
        "inspected_modle:exchange: there is no module 'inspected_modle'; "
        "the current folder and installed packages are looked into"
    ),
    ("inspected_model:exchnge", *MESH): (
        "inspected_model:exchnge: inspected_model has no 'exchnge'; did you mean 'exchange'?"
    ),
    ("inspected_model:Layer.aply", *MESH): (
        "inspected_model:Layer.aply: inspected_model.Layer has no 'aply'; did you mean 'apply'?"
    ),
    ("inspected_model:number", *MESH): (
        "inspected_model:number is of type int; name a function"
    ),
    ("inspected_exit:f", *MESH): (
        "inspected_exit:f: importing inspected_exit raised SystemExit: 3 (--traceback shows where)"
    ),
    ("inspected_needs:f", *MESH): (
        "inspected_needs:f: importing inspected_needs raised ModuleNotFoundError: "
        "No module named 'inspected_absent' (--traceback shows where)"
    ),
    ("inspected_model:weighted", *MESH): (
        "inspected_model:weighted(w, x) with 0 arguments: missing a required argument: 'w'; "
        "give --shapes 'f32[8,16] ...' or --args NAME"
    ),
    ("inspected_model:weighted", *MESH, "--shapes", "f32[8]"): (
        "inspected_model:weighted(w, x) with 1 argument: missing a required argument: 'x'"
    ),
    ("inspected_model:weighted", *MESH, "--args", "shape"): (
        "--args inspected_model:shape: inspected_model has no 'shape'; did you mean 'shapes'?"
    ),
    ("inspected_model:weighted", *MESH, "--args", "broken_shapes"): (
        "--args broken_shapes raised ZeroDivisionError: integer division or modulo by zero "
        "(--traceback shows where)"
    ),
    ("a:b", *MESH, "--json", "absent/report.json"): (
        "--json absent/report.json: there is no folder absent; make it first"
    ),
    ("a:b", *MESH, "--html", "."): "--html . is a folder; name a file in it",
    ("a:b", *MESH, "--diff", "absent.json"): "--diff absent.json: No such file or directory",
    ("a:b", *MESH, "--diff", "inspected_model.py"): (
        "--diff inspected_model.py: not JSON (Expecting value: line 1 column 1 (char 0)); "
        "give what report.json() returned"
    ),
    ("a:b", *MESH, "--diff", "newer.json"): (
        "--diff newer.json: the report has version 9, this gshard-annotate reads version 1; "
        "use the gshard-annotate that wrote it, or a newer one"
    ),
}  # fmt: skip


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_input_is_one_line_and_exit_code_2(folder, capsys, arguments):
    assert refusal(capsys, *arguments) == WRONG[arguments]


def test_a_mesh_of_other_devices_than_run_already(folder, capsys):
    """Only in a process that has used JAX before: the command starts the devices itself."""
    assert refusal(capsys, "a:b", "--mesh", "data=3").startswith(
        "--mesh data=3: cpu_devices=3, but JAX already runs with 8 CPU devices; "
    )


def started(folder, *arguments):
    variables = {**os.environ, "XLA_FLAGS": ""}
    variables.pop("JAX_NUM_CPU_DEVICES", None)
    return subprocess.run(
        [sys.executable, "-m", "gshard_annotate.inspector", *arguments],
        capture_output=True, text=True, cwd=folder, env=variables, check=False,
    )  # fmt: skip


def test_help_teaches_with_examples(folder):
    done = started(folder, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--mesh data=2,expert=4 --shapes 'f32[8,16]'" in done.stdout


def test_wrong_input_in_a_process_of_its_own(folder):
    done = started(folder, "inspected_model:exchnge", *MESH)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{PROG}: inspected_model:exchnge: inspected_model has no 'exchnge'; "
        "did you mean 'exchange'?\n"
    )
