"""Eight virtual CPU devices for the tests that need more than one package."""

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time here; code for small arrays need not be fast.
jax.config.update("jax_disable_most_optimizations", True)
