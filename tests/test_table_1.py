"""The model files against the paper's Table 1: layers, experts, parameters, batches, machines.

Shapes only: nothing is allocated. Numbers of parameters are those printed and, to two digits behind
the point, what the sizes of the paper's appendix A.2 give with one table for each vocabulary. Ours
has a second one for the target's, the output's, and learned positions; the paper does not say.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import pytest
from jax.sharding import AbstractMesh, AxisType

from gshard_train import config, state
from gshard_train.experiment import Experiment, prepare
from gshard_train.optimizer import resolved

RUN = "gshard_train/configs/runs/train.gin"
TASK = ["MIXTURE_OR_TASK_NAME = 'a'", "TRAIN_STEPS = 1"]


class Row(NamedTuple):
    """One line of the table: in billions what is in billions, batches in source tokens."""

    layers: int
    experts: int
    moe_layers: int
    printed: float
    expert_params: float
    other_params: float
    batch_tokens: int
    cores: int


TABLE = {
    "moe_2048e_60l": Row(60, 2048, 30, 1000, 1030.8, 1.42, 1 << 22, 2048),
    "moe_2048e_36l": Row(36, 2048, 18, 600, 618.5, 0.89, 1 << 22, 2048),
    "moe_2048e_12l": Row(12, 2048, 6, 200, 206.2, 0.36, 1 << 22, 2048),
    "moe_512e_36l": Row(36, 512, 18, 150, 154.6, 0.86, 1 << 20, 512),
    "moe_512e_12l": Row(12, 512, 6, 50, 51.5, 0.35, 1 << 20, 512),
    "moe_128e_36l": Row(36, 128, 18, 37, 38.7, 0.86, 1 << 20, 128),
    "moe_128e_12l": Row(12, 128, 6, 12.5, 12.9, 0.35, 1 << 20, 128),
    "dense_96l": Row(96, 0, 0, 2.3, 0.0, 2.31, 1 << 22, 2048),
}


def described(name: str, *bindings: str) -> Experiment:
    """The experiment of a model file, as the training would get it."""
    files = [f"gshard_train/configs/models/{name}.gin", RUN]
    loaded = config.load(files, ["MODEL_DIR = 'not_there'", *TASK, *bindings])
    return loaded.arguments("gshard_train.training.train")["experiment"]


def billions(model: state.Model) -> tuple[float, float]:
    """Parameters in experts, and all others."""
    names = jax.tree.leaves(model.names(), is_leaf=lambda node: isinstance(node, tuple | list))
    shapes = jax.tree.leaves(model.shapes())
    experts = other = 0
    for dimensions, leaf in zip(names, shapes, strict=True):
        if {"expert", "mlp"} <= set(dimensions):
            experts += math.prod(leaf.shape)
        else:
            other += math.prod(leaf.shape)
    return experts / 1e9, other / 1e9


@pytest.mark.parametrize("name", TABLE)
def test_model_file_says_what_the_table_says(name: str) -> None:
    row, experiment = TABLE[name], described(name)
    model = experiment.model
    assert model.num_encoder_layers == model.num_decoder_layers == row.layers // 2
    assert (model.embed, model.mlp, model.num_experts) == (1024, 8192, row.experts)
    experts, other = billions(state.abstract_model(model))
    assert experts == row.moe_layers * row.experts * 2 * 1024 * 8192 / 1e9
    assert experts == pytest.approx(row.expert_params, abs=0.05)
    output_and_positions = (32_000 * 1024 + 2 * 1024 * 1024) / 1e9
    assert other - output_and_positions == pytest.approx(row.other_params, abs=0.006)
    assert experts + other == pytest.approx(row.printed, rel=0.075)
    tokens = experiment.batch_size * experiment.task_feature_lengths["inputs"]
    assert tokens == row.batch_tokens


@pytest.mark.parametrize("name", TABLE)
def test_model_fits_its_mesh(name: str) -> None:
    """Everything that is checked before a device holds an array, on as many devices as it says."""
    axes = config_axes(name)
    assert math.prod(axes.values()) == TABLE[name].cores
    kinds = (AxisType.Auto,) * len(axes)
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=kinds)
    experiment = dataclasses.replace(described(name), make_mesh=lambda: mesh)
    assert prepare(experiment).mesh is mesh


def config_axes(name: str) -> dict[str, int]:
    """The mesh that a model file asks for."""
    files = [f"gshard_train/configs/models/{name}.gin", RUN]
    loaded = config.load(files, ["MODEL_DIR = 'not_there'", *TASK])
    return loaded.arguments("gshard_annotate.mesh.make_mesh")["axes"]


def test_macros_of_t5x_reach_what_they_name() -> None:
    experiment = described(
        "moe_128e_12l",
        "LABEL_SMOOTHING = 0.2",
        "LOSS_NORMALIZING_FACTOR = None",
        "DROPOUT_RATE = 0.25",
        "BATCH_SIZE = 256",
        "TASK_FEATURE_LENGTHS = {'inputs': 7, 'targets': 5}",
        "MIXTURE_OR_TASK_MODULE = 'm'",
    )
    assert experiment.loss.label_smoothing == 0.2
    assert experiment.loss.loss_normalizing_factor is None
    assert experiment.model.dropout_rate == 0.25
    assert experiment.batch_size == 256
    assert experiment.task_feature_lengths == {"inputs": 7, "targets": 5}
    assert (experiment.mixture_or_task_name, experiment.mixture_or_task_module) == ("a", "m")
    assert experiment.model_dir == "not_there"


def test_optimizer_and_loss_are_the_papers() -> None:
    """Adafactor without momentum, for which nothing is kept."""
    experiment = described("moe_128e_12l")
    assert experiment.loss.label_smoothing == 0.1
    model = state.abstract_model(experiment.model)
    optimizer = resolved(experiment.optimizer, model.names())
    kept = jax.eval_shape(optimizer.init, model.shapes())
    sizes = [math.prod(leaf.shape) for leaf in jax.tree.leaves(kept)]
    params = [math.prod(leaf.shape) for leaf in jax.tree.leaves(model.shapes())]
    assert sum(sizes) < sum(params) / 100
