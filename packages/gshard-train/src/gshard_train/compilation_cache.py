"""JAX's persistent compilation cache in a run's directory: a restart compiles nothing."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from absl import logging
from jax.experimental.compilation_cache import compilation_cache

from gshard_train import disk_faults

DEFAULT_DIRECTORY = "compilation_cache"
_NOT_WRITTEN = "Error writing persistent compilation cache entry"
_HIT, _MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"
_OPTIONS = {
    # Everything: the many small programs of a start take seconds together.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextlib.contextmanager
def use(directory: str | None, *, model_dir: str) -> Iterator[None]:
    """A `with` block in which what is compiled is kept, and looked up first.

    Where JAX has a cache already (JAX_COMPILATION_CACHE_DIR), it stays as it is.

    Args:
      directory: below `model_dir` where it is relative; None for no cache.
      model_dir: the run's directory.
    """
    if (kept := getattr(jax.config, "jax_compilation_cache_dir", None)) is not None:
        logging.info("Compiled programs are kept in %s, as JAX was told.", kept)
        yield
        return
    if directory is None:
        yield
        return
    path = directory if "://" in directory else str(Path(model_dir, directory).absolute())
    before = {name: getattr(jax.config, name) for name in _OPTIONS}
    for name, value in _OPTIONS.items():
        jax.config.update(name, value)
    _set(path)
    try:
        with _told_once(path):
            yield
    finally:
        _set(None)
        for name, value in before.items():
            jax.config.update(name, value)


@contextlib.contextmanager
def watched() -> Iterator[Callable[[], bool]]:
    """A `with` block that gives a function: whether all compiled in it was found in the cache."""
    events: list[str] = []

    def listen(event: str, **_: Any) -> None:
        events.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        yield lambda: _HIT in events and _MISS not in events
    finally:
        jax.monitoring.unregister_event_listener(listen)


def faults(directory: str | None) -> Iterator[str]:
    """Why the cache could not be written; the run's directory, if it is there, is not looked at."""
    if directory is not None and (not isinstance(directory, str) or not directory):
        yield f"compilation_cache_dir={directory!r} names no directory; use None for no cache"
        return
    if directory is None or "://" in directory or not Path(directory).is_absolute():
        return
    there = disk_faults.nearest(directory)
    if not there.is_dir():
        yield f"compilation_cache_dir={directory!r}: {there} is a file; give a directory or None"
    elif not os.access(there, os.W_OK | os.X_OK):
        why = "a read-only mount at" if disk_faults.is_read_only(there) else "no permission for"
        yield f"compilation_cache_dir={directory!r} cannot be written: {why} {there}"


@contextlib.contextmanager
def _told_once(path: str) -> Iterator[None]:
    """One line where programs cannot be kept, as on a full disk; JAX warns of each by itself."""
    before, told = warnings.showwarning, False

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        nonlocal told
        if not str(message).startswith(_NOT_WRITTEN):
            before(message, *rest, **more)
        elif not told:
            told = True
            why = str(message).partition("': ")[2]
            logging.warning("Compiled programs cannot be kept in %s: %s", path, why)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _set(path: str | None) -> None:
    """JAX opens its cache once; it has to be told that the directory is another."""
    jax.config.update("jax_compilation_cache_dir", path)
    compilation_cache.reset_cache()
