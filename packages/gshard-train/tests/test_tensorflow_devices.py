"""TensorFlow stays off the GPUs."""

import sys
import types

import pytest

from gshard_train import tensorflow_devices


@pytest.fixture
def hidden(monkeypatch):
    """What a fake TensorFlow was told, beside a JAX on GPUs."""
    told = []
    config = types.SimpleNamespace(set_visible_devices=lambda *given: told.append(given))
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    monkeypatch.setattr(tensorflow_devices.jax, "default_backend", lambda: "gpu")
    tensorflow_devices._hide.cache_clear()
    yield told, config
    tensorflow_devices._hide.cache_clear()


def test_gpus_are_hidden_once(hidden):
    told, _ = hidden
    tensorflow_devices.hide_gpus()
    tensorflow_devices.hide_gpus()
    assert told == [([], "GPU")]


def test_a_tensorflow_that_has_started_is_left_alone(hidden, caplog):
    def refuse(*_):
        raise RuntimeError("Visible devices cannot be modified after being initialized")

    hidden[1].set_visible_devices = refuse
    tensorflow_devices.hide_gpus()
    assert caplog.messages == [
        "TensorFlow keeps its GPUs, and memory on them: "
        "Visible devices cannot be modified after being initialized"
    ]


def test_beside_a_cpu_it_is_not_imported(hidden, monkeypatch):
    monkeypatch.setattr(tensorflow_devices.jax, "default_backend", lambda: "cpu")
    tensorflow_devices.hide_gpus()
    assert hidden[0] == []
