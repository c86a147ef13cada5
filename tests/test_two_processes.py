"""A run of two processes of four devices, which one process of eight goes on with."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from functools import partial

import jax
import numpy as np
import pytest

from gshard_train import config, state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.experiment import prepare

# gshard-train without TensorBoard and pictures, whose imports take longer than the steps.
PROGRAM = """
import sys
sys.modules |= {"clu": None, "matplotlib": None}
from gshard_train import train
train.run()
"""
FILE = "gshard_m4/configs/quickstart.gin"
SMALL = [
    "TRAIN_STEPS = 2",
    "CHECKPOINT_PERIOD = 1",
    "train.log_period = 1",
    "BATCH_SIZE = 16",
    "TransformerConfig.num_experts = 4",
    "TransformerConfig.embed = 12",
    "TransformerConfig.mlp = 20",
    "TransformerConfig.head_dim = 8",
    "DROPOUT_RATE = 0.1",
]


def here(model_dir: pathlib.Path) -> None:
    """Trains in this process, on its eight devices."""
    bindings = [*SMALL, f"MODEL_DIR = '{model_dir}'"]
    config.load([FILE], bindings).call("gshard_train.training.train")


def start(model_dir: pathlib.Path, index: int, port: int) -> subprocess.Popen[str]:
    """Starts one of two processes with four devices each."""
    bindings = [*SMALL, f"MODEL_DIR = '{model_dir}'"]
    command = [sys.executable, "-c", PROGRAM, f"--gin_file={FILE}"]
    command += [f"--gin_bindings={binding}" for binding in bindings]
    command += ["--gin.make_mesh.cpu_devices=4", f"--coordinator_address=localhost:{port}"]
    command += ["--process_count=2", f"--process_index={index}"]
    return subprocess.Popen(
        command,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def lines(model_dir: pathlib.Path) -> list[dict[str, float]]:
    """What `metrics.jsonl` says, without what is measured in seconds."""
    read = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    names = ("step", "loss", "total_loss", "gradient_norm", "balance_loss", "dropped", "accuracy")
    return [{name: line[name] for name in names} for line in read]


def saved(model_dir: pathlib.Path, step: int) -> state.TrainState:
    """The whole state of a step, read by one process."""
    bindings = [*SMALL, f"MODEL_DIR = '{model_dir}'"]
    experiment = config.load([FILE], bindings).arguments("gshard_train.training.train")[
        "experiment"
    ]
    prepared = prepare(experiment)
    wanted = state.abstract_state(
        prepared.model, prepared.optimizer, experiment.rules, prepared.mesh
    )
    with Checkpointer(model_dir) as checkpointer:
        return jax.device_get(checkpointer.restore(step, wanted)[0])


@pytest.mark.slow
def test_one_process_goes_on_with_the_numbers_of_the_two_that_saved(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "clu", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with socket.socket() as there:
        there.bind(("localhost", 0))
        port = there.getsockname()[1]
    two, one = tmp_path / "two", tmp_path / "one"
    started = [start(two, index, port) for index in (0, 1)]
    for process in started:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert [line["step"] for line in lines(two)] == [1, 2]
    shutil.copytree(two / "checkpoints" / "1", one / "checkpoints" / "1")
    here(one)
    (line,) = lines(one)
    assert line == pytest.approx(lines(two)[1], rel=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), saved(one, 2), saved(two, 2))
