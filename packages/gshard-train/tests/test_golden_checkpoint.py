"""A checkpoint that version 0.1.0 wrote, which every later version has to read or refuse by name.

`python test_golden_checkpoint.py` writes it anew, for a version that has a format of its own.
"""

import pathlib
import sys
import tarfile
import tempfile
import zlib
from typing import Any

import jax
import numpy as np

from gshard_annotate import make_mesh
from gshard_train import layouts, state
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.stored import Stored
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adafactor, resolved

GOLDEN = pathlib.Path(__file__).parent / "goldens" / "checkpoint_0_1_0.tar.xz"
STEP, POSITION, CONFIG_TEXT, IDENTITY = 7, {"next_index": 7}, "# 0.1.0\n", {"seed": 3}
CONFIG = TransformerConfig(
    source_vocab_size=6,
    target_vocab_size=10,
    max_length=5,
    embed=4,
    mlp=8,
    num_heads=2,
    head_dim=3,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_experts=2,
    num_groups=2,
)


def wanted(**axes: int) -> state.TrainState:
    """What to restore into; saved it was on two devices."""
    model = state.abstract_model(CONFIG)
    # Some matrices are factored, others keep their whole moment.
    optimizer = resolved(adafactor(1.0, min_dim_size_to_factor=5), model.names())
    mesh = make_mesh(axes, devices=jax.devices()[: int(np.prod(list(axes.values())))])
    return state.abstract_state(model, optimizer, layouts.gshard(), mesh)


def numbers(path: Any, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    """What the array of this name was filled with."""
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    entries = np.arange(leaf.size).reshape(leaf.shape) % 7 + zlib.crc32(name.encode()) % 100
    return entries.astype(leaf.dtype)


def test_a_checkpoint_of_0_1_0_is_read_whole(tmp_path):
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    target = wanted(data=1, expert=1)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest_step() == STEP
        restored, position = checkpointer.restore(STEP, target)
        assert Stored(tmp_path).run(STEP)["config"] == CONFIG_TEXT
        assert checkpointer.feed_identity(STEP) == IDENTITY
    assert position == POSITION
    expected = jax.tree_util.tree_map_with_path(numbers, target)
    jax.tree.map(np.testing.assert_array_equal, restored, expected)


def write() -> None:
    """Writes the checkpoint with this version."""
    jax.config.update("jax_num_cpu_devices", 2)
    made = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jax.device_put(numbers(path, leaf), leaf.sharding),
        wanted(data=1, expert=2),
    )
    GOLDEN.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with Checkpointer(folder, asynchronous=False) as checkpointer:
            checkpointer.save(STEP, made, POSITION, config=CONFIG_TEXT, identity=IDENTITY)
        with tarfile.open(GOLDEN, "w:xz", preset=9) as archive:
            archive.add(pathlib.Path(folder, "checkpoints"), "checkpoints")


if __name__ == "__main__":
    sys.exit(write())
