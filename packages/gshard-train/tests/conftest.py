"""Eight virtual CPU devices for every test of this package, and small things to train."""

import gc
import os
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from gshard_annotate import DEFAULT_RULES, make_mesh
from gshard_train import state
from gshard_train.data import shift_right
from gshard_train.models.transformer import TransformerConfig
from gshard_train.optimizer import adam

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time here; code for small arrays need not be fast. Without the newer
# emitters XLA compiles in two thirds of the time; what the caller has set goes before.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
jax.config.update("jax_disable_most_optimizations", True)
# Tracing makes many objects that stay: looking through them again and again finds little.
gc.set_threshold(100_000, 20, 20)

# All sizes differ, so that a swapped axis fails.
TINY = {
    "source_vocab_size": 23,
    "target_vocab_size": 19,
    "max_length": 9,
    "embed": 12,
    "mlp": 20,
    "num_heads": 2,
    "head_dim": 5,
    "num_encoder_layers": 4,
    "num_decoder_layers": 2,
    "num_experts": 4,
    "num_groups": 8,
    "dropout_rate": 0.1,
}


@pytest.fixture(scope="session")
def tiny() -> TransformerConfig:
    """Two pairs of encoder layers, one of decoder layers, four experts."""
    return TransformerConfig(**TINY)


@pytest.fixture(scope="session")
def mesh() -> Mesh:
    """Eight devices: data 2 x expert 4."""
    return make_mesh({"data": 2, "expert": 4})


@pytest.fixture(scope="session")
def one_device() -> Mesh:
    """One device under the same axis names."""
    return make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])


@pytest.fixture(scope="session")
def model(tiny, one_device) -> tuple[state.Model, state.Params]:
    """The tiny model and its first parameters."""
    abstract = state.abstract_model(tiny)
    made = state.create(abstract, adam(1e-3), DEFAULT_RULES, one_device, seed=0)
    return abstract, made.params


@pytest.fixture(scope="session")
def make_batch():
    """A function that gives a batch of random tokens whose rows differ in length."""

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

    def make(config: TransformerConfig) -> state.Params:
        rng = np.random.default_rng(1)
        return jax.tree.map(
            lambda leaf: rng.normal(0.0, 0.3, leaf.shape).astype(np.float32),
            state.abstract_model(config).shapes(),
        )

    return make
