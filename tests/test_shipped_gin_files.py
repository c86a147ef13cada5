"""Every gin file that ships loads in the combinations it is made for, and says what it needs."""

import contextlib
import itertools
import pathlib
import re

import jax
import pytest

from gshard_train import config, state
from gshard_train.errors import UserError
from gshard_train.experiment import open_feed, prepare
from gshard_train.step import make_step

PACKAGES = pathlib.Path(__file__).resolve().parent.parent / "packages"
FILES = sorted(
    str(path.relative_to(path.parents[path.parts[::-1].index("src") - 1]))
    for path in PACKAGES.glob("*/src/**/*.gin")
)
CONFIGS = "gshard_train/configs"
MODELS = [
    file
    for file in FILES
    if file.startswith(f"{CONFIGS}/models/") and not file.endswith(("/base.gin", "/tiny.gin"))
]
LAYOUTS = [file for file in FILES if file.startswith(f"{CONFIGS}/layouts/")]
TINY, FEED = f"{CONFIGS}/models/tiny.gin", "gshard_m4/configs/feed.gin"
QUICKSTART = "gshard_m4/configs/quickstart.gin"
RUNS = {
    "train": "gshard_train.training.train",
    "eval": "gshard_train.evaluating.evaluate",
    "infer": "gshard_train.inference.infer",
    "export": "gshard_train.exporting.export",
}
# What each kind of file leaves to be set; no file of ours asks for anything else.
REQUIRED = {
    "train": ["MODEL_DIR", "MIXTURE_OR_TASK_NAME", "TRAIN_STEPS"],
    "eval": ["MODEL_DIR", "MIXTURE_OR_TASK_NAME"],
    "infer": ["MODEL_DIR", "MIXTURE_OR_TASK_NAME"],
    "export": ["MODEL_DIR", "MIXTURE_OR_TASK_NAME"],
}


def run_file(name: str) -> str:
    """The file of a run."""
    return f"{CONFIGS}/runs/{name}.gin"


def set_all(run: str) -> list[str]:
    """Bindings for everything that a run requires."""
    values = {"TRAIN_STEPS": "3"}
    return [f"{name} = {values.get(name, repr('not_there'))}" for name in REQUIRED[run]]


def required(*files: str) -> list[str]:
    """The macros that these files leave open, as the error message names them."""
    with pytest.raises(UserError) as caught:
        config.load(files)
    found = [re.match(r"(\w+) is (required|used) \(", fault) for fault in caught.value.faults]
    assert all(found), caught.value.faults
    return [match[1] for match in found if match]


def test_every_file_is_in_a_test_of_this_module() -> None:
    bases = {f"{CONFIGS}/models/base.gin", f"{CONFIGS}/runs/base.gin"}
    runs = {run_file(name) for name in RUNS}
    assert set(FILES) == {*MODELS, *LAYOUTS, TINY, FEED, QUICKSTART, *runs, *bases}
    assert len(MODELS) == 8


def test_no_file_includes_more_than_one_deep() -> None:
    root = {file: PACKAGES / file.split("/")[0].replace("_", "-") / "src" / file for file in FILES}
    includes = {
        file: re.findall(r"^include ['\"](.*)['\"]", path.read_text(), re.MULTILINE)
        for file, path in root.items()
    }
    for inner in itertools.chain.from_iterable(includes.values()):
        assert includes[inner] == []


@pytest.mark.parametrize("run", RUNS)
def test_each_run_names_what_it_requires(run: str) -> None:
    assert required(MODELS[0], run_file(run)) == REQUIRED[run]
    assert required(MODELS[0], run_file(run), FEED) == [
        name for name in REQUIRED[run] if name != "MIXTURE_OR_TASK_NAME"
    ]


def test_quickstart_requires_a_directory_only() -> None:
    assert required(QUICKSTART) == ["MODEL_DIR"]


