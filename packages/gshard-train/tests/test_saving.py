"""What a run that trains saves beside its arrays."""

import jax.numpy as jnp

from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.saving import Saver

STATE = {"params": {"w": jnp.arange(5.0)}}


def test_a_step_is_saved_once_with_its_configuration_identity_and_count_of_skipped_steps(tmp_path):
    with Checkpointer(tmp_path, asynchronous=False) as checkpointer:
        saver = Saver(checkpointer, config="X = 1\n", identity={"seed": 7}, newest=None)
        saver.prepare()
        saver.save(3, STATE, {"next_index": 3}, figures={}, skipped_steps=2)
        saver.save(3, None, {}, figures={}, skipped_steps=0)  # would fail if it were saved
        saver.wait()
    found = Checkpointer(tmp_path)
    assert found.latest_step() == saver.newest == 3
    assert found.skipped_steps(3) == 2
    assert found.feed_identity(3) == {"seed": 7}
