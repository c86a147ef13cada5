"""Eight virtual CPU devices for the tests that need more than one package, and what they train."""

import gc
import os
from typing import Any

import jax
import numpy as np
import pytest

# Our packages are imported where they are used: gshard-moe's tests import it later, and checked.

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time here; code for small arrays need not be fast. Without the newer
# emitters XLA compiles in two thirds of the time; what the caller has set goes before.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
jax.config.update("jax_disable_most_optimizations", True)
# Tracing makes many objects that stay: looking through them again and again finds little.
gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session")
def make_batch():
    """A function that gives a batch of random tokens whose rows differ in length."""
    from gshard_train.data import shift_right

    def make(rows: int, sources: tuple[int, int], targets: tuple[int, int]) -> dict[str, Any]:
        """Of each side the size of the vocabulary, and the length."""
        rng = np.random.default_rng(0)
        source, target = (
            rng.integers(2, size, (rows, length), dtype=np.int32)
            for size, length in (sources, targets)
        )
        for row in range(rows):
            source[row, 1 + row % sources[1] :] = 0
            target[row, 1 + row % targets[1] :] = 0
        return {
            "encoder_input_tokens": source,
            "decoder_input_tokens": shift_right(target),
            "decoder_target_tokens": target,
            "decoder_loss_weights": (target != 0).astype(np.int32),
        }

    return make


@pytest.fixture(scope="session")
def random_params():
    """A function that gives parameters of a model without compiling what would draw them."""
    from gshard_train import state

    def make(config: Any) -> Any:
        rng = np.random.default_rng(1)
        return jax.tree.map(
            lambda leaf: rng.normal(0.0, 0.3, leaf.shape).astype(np.float32),
            state.abstract_model(config).shapes(),
        )

    return make
