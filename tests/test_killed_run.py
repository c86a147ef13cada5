"""A run that is killed while it saves, twice, and goes on: nothing is lost and nothing repeated.

A mixture, packed and shuffled, with dropout and a random second expert.
"""

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

# gshard-train without TensorBoard and pictures, whose imports take longer than the steps. It keeps
# the names of each batch's examples, and ends itself (kill -9) when a checkpoint that is written
# would get its name, or has begun to be written.
PROGRAM = """
import json, os, signal, sys
sys.modules |= {"clu": None, "matplotlib": None}
from gshard_m4.feed import Feed
from gshard_train import train

given = Feed.__next__
def kept(feed):
    position = feed.get_state()
    names = feed.examples(position)
    with open(os.environ["FED"], "a") as file:
        print(json.dumps([position["next_index"], names]), file=file)
    return given(feed)
Feed.__next__ = kept

def watch(event, arguments):
    if event == os.environ.get("KILLED_AT") and os.environ["KILLED_IN"] in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
train.run()
"""
BINDINGS = [
    "TRAIN_STEPS = 6",
    "CHECKPOINT_PERIOD = 2",
    "train.log_period = 1",
    "BATCH_SIZE = 8",
    "TASK_FEATURE_LENGTHS = {'inputs': 24, 'targets': 20}",
    "feed.training_feed.packing = @feed.Packing()",
    "TransformerConfig.num_experts = 4",
    "TransformerConfig.embed = 12",
    "TransformerConfig.mlp = 20",
    "TransformerConfig.head_dim = 8",
    "DROPOUT_RATE = 0.1",
    "make_mesh.axes = {'data': 1, 'expert': 2}",
    "make_mesh.cpu_devices = 2",
]
WHEN_NAMED = {"KILLED_AT": "os.rename", "KILLED_IN": "checkpoints/4.orbax-checkpoint-tmp"}
WHEN_BEGUN = {"KILLED_AT": "os.mkdir", "KILLED_IN": "checkpoints/6.orbax-checkpoint-tmp"}


def start(model_dir: pathlib.Path, **kill: str) -> subprocess.Popen[str]:
    """Starts the run, or starts it again."""
    command = [sys.executable, "-c", PROGRAM, "--gin_file=gshard_m4/configs/quickstart.gin"]
    bindings = [*BINDINGS, f"MODEL_DIR = '{model_dir}'"]
    environment = {
        "FED": f"{model_dir}.fed",
        "JAX_COMPILATION_CACHE_DIR": str(model_dir.parent / "compiled"),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    return subprocess.Popen(
        [*command, *(f"--gin_bindings={binding}" for binding in bindings)],
        env={**os.environ, **environment, **kill},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> int:
    said, _ = process.communicate(timeout=1200)
    print(said)
    return process.returncode


def fed(model_dir: pathlib.Path) -> list[tuple[int, list[str]]]:
    """Index and names of each batch that was read, some of them ahead of the steps."""
    text = pathlib.Path(f"{model_dir}.fed").read_text()
    return [tuple(json.loads(line)) for line in text.splitlines()]


def losses(model_dir: pathlib.Path) -> dict[int, Any]:
    names = ("loss", "total_loss", "gradient_norm", "update_norm", "accuracy", "dropped")
    lines = map(json.loads, (model_dir / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: [line[name] for name in names] for line in lines}


@pytest.mark.slow
def test_a_run_killed_while_it_saves_goes_on_as_if_it_had_not_been(tmp_path: pathlib.Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert ended(start(whole)) == 0
    assert ended(start(killed, **WHEN_NAMED)) == -9
    assert list(killed.glob("checkpoints/4.orbax*tmp*"))
    assert ended(start(killed, **WHEN_BEGUN)) == -9
    assert ended(start(killed)) == 0
    assert list(losses(killed)) == [1, 2, 3, 4, 5, 6]
    assert losses(killed) == losses(whole)  # to the last bit
    names = dict(fed(whole))
    assert all(names[index] == found for index, found in fed(killed) if index in names)
    # Where each start begins to read is the step of its checkpoint: 0, 2 and 4.
    order = [index for index, _ in fed(killed)]
    assert [b for a, b in zip([-1, *order], order, strict=False) if b != a + 1] == [2, 4]
