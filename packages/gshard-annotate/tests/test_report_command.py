import os
import pathlib
import subprocess
import sys

import pytest

from gshard_annotate.inspector import command
from gshard_annotate.inspector.report import Report

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


def surprised(w, x):
    return split(x, 0, ("data", "expert")) @ w


def split_weights(mesh):
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "expert"))
    return (
        jax.ShapeDtypeStruct((64, 512), jnp.float32, sharding=cut),
        jax.ShapeDtypeStruct((4096, 64), jnp.float32),
    )


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
    ("inspected_model:broken", *MESH, "--shapes", "f32[8]"): (
        "inspected_model:broken raised ValueError: split: dimension 0 of x f32[8] cannot be split "
        "over mesh axis 'exprt': the mesh has data=2, expert=4; did you mean 'expert'? "
        "(--traceback shows where)"
    ),
    ("inspected_model:twice", *MESH, "--shapes", "f32[8]"): (
        "inspected_model:twice raised RuntimeError: one thing and another (--traceback shows where)"
    ),
    ("a:b", *MESH, "--json", "absent/report.json"): (
        "--json absent/report.json: there is no folder absent; make it first"
    ),
    ("a:b", *MESH, "--html", "."): "--html . is a folder; name a file in it",
    ("a:b", *MESH, "--accept", "*"): (
        "--accept: pattern '*' would accept every surprise; give a part of the sentence"
    ),
    ("a:b", *MESH, "--diff", "absent.json"): "--diff absent.json: No such file or directory",
    ("a:b", *MESH, "--diff", "inspected_model.py"): (
        "--diff inspected_model.py: not JSON (Expecting value: line 1 column 1 (char 0)); "
        "give what report.json() returned"
    ),
    ("a:b", *MESH, "--diff", "newer.json"): (
        "--diff newer.json: the report has version 9, this gshard-annotate reads versions 1 to 2; "
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


def test_a_report_as_text_page_and_json(folder, capsys):
    arguments = ("inspected_model:exchange", *MESH, "--shapes", "f32[8,4,16]", "--chip", "v3")
    assert command.run([*arguments, "--html", "a.html", "--json", "a.json"]) == 0
    printed = capsys.readouterr().out
    report = Report.from_json((folder / "a.json").read_text("utf-8"))
    assert printed == f"{report}\nwritten: a.json\nwritten: a.html\n"
    assert (folder / "a.html").read_text("utf-8") == report.html()
    (one,) = report.exchanges
    assert (one.collective.kind, one.collective.bytes, one.surprise) == ("all-to-all", 256, "")
    assert one.source is not None
    assert pathlib.Path(one.source.file).name == "inspected_model.py"
    assert (report.title, report.mesh, report.chip) == (
        "exchange", {"data": 2, "expert": 4}, "TPU v3 core",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["shapes", "inspected_model:shapes"])
def test_arguments_from_a_function_that_is_given_the_mesh(folder, capsys, name):
    assert command.run(["inspected_model:weighted", *MESH, "--args", name]) == 0
    assert capsys.readouterr().out.startswith("weighted\nmesh data=2, expert=4 (8 CPU devices)")


def test_what_is_no_tuple_is_the_one_argument_and_attributes_may_be_dotted(folder, capsys):
    assert command.run(["inspected_model:Layer.apply", *MESH, "--args", "zeros"]) == 0
    assert "COLLECTIVES: 1 all-to-all; 256 B on a device\n" in capsys.readouterr().out


def test_a_difference_is_printed_and_stands_on_top_of_the_page(folder, capsys):
    exchange = ["inspected_model:exchange", *MESH, "--shapes", "f32[8,4,16]"]
    assert command.run([*exchange, "--json", "a.json"]) == 0
    capsys.readouterr()
    assert command.run([*exchange, "--diff", "a.json", "--html", "b.html"]) == 0
    assert capsys.readouterr().out == (
        "exchange: before and after\n\nNO DIFFERENCE\nwritten: b.html\n"
    )
    assert "<h2>What changed</h2>" in (folder / "b.html").read_text("utf-8")
    exchange[-1] = "f32[8,4,32]"
    assert command.run([*exchange, "--diff", "a.json", "--json", "a.json"]) == 0
    assert "COLLECTIVES: 1 changed\n" in capsys.readouterr().out
    assert Report.from_json((folder / "a.json").read_text("utf-8")).values[0].shape == "f32[8,4,32]"


def test_surprises_fail_when_that_is_wanted(folder, capsys):
    surprised = ["inspected_model:surprised", *MESH, "--args", "split_weights"]
    assert command.run(surprised) == 0
    assert command.run([*surprised, "--fail-on-surprise"]) == 1
    assert "SURPRISES (1)\n  1. all-gather of " in capsys.readouterr().out
    calm = ["inspected_model:exchange", *MESH, "--shapes", "f32[8,4,16]", "--fail-on-surprise"]
    assert command.run(calm) == 0


def test_with_an_earlier_report_new_surprises_alone_fail(folder, capsys):
    surprised = ["inspected_model:surprised", *MESH, "--args", "split_weights"]
    assert command.run([*surprised, "--json", "a.json"]) == 0
    again = ["--diff", "a.json", "--fail-on-surprise"]
    assert command.run([*surprised, *again]) == 0
    calm = ["inspected_model:exchange", *MESH, "--shapes", "f32[8,4,16]"]
    assert command.run([*calm, *again]) == 0
    assert command.run([*calm, "--json", "b.json"]) == 0
    capsys.readouterr()
    assert command.run([*surprised, "--diff", "b.json", "--fail-on-surprise"]) == 1
    assert "NEW SURPRISES (1)\n  1. all-gather of " in capsys.readouterr().out


def test_surprises_that_are_accepted_do_not_fail(folder, capsys):
    surprised = ["inspected_model:surprised", *MESH, "--args", "split_weights"]
    fail = [*surprised, "--fail-on-surprise"]
    assert command.run([*fail, "--accept", "w is split on 'expert'"]) == 0
    assert "NO SURPRISES but 1 that you accept\n" in capsys.readouterr().out
    assert command.run([*fail, "--accept", "w is splt", "--accept", "nothing"]) == 1
    notes = ["  1. no surprise fits what is accepted: 'w is splt'"]
    notes.append("  2. no surprise fits what is accepted: 'nothing'")
    assert capsys.readouterr().out.splitlines()[-2:] == notes
    assert command.run([*surprised, "--json", "a.json"]) == 0
    capsys.readouterr()
    accepted = [*fail, "--diff", "a.json", "--accept", "w is split", "--accept", "nothing"]
    assert command.run(accepted) == 0
    assert capsys.readouterr().out == (
        "surprised: before and after\n\nNO DIFFERENCE\n\n"
        "NEW NOTES\n  1. no surprise fits what is accepted: 'nothing'\n"
    )


def test_traceback_is_shown_when_wanted(folder, capsys):
    arguments = ["inspected_model:twice", *MESH, "--shapes", "f32[8]", "--traceback"]
    assert command.run(arguments) == 2
    *lines, last = capsys.readouterr().err.splitlines()
    assert any("inspected_model.py" in line for line in lines)
    assert last == f"{PROG}: inspected_model:twice raised RuntimeError: one thing and another"


@pytest.mark.slow
def test_an_absent_tpu(folder, capsys):
    """In this process: the TPU compiler serves one process at a time."""
    pytest.importorskip("libtpu")
    arguments = ("inspected_model:exchange", "--shapes", "f32[32,16,16]", "--topology", "v3:4x4")
    assert command.run([*arguments, "--mesh", "data=2,expert=-1"]) == 0
    printed = capsys.readouterr().out
    assert "mesh data=2, expert=16 (32 TPU devices), chip TPU v3 core, compiled in " in printed
    for mesh in ("data=2,expert=4", "data=0,expert=-1", "data=-1,expert=-1", "data=5,expert=-1"):
        assert refusal(capsys, *arguments, "--mesh", mesh) == (
            f"--mesh {mesh}: v3:4x4 has 32 devices; the sizes must multiply to that, "
            "and one may be -1: what is left"
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
    words = " ".join(done.stdout.split())
    assert "with --diff only when there are new ones, whatever their size" in words
    assert "--accept PATTERN" in words


def test_wrong_input_in_a_process_of_its_own(folder):
    done = started(folder, "inspected_model:exchnge", *MESH)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{PROG}: inspected_model:exchnge: inspected_model has no 'exchnge'; "
        "did you mean 'exchange'?\n"
    )
