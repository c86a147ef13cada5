"""Eight virtual CPU devices, set before anything starts JAX's backend; shapes are checked."""

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

# Not the modules of pytrees: scan stacks their arrays, and jaxtyping would check them when rebuilt.
CHECKED = ["capacity", "dispatch", "gating", "grouping", "losses"]
with install_import_hook([f"gshard_moe.{name}" for name in CHECKED], "beartype.beartype"):
    import gshard_moe  # noqa: F401


@pytest.fixture(scope="session")
def mesh():
    from gshard_annotate import make_mesh

    return make_mesh({"data": 2, "expert": 4})


@pytest.fixture(scope="session")
def one_device():
    from gshard_annotate import make_mesh

    return make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])
