"""Faults in gin files and flags that are seen without importing anything."""

import os
import re

import pytest

from gshard_train.errors import UserError
from gshard_train.gin_check.files import as_flag, find_file, read
from gshard_train.gin_check.statements import Macro, Reference

BASE = """\
from __gin__ import dynamic_registration
import not_there.training as training

MODEL_DIR = %gin.REQUIRED
TRAIN_STEPS = 10

training.train:
  model_dir = %MODEL_DIR
  total_steps = %TRAIN_STEPS
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.gin").write_text(BASE)
    return tmp_path


def faults(files, *bindings, search_paths=()):
    with pytest.raises(UserError) as caught:
        read(files, bindings, search_paths)
    return list(caught.value.faults)


def faults_of(text, *bindings):
    with open("text.gin", "w") as file:
        file.write(text)
    return faults(["text.gin"], *bindings)


def test_statements_keep_their_order_and_place():
    statements = read(["base.gin"], ["MODEL_DIR = 'x'", "training.train.seed = 3"])
    assert [i.module for i in statements.imports] == ["not_there.training"]
    assert [(b.name, b.origin) for b in statements.bindings] == [
        ("MODEL_DIR", "base.gin:4"),
        ("TRAIN_STEPS", "base.gin:5"),
        ("training.train.model_dir", "base.gin:8"),
        ("training.train.total_steps", "base.gin:9"),
        ("MODEL_DIR", "--gin.MODEL_DIR='x'"),
        ("training.train.seed", "--gin.training.train.seed=3"),
    ]


def test_values_keep_references_and_macros():
    statements = read([], ["f.x = [@a/m.g(), {'k': (%N,)}, @m.h]", "N = -1.5"])
    assert statements.bindings[0].value == [
        Reference("a", "m.g", True),
        {"k": (Macro("N"),)},
        Reference("", "m.h", False),
    ]
    assert statements.bindings[1].value == -1.5


def test_required_value_names_the_flag_to_add():
    assert faults(["base.gin"]) == [
        "MODEL_DIR is required (base.gin:4) and not set; add --gin.MODEL_DIR=\"'/path/to/model'\""
    ]


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("TASK_NAME", "--gin.TASK_NAME=\"'...'\""),
        ("MIXTURE_OR_TASK_MODULE", "--gin.MIXTURE_OR_TASK_MODULE=\"'...'\""),
        ("BATCH_SIZE", "--gin.BATCH_SIZE=VALUE"),
    ],
)
def test_flag_to_add_has_quotes_where_a_string_is_likely(name, flag):
    text = f"f.x = %{name}\n"
    assert faults_of(text) == [f"{name} is used (text.gin:1) and not set; add {flag}"]
    (fault,) = faults_of(f"{name} = %gin.REQUIRED\n{text}")
    assert fault == f"{name} is required (text.gin:1) and not set; add {flag}"


def test_required_parameter_set_by_its_short_name_is_set():
    text = "m.training.train.dir = %gin.REQUIRED\n"
    assert faults_of(text) == [
        "m.training.train.dir is required (text.gin:1) and not set; "
        "add --gin.m.training.train.dir=\"'...'\""
    ]
    read(["text.gin"], ["train.dir = 'x'"])


def test_required_value_inside_a_list_and_a_bare_one():
    (fault,) = faults_of("f.x = [1, %gin.REQUIRED]\n")
    assert fault.startswith("f.x is required (text.gin:1)")
    assert faults_of("f.x = gin.REQUIRED\n") == [
        "text.gin:1: write a required value as %gin.REQUIRED"
    ]


def test_misspelt_macro_in_a_flag_and_in_a_file():
    assert faults(["base.gin"], "MODEL_DIR = 'x'", "TRAIN_STPES = 5") == [
        "unknown macro 'TRAIN_STPES' in --gin.TRAIN_STPES=5; did you mean TRAIN_STEPS?"
    ]
    assert faults_of("N = 1\nXYZ = 2\nf.x = %N\n") == [
        "unknown macro 'XYZ' in text.gin:2; nothing uses it: remove it or bind a parameter to %XYZ"
    ]


def test_model_file_without_a_run_file():
    assert faults_of("MODEL = 1\nOPTIMIZER = 2\nBATCH_SIZE = 3\n", "TRAIN_STEPS = 5") == [
        "MODEL is set (text.gin:1) and no run file uses it; add one, such as "
        "--gin_file=gshard_train/configs/runs/train.gin"
    ]


def test_missing_file_is_not_followed_by_what_it_would_have_used():
    found = faults(["base.gin", "rnu.gin"], "MODEL_DIR = 'x'", "BATCH_SIZE = 5", "TRAIN_STPES = 1")
    assert len(found) == 2
    assert found[0].startswith("--gin_file=rnu.gin: no gin file rnu.gin in ")
    assert found[1].startswith("unknown macro 'TRAIN_STPES'")


def test_macro_used_by_a_macro_is_used():
    read([], ["A = 1", "B = [%A]", "f.x = {'k': %B}"])


def test_macro_used_only_by_an_overridden_binding_is_no_misspelling():
    read([], ["A = 1", "f.x = %A", "f.x = 2"])


@pytest.mark.parametrize("value", ["/tmp/x", "text", "gs://bucket/x", "a b", "2026-01-02", "-x"])
def test_string_without_quotes_says_how_to_quote_it(value):
    assert faults(["base.gin"], f"MODEL_DIR = {value}") == [
        f"--gin.MODEL_DIR={value}: a string needs quotes inside the shell's own: "
        f"--gin.MODEL_DIR=\"'{value}'\""
    ]


def test_string_without_quotes_in_a_file():
    assert faults_of("N = /tmp/x\nf.x = %N\n") == [
        "text.gin:1: a string needs quotes: N = '/tmp/x'"
    ]


@pytest.mark.parametrize(
    ("binding", "fault"),
    [
        ("N = true", "--gin.N=true: true is not a gin value; did you mean True?"),
        ("N = null", "--gin.N=null: null is not a gin value; did you mean None?"),
        ("N", "--gin.N: a value is missing; write --gin.N=VALUE"),
        ("N = [a, 'b']", "--gin.N=[a, 'b']: a is not a gin value; write 'a' or %a"),
        ("N = {'a': [1, 2}", "--gin.N={'a': [1, 2}: expected ',' or ']' in `N = {'a': [1, 2}`"),
        ("N = (1, 2", "--gin.N=(1, 2: brackets or quotes that open here are not closed"),
    ],
)
def test_values_that_gin_cannot_read(binding, fault):
    assert faults([], binding, "f.x = %N") == [fault]


def test_a_flag_without_value_is_refused():
    (fault,) = faults([], "N = ", "f.x = %N")
    assert fault.startswith("--gin.N=: ")


def test_every_syntax_error_of_a_file_is_found_with_its_line():
    text = """\
