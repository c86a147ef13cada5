"""From gin files to a call: names, parameters, the effective configuration."""

import sys

import pytest

from gshard_train import config
from gshard_train.errors import UserError

WORK = """
import dataclasses, functools

@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    width: int = 8

class Plain:
    def __init__(self, size, *, deep=False):
        self.size, self.deep = size, deep

def mesh(axes, cpu_devices=None):
    if axes.get("data", 1) > 4:
        raise ValueError(f"mesh: {axes} need more devices")
    return ("mesh", axes)

def optimizer(rate, decay=0.0):
    return ("optimizer", rate, decay)

def anything(**settings):
    return settings

def train(*, model_dir, model, mesh=None, total_steps=3, extra=None, effective_config=""):
    return locals()

def fails(*, kind=ValueError):
    raise kind("from inside")

def idle():
    return "idle"
"""
BASE = """\
from __gin__ import dynamic_registration
import gin_fake.work as training
from gin_fake import work

MODEL_DIR = %gin.REQUIRED
STEPS = 10
training.train:
  model_dir = %MODEL_DIR
  model = @work.Model()
  total_steps = %STEPS
work.Model.layers = 4
"""
DIR = "MODEL_DIR = '/m'"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    package = tmp_path / "gin_fake"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text(WORK)
    (package / "needy.py").write_text("import module_that_is_missing\n")
    (tmp_path / "base.gin").write_text(BASE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "gin_fake"]:
        del sys.modules[name]


def load(*bindings, text=BASE):
    with open("text.gin", "w") as file:
        file.write(text)
    return config.load(["text.gin"], bindings)


def faults(*bindings, text=BASE):
    with pytest.raises(UserError) as caught:
        load(*bindings, text=text)
    return list(caught.value.faults)


def train(loaded, **given):
    return loaded.call("gin_fake.work.train", **given)


def test_call_has_bound_arguments_and_given_ones():
    got = train(load(DIR), effective_config="text")
    assert (got["model_dir"], got["total_steps"], got["effective_config"]) == ("/m", 10, "text")
    assert (got["model"].layers, got["model"].width) == (4, 8)


def test_given_arguments_win():
    assert train(load(DIR), total_steps=7)["total_steps"] == 7


@pytest.mark.parametrize(
    "flag", ["training.train.total_steps", "train.total_steps", "work.train.total_steps", "STEPS"]
)
def test_flags_reach_a_parameter_by_any_of_its_names(flag):
    assert train(load(DIR, f"{flag} = 5"))["total_steps"] == 5


def test_flags_reach_what_no_file_binds():
    assert train(load(DIR, "train.mesh = @mesh()", "mesh.axes = {'data': 2}"))["mesh"] == (
        "mesh",
        {"data": 2},
    )


def test_later_files_and_then_flags_override(tmp_path):
    (tmp_path / "overlay.gin").write_text("STEPS = 20\nwork.Model.layers = 5\n")
    got = train(config.load(["base.gin", "overlay.gin"], [DIR, "STEPS = 30"]))
    assert (got["total_steps"], got["model"].layers) == (30, 5)


def test_scopes_singletons_and_references_without_a_call():
    got = train(
        load(
            DIR,
            "a/optimizer.rate = 1.0",
            "optimizer.rate = 0.5",
            "train.extra = [@a/optimizer(), @optimizer(), @optimizer, @one/gin.singleton()]",
            "one/gin.singleton.constructor = @Plain",
            "Plain.size = 3",
        )
    )["extra"]
    assert got[:2] == [("optimizer", 1.0, 0.0), ("optimizer", 0.5, 0.0)]
    assert got[2](decay=0.1) == ("optimizer", 0.5, 0.1)
    assert (got[3].size, got[3].deep) == (3, False)


def test_unknown_names_come_at_once_with_the_nearest():
    assert faults(
        DIR,
        "train.total_stps = 5",
        "wrok.Model.width = 1",
        "work.Modle.width = 1",
        "train.mesh = @work.mehs()",
        "Plain.depth = 1",
    ) == [
        "unknown 'wrok.Model' in --gin.wrok.Model.width=1; did you mean work.Model?",
        "unknown 'work.Modle' in --gin.work.Modle.width=1; did you mean work.Model?",
        "unknown 'work.mehs' in --gin.train.mesh=@work.mehs(); did you mean work.mesh?",
        "gin_fake.work.train has no parameter 'total_stps' (--gin.train.total_stps=5); "
        "did you mean total_steps?",
        "gin_fake.work.Plain has no parameter 'depth' (--gin.Plain.depth=1); did you mean deep?",
    ]


def test_parameter_without_a_near_one_lists_them_all():
    assert faults(DIR, "mesh.zzz = 1") == [
        "gin_fake.work.mesh has no parameter 'zzz' (--gin.mesh.zzz=1); it has axes, cpu_devices"
    ]


def test_symbol_that_no_import_provides():
    assert faults(DIR, "qqqq.zzzzzz.value = 1") == [
        "unknown 'qqqq.zzzzzz' in --gin.qqqq.zzzzzz.value=1; "
        "no import in the gin files provides 'qqqq'"
    ]


def test_modules_that_cannot_be_imported():
    text = BASE + "import gin_fake.wrok\nfrom gin_fake import needy\nimport gin_fakee.work\n"
    assert faults(DIR, text=text) == [
        "text.gin:12: cannot import gin_fake.wrok: "
        "there is no module gin_fake.wrok; did you mean gin_fake.work?",
        "text.gin:13: cannot import gin_fake.needy: No module named 'module_that_is_missing'",
        "text.gin:14: cannot import gin_fakee.work: "
        "there is no module gin_fakee; did you mean gin_fake?",
    ]


