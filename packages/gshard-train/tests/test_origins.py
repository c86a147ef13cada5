"""Where each value comes from, and bindings that nothing would ever read."""

import sys

import pytest

from gshard_train import config
from gshard_train.errors import UserError

WORK = """
def adam(rate, decay=0.0):
    return ("adam", rate, decay)

def adafactor(rate, decay=0.8):
    return ("adafactor", rate, decay)

def mesh(axes=()):
    return axes

def run(optimizer, *, steps=3, label="", shape=(), make=print):
    return optimizer, steps

def infer(optimizer, beam=4):
    return optimizer, beam
"""
BASE = """\
import origin_fake as work
STEPS = %gin.REQUIRED
OPTIMIZER = @work.adam()
work.run:
  optimizer = %OPTIMIZER
  steps = %STEPS
work.adam.rate = 0.5
"""
ROOTS = ("origin_fake.run", "origin_fake.infer", "origin_fake.export", "not_there.evaluate")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "origin_fake.py").write_text(WORK)
    (tmp_path / "base.gin").write_text(BASE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("origin_fake", None)


def load(*bindings, text=""):
    with open("more.gin", "w") as file:
        file.write(text)
    return config.load(["base.gin", "more.gin"], ["STEPS = 7", *bindings], roots=ROOTS)


def faults(*bindings, text=""):
    with pytest.raises(UserError) as caught:
        load(*bindings, text=text)
    return list(caught.value.faults)


def test_each_value_has_its_place_and_what_it_replaced():
    text = "OPTIMIZER = @adam()\nadam.rate = 1.5\n"
    assert load("run.label = 'x'", "origin_fake.adam.rate = 2.5", text=text).origins() == (
        "# Every value, where it is set and what it replaced; behind a # the defaults that nothing "
        "sets.\n"
        "import origin_fake as work\n"
        "\n"
        "STEPS = 7  # --gin.STEPS=7; before: %gin.REQUIRED (base.gin:2)\n"
        "OPTIMIZER = @work.adam()  # more.gin:1; before: @work.adam() (base.gin:3)\n"
        "\n"
        "work.run.optimizer = %OPTIMIZER  # base.gin:5\n"
        "work.run.steps = %STEPS  # base.gin:6\n"
        "work.run.label = 'x'  # --gin.run.label='x'\n"
        "# work.run.shape = ()\n"
        "# work.run.make = ...\n"
        "\n"
        "work.adam.rate = 2.5  # --gin.origin_fake.adam.rate=2.5; before: 1.5 (more.gin:2), "
        "0.5 (base.gin:7)\n"
        "# work.adam.decay = 0.0\n"
    )


def test_binding_of_a_function_that_nothing_refers_to():
    assert faults("adafactor.axes = 1", "mesh.axes = (2,)") == [
        "origin_fake.adafactor has no parameter 'axes' (--gin.adafactor.axes=1); it has rate, decay"
    ]
    assert faults("mesh.axes = (2,)") == [
        "mesh.axes (--gin.mesh.axes=(2,)) has no effect: nothing that runs refers to "
        "origin_fake.mesh; bind a parameter to @mesh() or remove it"
    ]


def test_the_function_that_runs_instead_is_named():
    assert faults("adafactor.decay = 0.9") == [
        "adafactor.decay (--gin.adafactor.decay=0.9) has no effect: nothing that runs refers to "
        "origin_fake.adafactor; did you mean adam.decay of origin_fake?"
    ]


def test_what_an_overlay_replaces_is_no_fault():
    loaded = load("OPTIMIZER = @work.adafactor()", "adafactor.rate = 0.1")
    assert loaded.call("origin_fake.run") == (("adafactor", 0.1, 0.8), 7)


def test_a_file_may_serve_several_programs():
    load("infer.optimizer = @adafactor()", "adafactor.rate = 0.1", "infer.beam = 3")


def test_scope_in_which_nothing_is_called():
    assert faults("evl/adam.rate = 1.0", "infer.optimizer = @eval/adam()") == [
        "evl/adam.rate (--gin.evl/adam.rate=1.0) has no effect: nothing is called in the scope "
        "'evl'; did you mean eval?"
    ]
    load("eval/adam.rate = 1.0", "infer.optimizer = @eval/adam()")


def test_singletons_lead_on():
    load(
        "one/gin.singleton.constructor = @adafactor",
        "adafactor.rate = 0.1",
        "infer.optimizer = @one/gin.singleton()",
    )


def test_without_any_function_that_runs_nothing_is_unused():
    with open("model.gin", "w") as file:
        file.write("import origin_fake as work\nwork.adam.rate = 1.0\n")
    config.load(["model.gin"], roots=ROOTS)


def test_effective_text_has_only_what_has_an_effect_and_loads_again():
    loaded = load("OPTIMIZER = @work.adafactor()", "adafactor.rate = 0.1", "run.steps = 9")
    assert "STEPS" not in loaded.text
    assert "adam" not in loaded.text
    with open("again.gin", "w") as file:
        file.write(loaded.text)
    again = config.load(["again.gin"], roots=ROOTS)
    assert again.text == loaded.text
    assert again.call("origin_fake.run") == (("adafactor", 0.1, 0.8), 9)


def test_a_flag_for_what_was_replaced_is_refused():
    said = faults(
        "RATE = 0.2",
        text="RATE = 0.1\nwork.adafactor.rate = %RATE\nOTHER = @work.adafactor()\n"
        "work.run.optimizer = %OTHER\nwork.run.optimizer = %OPTIMIZER\n",
    )
    assert said == [
        "RATE (--gin.RATE=0.2) has no effect, since a later file or flag replaces what uses it: "
        "work.adafactor.rate (more.gin:2) is not called; remove it, or set what replaces it",
    ]
