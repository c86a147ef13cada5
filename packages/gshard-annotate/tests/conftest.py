"""Eight virtual CPU devices, set before anything starts JAX's backend."""

import contextlib
import os

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time here; code for small arrays need not be fast. Without the newer
# emitters XLA compiles in two thirds of the time; what the caller has set goes before.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def mesh():
    from gshard_annotate import make_mesh

    return make_mesh({"data": 2, "expert": 4})


@pytest.fixture
def refused():
    """A context that expects an error with exactly this message, JAX's own notes set aside."""

    @contextlib.contextmanager
    def expect(message, kind=ValueError):
        with pytest.raises(kind) as caught:
            yield
        assert str(caught.value) == message

    return expect
