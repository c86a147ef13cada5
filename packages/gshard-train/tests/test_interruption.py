"""Stopping when asked to: at once before the first step, then noted or agreed upon."""

import os
import queue
import signal

import jax
import pytest

from gshard_train import interruption
from gshard_train.interruption import Interrupted, StopRequest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_before_the_first_step_a_signal_ends_the_process(number, code, capfd, tmp_path):
    ended, told = queue.Queue(), []
    (tmp_path / "8").mkdir()
    (tmp_path / "12.orbax-checkpoint-tmp").mkdir()
    with StopRequest(str(tmp_path), at_once=ended.put) as stop:
        stop.until_begin(doing=lambda: "compiling", leave=told.append)
        signal.raise_signal(number)
        assert ended.get(timeout=20) == code
    assert told == [f"{number.name} while compiling"]
    assert capfd.readouterr().err == (
        f"\ngshard-train: {told[0]}: ended at once; checkpoint 8 is as it was\n"
    )
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_one_process_notes_the_signal_and_asks_nobody(monkeypatch, capfd):
    monkeypatch.setattr(interruption, "_preemption_service", lambda: 1 / 0)
    with StopRequest() as stop:
        stop.begin()
        stop.check()
        assert stop.name is None
        signal.raise_signal(signal.SIGTERM)
        assert (stop.name, stop.exit_code) == ("SIGTERM", 75)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) as caught:
            stop.check()
        assert caught.value.exit_code == 75
        assert stop.seconds >= 0
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert capfd.readouterr().err.split("\n")[1::2] == [
        "gshard-train: SIGTERM: stopping after this step, with a checkpoint; Ctrl-C ends at once",
        "gshard-train: SIGTERM: stopping already",
    ]


def test_ctrl_c_is_no_reason_to_start_again_and_a_second_one_ends_at_once(tmp_path, capfd):
    ended, told = queue.Queue(), []
    (tmp_path / "8").mkdir()
    with StopRequest(str(tmp_path), at_once=ended.put) as stop:
        stop.until_begin(doing=lambda: "training", leave=told.append, step=lambda: 54)
        stop.begin()
        signal.raise_signal(signal.SIGINT)
        assert (stop.name, stop.exit_code) == ("SIGINT", 130)
        assert ended.empty()
        signal.raise_signal(signal.SIGINT)
        assert ended.get(timeout=20) == 130
    assert told == ["SIGINT again while training"]
    assert capfd.readouterr().err.split("\n")[3] == (
        "gshard-train: SIGINT again while training: ended at once; the newest checkpoint is of "
        "step 8, and steps 9-54 are lost"
    )


class Service:
    """As JAX's, whose other processes let all stop at the second point."""

    running = True

    def reached_sync_point(self, point):
        return point == 2

    def shutdown(self):
        self.running = False


def test_several_processes_stop_at_the_point_that_they_agree_on(monkeypatch):
    sent, service = [], Service()
    before = signal.getsignal(signal.SIGINT)  # ignored where a shell started this in the background
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(interruption, "_preemption_service", lambda: service)
    with StopRequest() as stop:
        stop.begin()
        monkeypatch.setattr(os, "kill", lambda process, number: sent.append((process, number)))
        signal.raise_signal(signal.SIGINT)
        assert sent == [(os.getpid(), signal.SIGTERM)]
        stop.agree()
        assert stop.name is None
        stop.agree()
        assert (stop.name, stop.exit_code) == ("SIGINT", 130)
    assert not service.running
    assert signal.getsignal(signal.SIGINT) == before
