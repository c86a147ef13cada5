"""Eight virtual CPU devices, set before anything starts JAX's backend."""

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture
def mesh():
    from gshard_annotate import make_mesh

    return make_mesh({"data": 2, "expert": 4})
