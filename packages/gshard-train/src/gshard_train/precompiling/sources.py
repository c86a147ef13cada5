"""What a compiled program depends on beside its job: our own sources, the compiler, its flags.

Results that are kept in files are taken again only while all of it is the same.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
from pathlib import Path

_PACKAGES = ("gshard_annotate", "gshard_moe", "gshard_train")
_KINDS = ("*.py", "*.gin")
_LIBRARIES = ("jax", "jaxlib", "libtpu", "flax", "optax")
# Variables that the compiler reads.
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Where it writes down its steps changes no program; the other JAX itself sets wherever there are
# TPUs (jax/_src/cloud_tpu_init.py), so that no program would be the same there.
_NOT_COUNTED = ("--xla_dump", "--xla_tpu_use_enhanced_launch_barrier")


@functools.cache
def sources() -> str:
    """A hash of our packages' code and gin files; one that is installed to edit has one version."""
    digest = hashlib.sha256()
    for name in _PACKAGES:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent
        for file in sorted(each for kind in _KINDS for each in folder.rglob(kind)):
            digest.update(f"{name}/{file.relative_to(folder).as_posix()}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def versions() -> dict[str, str]:
    """Of what makes programs; a library that is not installed is left out."""
    found = {}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def compiler_flags() -> dict[str, str]:
    """Flags of the compiler, by the variable of the environment that sets them."""
    found = {}
    for name in _VARIABLES:
        given = os.environ.get(name, "").split()
        if flags := [one for one in given if not one.startswith(_NOT_COUNTED)]:
            found[name] = " ".join(flags)
    return found
