"""A run of two processes of four devices, stopped, which one process of eight goes on with."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import jax
import numpy as np
import pytest

from gshard_train import config, state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.errors import RESTART
from gshard_train.experiment import prepare

# gshard-train without TensorBoard and pictures, whose imports take longer than the steps.
PROGRAM = """
import sys
sys.modules |= {"clu": None, "matplotlib": None}
from gshard_train import train
train.run()
"""
FILE = "gshard_m4/configs/quickstart.gin"
SECONDS = 1200  # far more than a busy machine needs
SMALL = [
    "CHECKPOINT_PERIOD = 1",
    "train.log_period = 1",
    "schedule.warmup_cosine.total_steps = 200",
    "BATCH_SIZE = 16",
    "TransformerConfig.num_experts = 4",
    "TransformerConfig.embed = 12",
    "TransformerConfig.mlp = 20",
    "TransformerConfig.head_dim = 8",
    "DROPOUT_RATE = 0.1",
]


def bindings(model_dir: pathlib.Path, train_steps: int) -> list[str]:
    """Those of a run in a directory."""
    return [*SMALL, f"TRAIN_STEPS = {train_steps}", f"MODEL_DIR = '{model_dir}'"]


def here(model_dir: pathlib.Path, train_steps: int) -> None:
    """Trains in this process, on its eight devices."""
    config.load([FILE], bindings(model_dir, train_steps)).call("gshard_train.training.train")


def start(model_dir: pathlib.Path, index: int, port: int) -> subprocess.Popen[bytes]:
    """Starts one of two processes with four devices each, whose output is a file."""
    command = [sys.executable, "-c", PROGRAM, f"--gin_file={FILE}"]
    command += [f"--gin_bindings={binding}" for binding in bindings(model_dir, 10**6)]
    command += ["--gin.make_mesh.cpu_devices=4", f"--coordinator_address=localhost:{port}"]
    command += ["--process_count=2", f"--process_index={index}", f"--process_timeout={SECONDS}"]
    with output(model_dir, index).open("wb") as file:
        return subprocess.Popen(
            command,
            env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def output(model_dir: pathlib.Path, index: int) -> pathlib.Path:
    """What a process says."""
    return model_dir.with_suffix(f".{index}.txt")


def stopped_by_sigterm_to_one(model_dir: pathlib.Path) -> int:
    """Runs two processes until one of them is sent SIGTERM; the step at which both stop."""
    with socket.socket() as there:
        there.bind(("localhost", 0))
        port = there.getsockname()[1]
    started = [start(model_dir, index, port) for index in (0, 1)]
    try:
        until = time.monotonic() + SECONDS
        while "step 1 of" not in (said := output(model_dir, 0).read_text()):
            assert [each.poll() for each in started] == [None, None], said
            assert time.monotonic() < until, said
            time.sleep(0.05)
        started[1].send_signal(signal.SIGTERM)
        assert [each.wait(SECONDS) for each in started] == [RESTART] * 2
    finally:
        for each in started:
            each.kill()
            each.wait()
    steps = set()
    for index in (0, 1):
        said = output(model_dir, index).read_text()
        (step,) = re.findall(r"SIGTERM: stopped at step (\d+) of 1000000, ", said)
        assert re.search(rf"Saved step {step} \d+\.\d s after SIGTERM", said)
        steps.add(int(step))
    (step,) = steps
    return step


def lines(model_dir: pathlib.Path) -> list[dict[str, float]]:
    """What `metrics.jsonl` says, without what is measured in seconds."""
    read = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    names = ("step", "loss", "total_loss", "gradient_norm", "balance_loss", "dropped", "accuracy")
    return [{name: line[name] for name in names} for line in read]


def saved(model_dir: pathlib.Path, step: int) -> state.TrainState:
    """The whole state of a step, read by one process."""
    loaded = config.load([FILE], bindings(model_dir, step))
    experiment = loaded.arguments("gshard_train.training.train")["experiment"]
    prepared = prepare(experiment)
    wanted = state.abstract_state(
        prepared.model, prepared.optimizer, experiment.rules, prepared.mesh
    )
    with Checkpointer(model_dir) as checkpointer:
        return jax.device_get(checkpointer.restore(step, wanted)[0])


@pytest.mark.slow
def test_two_stop_together_and_one_process_goes_on_with_their_numbers(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "clu", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    two, one = tmp_path / "two", tmp_path / "one"
    step = stopped_by_sigterm_to_one(two)
    assert [line["step"] for line in lines(two)] == list(range(1, step + 1))
    before = f"checkpoints/{step - 1}"
    # Each process has left the sums of its files, though it was the other that it stopped for.
    assert len(list((two / "checkpoints" / str(step)).glob("SHA256SUMS.*-of-2"))) == 2
    shutil.copytree(two / before, one / before)
    here(one, step)
    (line,) = lines(one)
    assert line == pytest.approx(lines(two)[-1], rel=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), saved(one, step), saved(two, step))
