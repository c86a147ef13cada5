"""A T5X-style SPMD trainer for GShard's mixture-of-experts Transformers.

Imports nothing heavy: `--help` and faults in gin files answer before JAX is loaded.
"""

from importlib.metadata import version

__version__ = version("gshard-train")
