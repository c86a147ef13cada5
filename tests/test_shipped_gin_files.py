"""Every gin file that ships loads, and what it describes fits together and lowers to a program."""

import contextlib
import pathlib

import jax
import pytest

from gshard_train import config, state
from gshard_train.experiment import open_feed, prepare
from gshard_train.step import make_step

PACKAGES = pathlib.Path(__file__).resolve().parent.parent / "packages"
FILES = sorted(
    str(path.relative_to(path.parents[path.parts[::-1].index("src") - 1]))
    for path in PACKAGES.glob("*/src/**/*.gin")
)


def test_there_are_files():
    assert "gshard_m4/configs/quickstart.gin" in FILES


@pytest.mark.parametrize("file", FILES)
def test_it_loads_and_its_training_step_lowers(file, tmp_path):
    loaded = config.load([file], [f"MODEL_DIR = '{tmp_path / 'run'}'"])
    experiment = loaded.arguments("gshard_train.training.train")["experiment"]
    assert loaded.arguments("gshard_train.inference.infer")["experiment"].model == experiment.model
    prepared = prepare(experiment)
    arguments = (prepared.model, prepared.optimizer, experiment.rules, prepared.mesh)
    step = make_step(*arguments[:2], experiment.loss, *arguments[2:])
    with contextlib.closing(open_feed(experiment)) as feed:
        batch = next(feed)
    lowered = step.lower(state.abstract_state(*arguments), batch)
    new_state, metrics = lowered.out_info
    assert jax.tree.map(lambda x: x.shape, new_state.params) == jax.tree.map(
        lambda x: x.shape, prepared.model.shapes()
    )
    assert metrics["loss"].shape == ()
    assert not (tmp_path / "run").exists()