A = [1,
  2
B = tru
f.x = %A

f.y = %B
= 5
f.z = (%C)
D = 'open
f.w = %D
f:
  x = 1
  y 2
g.u = {1: 2
"""
    found = faults_of(text)
    assert [re.match(r"(text\.gin:\d+): ", fault)[1] for fault in found[:-1]] == [
        "text.gin:1",
        "text.gin:3",
        "text.gin:7",
        "text.gin:9",
        "text.gin:11",
        "text.gin:14",
    ]
    # What stands in a line that cannot be read counts as used and set; only C is neither.
    assert found[-1] == "C is used (text.gin:8) and not set; add --gin.C=VALUE"


def test_all_faults_of_files_and_flags_come_at_once():
    # What `f.x` uses the missing file may set.
    found = faults(["base.gin", "bsae.gin"], "TRAIN_STPES = 5", "NAME = /x", "f.x = %WIDTH")
    assert len(found) == 4
    assert found[0].startswith("--gin_file=bsae.gin: no gin file bsae.gin in ")
    assert found[0].endswith("; did you mean base.gin?")
    assert found[1].startswith("--gin.NAME=/x: a string needs quotes")
    assert found[2].startswith("unknown macro 'TRAIN_STPES'")
    assert found[3].startswith("MODEL_DIR is required")


def test_included_file_is_read_in_its_place():
    os.makedirs("below")
    with open("below/inner.gin", "w") as file:
        file.write("A = 1\n")
    with open("outer.gin", "w") as file:
        file.write("include 'inner.gin'\nf.x = %A\nA = 2\n")
    statements = read(["outer.gin"], [], ["below"])
    assert [(b.name, b.value) for b in statements.bindings if b.macro] == [("A", 1), ("A", 2)]
    assert statements.bindings[0].origin == "inner.gin:1"
    (fault,) = [f for f in faults(["outer.gin"]) if "inner" in f]
    assert fault.startswith("outer.gin:1: no gin file inner.gin in ")


def test_file_that_includes_itself():
    assert faults_of("include 'text.gin'\n") == [
        "text.gin:1: text.gin includes itself; remove one include"
    ]


def test_file_that_is_not_text(tmp_path):
    (tmp_path / "text.gin").write_bytes(b"\xff\xfe")
    (fault,) = faults(["text.gin"])
    assert fault.startswith("--gin_file=text.gin: text.gin cannot be read: 'utf-8' codec")


def test_file_inside_a_package_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "elsewhere" / "boxed_package"
    (package / "configs").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    (package / "configs" / "run.gin").write_text("f.x = 1\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    assert find_file("boxed_package/configs/run.gin") == str(package / "configs" / "run.gin")
    (fault,) = faults(["boxed_package/configs/rum.gin"])
    assert fault.endswith("did you mean run.gin?")


def test_working_directory_comes_before_search_paths(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "base.gin").write_text("f.x = 1\n")
    assert find_file("base.gin", ["other"]) == "base.gin"
    (tmp_path / "base.gin").unlink()
    assert find_file("base.gin", ["other"]) == os.path.join("other", "base.gin")


def test_several_statements_in_one_flag():
    statements = read([], ["A = 1\nf.x = %A"])
    assert [b.name for b in statements.bindings] == ["A", "f.x"]


def test_binding_as_flag():
    assert as_flag("A = 'x=y'") == "--gin.A='x=y'"
