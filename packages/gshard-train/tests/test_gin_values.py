"""Values of a wrong type, which are refused before anything runs."""

import sys

import pytest

from gshard_train import config
from gshard_train.errors import UserError

WORK = """
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TYPE_CHECKING

if TYPE_CHECKING:
    from nowhere import Nothing

@dataclasses.dataclass
class Model:
    width: int = 3

def run(
    model: Model | None = None,
    *,
    steps: int = 1,
    period: int | None = None,
    rate: float = 0.5,
    name: str = "",
    deep: bool = False,
    kind: Literal["a", "b"] = "a",
    names: Sequence[str] = (),
    pair: tuple[int, int] = (1, 2),
    lengths: Mapping[str, int] = {},
    make: Callable[[], int] = int,
    quoted: "int | None" = None,
    unreadable: "Nothing" = None,
    open: Any = None,
    choice: int | Sequence[int] | Literal["all"] | None = None,
    plain=None,
):
    return locals()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "value_fake.py").write_text(WORK)
    (tmp_path / "run.gin").write_text("import value_fake\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("value_fake", None)


def faults(*bindings):
    with pytest.raises(UserError) as caught:
        config.load(["run.gin"], bindings)
    return list(caught.value.faults)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("steps", "'5'", "an integer"),
        ("steps", "5.5", "an integer"),
        ("steps", "True", "an integer"),
        ("steps", "None", "an integer"),
        ("steps", "1000000.0", "an integer; write 1000000"),
        ("period", "'5'", "an integer or None"),
        ("rate", "'0.1'", "a number"),
        ("name", "3", "text in quotes"),
        ("deep", "1", "True or False"),
        ("kind", "'c'", "one of 'a', 'b'"),
        ("names", "'test'", "a tuple with text in quotes for each"),
        ("names", "('test', 3)", "a tuple with text in quotes for each"),
        ("pair", "(1, 2, 3)", "a tuple with an integer for each"),
        ("lengths", "7", "a dict with an integer for each"),
        ("lengths", "{'inputs': 'x'}", "a dict with an integer for each"),
        ("model", "'moe'", "a Model, such as @Model() or None"),
        ("make", "3", "a function, such as @function"),
        ("quoted", "'x'", "an integer or None"),
        (
            "choice",
            "'al'",
            "an integer or a tuple with an integer for each or one of 'all' or None",
        ),
    ],
)
def test_value_that_the_type_does_not_allow(name, value, allowed):
    shown = f"--gin.run.{name}={value}"
    assert faults(f"run.{name} = {value}") == [f"run.{name}={value} ({shown}) must be {allowed}"]


@pytest.mark.parametrize(
    "binding",
    [
        "rate = 1",
        "period = None",
        "names = ['a', 'b']",
        "names = ('a', %TEXT)",
        "pair = (1, 2)",
        "lengths = {'inputs': 3}",
        "model = @Model()",
        "make = @Model",
        "unreadable = 3",
        "open = 'x'",
        "plain = 3",
        "choice = (1, 2)",
        "choice = 'all'",
        "steps = @Model()",
    ],
)
def test_value_that_the_type_allows(binding):
    config.load(["run.gin"], [f"run.{binding}", *(["TEXT = 'b'"] if "%" in binding else [])])


def test_macro_is_named_once_with_a_parameter_that_it_sets():
    assert faults("STEPS = '5'", "run.steps = %STEPS", "run.period = %STEPS") == [
        "STEPS='5' (--gin.STEPS='5') must be an integer: it is steps of value_fake.run"
    ]


def test_all_wrong_values_come_at_once_with_what_is_missing():
    assert len(faults("run.steps = 'x'", "run.rate = 'y'", "Model.width = 'z'")) == 3
