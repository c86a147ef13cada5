"""Eight virtual CPU devices for the tests that need more than one package."""

import os

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time here; code for small arrays need not be fast. Without the newer
# emitters XLA compiles in two thirds of the time; what the caller has set goes before.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
jax.config.update("jax_disable_most_optimizations", True)
