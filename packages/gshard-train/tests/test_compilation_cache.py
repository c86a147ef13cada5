"""Programs that are kept for the next start."""

import jax
import jax.numpy as jnp
import pytest

from gshard_train import compilation_cache


@pytest.fixture
def misses():
    """Names of the events of this test that a program was not in the cache."""
    seen = []

    def listen(name, **_):
        if name == "/jax/compilation_cache/cache_misses":
            seen.append(name)

    jax.monitoring.register_event_listener(listen)
    yield seen
    jax.monitoring.unregister_event_listener(listen)


def compile_something(number):
    jax.jit(lambda x: x * number + 1)(jnp.arange(7)).block_until_ready()


def test_the_second_start_finds_what_the_first_compiled(tmp_path, misses):
    before = jax.config.jax_compilation_cache_dir
    with compilation_cache.use("programs", model_dir=str(tmp_path)):
        compile_something(41)
    assert list((tmp_path / "programs").iterdir())
    assert misses
    misses.clear()
    jax.clear_caches()
    with compilation_cache.use("programs", model_dir=str(tmp_path)):
        compile_something(41)
        assert misses == []
        compile_something(43)
        assert len(misses) == 1
    assert jax.config.jax_compilation_cache_dir == before


def test_none_keeps_nothing_and_a_directory_of_jax_s_own_stays(tmp_path):
    with compilation_cache.use(None, model_dir=str(tmp_path)):
        compile_something(47)
    assert not list(tmp_path.iterdir())
    with compilation_cache.use(str(tmp_path / "outer"), model_dir="unused"):
        with compilation_cache.use("inner", model_dir=str(tmp_path)):
            compile_something(53)
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "outer")
    assert [path.name for path in tmp_path.iterdir()] == ["outer"]


def test_directories_that_cannot_be_are_named(tmp_path):
    (tmp_path / "file").write_text("x")
    assert list(compilation_cache.faults("")) == [
        "compilation_cache_dir='' names no directory; use None for no cache"
    ]
    below = str(tmp_path / "file" / "cache")
    assert list(compilation_cache.faults(below)) == [
        f"compilation_cache_dir={below!r}: {tmp_path / 'file'} is a file; give a directory or None"
    ]
    assert not list(compilation_cache.faults(None))
    assert not list(compilation_cache.faults("gs://bucket/cache"))