def test_arguments_that_gin_would_lack():
    text = BASE.replace("work.Model.layers = 4\n", "")
    assert faults(DIR, "train.mesh = @mesh()", text=text) == [
        "gin_fake.work.Model (called in text.gin:9) needs layers and nothing binds it; "
        "add work.Model.layers = VALUE to a gin file",
        "gin_fake.work.mesh (called in --gin.train.mesh=@mesh()) needs axes and nothing binds it; "
        "add mesh.axes = VALUE to a gin file",
    ]


def test_arguments_that_the_called_function_lacks():
    loaded = load("Model.layers = 3", text="import gin_fake.work as training\n")
    with pytest.raises(UserError) as caught:
        train(loaded, model="given")
    assert caught.value.faults == (
        "gin_fake.work.train (run by this command) needs model_dir and nothing binds it; "
        "add train.model_dir = VALUE to a gin file",
    )


def test_function_of_a_binary_without_a_run_file():
    with pytest.raises(UserError) as caught:
        load(DIR).call("gshard_train.evaluating.evaluate")
    assert caught.value.faults == (
        "gshard_train.evaluating.evaluate (run by this command) has no value at all; add a run "
        "file, such as --gin_file=gshard_train/configs/runs/eval.gin",
    )


def test_function_without_bindings_is_called_as_it_is():
    assert load(DIR).call("gin_fake.work.idle") == "idle"


def test_parameter_left_required():
    assert faults(DIR, "train.mesh = %gin.REQUIRED") == [
        "train.mesh is required (--gin.train.mesh=%gin.REQUIRED) and not set; "
        "add --gin.train.mesh=VALUE"
    ]


def test_open_keyword_arguments_take_any_name():
    got = train(load(DIR, "anything.speed = 3", "train.extra = @anything()"))
    assert got["extra"] == {"speed": 3}


def test_value_error_while_building_arguments_is_the_users():
    loaded = load(DIR, "train.mesh = @mesh()", "mesh.axes = {'data': 8}")
    with pytest.raises(UserError) as caught:
        train(loaded)
    assert caught.value.faults == ("mesh: {'data': 8} need more devices",)


@pytest.mark.parametrize("kind", ["ValueError", "KeyError"])
def test_errors_of_the_function_itself_pass_unchanged(kind):
    import builtins

    with pytest.raises(getattr(builtins, kind), match="from inside") as caught:
        load(DIR).call("gin_fake.work.fails", kind=getattr(builtins, kind))
    assert not isinstance(caught.value, UserError)


def test_effective_configuration_runs_again_alone(tmp_path):
    loaded = load(
        DIR,
        "train.extra = [%RATE, {'a': (1,), 'b': \"it's\", 'c': 'line\\n'}, -1e999, None]",
        "RATE = 1e-05",
        "a/optimizer.rate = %RATE",
        f"train.mesh = [@a/optimizer(), {list(range(40))}]",
    )
    (tmp_path / "again.gin").write_text(loaded.text)
    again = config.load(["again.gin"])
    assert again.text == loaded.text
    assert train(again) == train(loaded)
    assert train(again)["extra"][:2] == [1e-05, {"a": (1,), "b": "it's", "c": "line\n"}]
    assert train(config.load(["again.gin"], ["STEPS = 99"]))["total_steps"] == 99


def test_choices_for_once_are_left_out_with_the_macros_that_only_they_use():
    loaded = load(DIR, "CHOICE = 'anew'", "training.train.extra = %CHOICE")
    assert loaded.text_without("gin_fake.work.train", ["extra"]) == load(DIR).text
    assert "CHOICE" in loaded.text


def test_effective_configuration_is_readable():
    assert load(DIR, "train.total_steps = 5").text == (
        "# Everything that was set. Runs again with this file as the only --gin_file; "
        "--gin.NAME=value\n"
        "# still overrides.\n"
        "from __gin__ import dynamic_registration\n"
        "import gin_fake.work as training\n"
        "\n"
        "MODEL_DIR = '/m'\n"
        "\n"
        "training.train.model_dir = %MODEL_DIR\n"
        "training.train.model = @training.Model()\n"
        "training.train.total_steps = 5\n"
        "\n"
        "training.Model.layers = 4\n"
    )


def test_same_symbol_for_two_modules_gets_two_names(tmp_path):
    (tmp_path / "gin_fake" / "other.py").write_text("def work(value):\n    return value\n")
    (tmp_path / "a.gin").write_text("import gin_fake.other as work\nwork.work.value = 1\n")
    loaded = config.load(["a.gin", "base.gin"], [DIR, "train.extra = @gin_fake.other.work()"])
    assert "import gin_fake.other as work\nimport gin_fake.work as training\n" in loaded.text
    assert train(loaded)["extra"] == 1


def test_plain_import_of_a_module_inside_a_package():
    text = BASE.replace("as training", "").replace("training.", "gin_fake.work.")
    loaded = load(DIR, text=text)
    assert "import gin_fake.work as work\n" in loaded.text
    assert train(loaded)["total_steps"] == 10


def test_loading_again_forgets_the_first():
    load(DIR, "train.extra = 1")
    assert train(load(DIR))["extra"] is None


def test_nothing_to_load():
    with pytest.raises(UserError, match="--gin_file is missing; for example --gin_file=gshard_m4"):
        config.load([])


def test_saved_configuration_keeps_the_one_before(tmp_path):
    for text in ("first\n", "first\n", "second\n", "third\n"):
        config.save(text, tmp_path / "run")
    there = {path.name: path.read_text() for path in (tmp_path / "run").iterdir()}
    assert there == {
        "config.gin": "third\n",
        "config.1.gin": "first\n",
        "config.2.gin": "second\n",
    }