def test_a_run_without_a_model_file_says_so() -> None:
    with pytest.raises(UserError) as caught:
        config.load([run_file("eval")], set_all("eval"))
    first, *_ = caught.value.faults
    assert re.fullmatch(
        r"MODEL is used \(gshard_train/configs/runs/base.gin:\d+\) and not set; add "
        r"--gin_file=gshard_train/configs/models/moe_128e_12l.gin, or another model file, before "
        r"the run file",
        first,
    )


@pytest.mark.parametrize("run", RUNS)
def test_each_run_reaches_its_function_with_any_model(run: str) -> None:
    for model in (MODELS[0], MODELS[-1]):
        loaded = config.load([model, run_file(run)], set_all(run))
        assert loaded.arguments(RUNS[run])["experiment"].batch_size in (4096, 16384)


def test_cached_tasks_are_asked_for_by_one_macro() -> None:
    def cached(run: str):
        bindings = [*set_all(run), "USE_CACHED_TASKS = True"]
        return config.load([MODELS[0], run_file(run)], bindings).arguments(RUNS[run])

    assert cached("train")["evaluation"].use_cached
    assert cached("eval")["evaluation"].use_cached
    assert cached("infer")["use_cached"]
    loaded = config.load([MODELS[0], run_file("train")], set_all("train"))
    assert "SeqioFeed.use_cached = %USE_CACHED_TASKS" in loaded.text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_goes_with_a_model_and_a_run(layout: str) -> None:
    loaded = config.load([MODELS[0], run_file("train"), layout], set_all("train"))
    experiment = loaded.arguments(RUNS["train"])["experiment"]
    plain = config.load([MODELS[0], run_file("train")], set_all("train"))
    assert experiment.rules != plain.arguments(RUNS["train"])["experiment"].rules


@pytest.mark.parametrize("model", [MODELS[0], MODELS[-1]])
def test_tiny_keeps_what_a_model_is(model: str) -> None:
    def described(*files: str):
        loaded = config.load([*files, run_file("train")], set_all("train"))
        return loaded.arguments(RUNS["train"])["experiment"]

    whole, tiny = described(model), described(model, TINY)
    assert tiny.model.embed == 32
    assert (tiny.model.num_experts == 0) == (whole.model.num_experts == 0)
    assert tiny.model.remat == whole.model.remat
    assert tiny.loss == whole.loss
    assert prepare(tiny).mesh.shape == {"data": 2, "expert": 4}


@pytest.mark.parametrize(
    "files",
    [
        (QUICKSTART,),
        (f"{CONFIGS}/models/moe_2048e_36l.gin", TINY, run_file("train"), FEED),
        (f"{CONFIGS}/models/dense_96l.gin", TINY, run_file("train"), FEED),
    ],
)
def test_training_step_lowers(files: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    steps = [] if files == (QUICKSTART,) else ["TRAIN_STEPS = 3"]
    loaded = config.load(files, [f"MODEL_DIR = '{tmp_path / 'run'}'", *steps])
    experiment = loaded.arguments(RUNS["train"])["experiment"]
    prepared = prepare(experiment)
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    step = make_step(*arguments[:2], experiment.loss, *arguments[2:])
    with contextlib.closing(open_feed(experiment, prepared)) as feed:
        batch = next(feed)
    new_state, metrics = step.lower(state.abstract_state(*arguments), batch).out_info
    assert jax.tree.map(lambda x: x.shape, new_state.params) == jax.tree.map(
        lambda x: x.shape, prepared.model.shapes()
    )
    assert metrics["loss"].shape == ()
    assert not (tmp_path / "run").exists()


def test_quickstart_serves_all_runs_alike() -> None:
    loaded = config.load([QUICKSTART], ["MODEL_DIR = 'not_there'"])
    models = [loaded.arguments(RUNS[run])["experiment"].model for run in RUNS]
    assert models == [models[0]] * len(RUNS)
    assert loaded.arguments(RUNS["eval"])["evaluation"].splits == ("test", "unseen")
