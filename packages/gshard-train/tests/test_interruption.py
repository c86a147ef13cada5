"""Stopping when asked to: at once noted in one process, agreed upon among several."""

import os
import signal

import jax
from jax.experimental import multihost_utils

from gshard_train.interruption import StopRequest


def test_one_process_notes_the_signal_and_asks_nobody(monkeypatch):
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda step: 1 / 0)
    with StopRequest() as stop:
        stop.agree(3)
        assert stop.name is None
        signal.raise_signal(signal.SIGTERM)
        assert stop.name == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_several_processes_stop_at_the_step_that_they_agree_on(monkeypatch):
    sent = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append((process, number)))
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", lambda step: step == 5)
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert signal.getsignal(signal.SIGTERM) == before  # JAX's own handler
        signal.raise_signal(signal.SIGINT)
        assert sent == [(os.getpid(), signal.SIGTERM)]
        stop.agree(4)
        assert stop.name is None
        stop.agree(5)
        assert stop.name == "SIGTERM"
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
