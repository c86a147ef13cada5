"""Scalars on disk."""

import json
import logging
import subprocess
import sys
import threading
import types
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from gshard_train.metrics import MetricsWriter


class Events:
    """Stands for clu's writer, whose import loads TensorFlow."""

    written: ClassVar[list] = []

    def __init__(self, directory):
        self.directory = directory

    def write_scalars(self, step, scalars):
        Events.written.append((step, scalars))

    def flush(self):
        pass

    def close(self):
        Events.written.append("closed")


@pytest.fixture(autouse=True)
def events(monkeypatch):
    Events.written = []
    module = types.SimpleNamespace(SummaryWriter=Events)
    monkeypatch.setitem(sys.modules, "clu.metric_writers", module)
    return Events


def read(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_one_object_a_line_step_first_numbers_as_json(tmp_path, events):
    with MetricsWriter(tmp_path) as writer:
        writer.write(5, {"loss": jnp.float32(1.5), "count": 3, "rate": np.float64(1e-5)})
        assert len(read(tmp_path)) == 1  # on disk at once
        writer.write(10, {"loss": 1})
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert lines == [
        '{"step": 5, "loss": 1.5, "count": 3, "rate": 1e-05}',
        '{"step": 10, "loss": 1}',
    ]
    assert events.written == [
        (5, {"loss": 1.5, "count": 3, "rate": 1e-05}),
        (10, {"loss": 1}),
        "closed",
    ]


def test_values_that_are_not_finite_are_null_and_warned_about(tmp_path, caplog):
    with MetricsWriter(tmp_path) as writer:
        writer.write(7, {"loss": float("nan"), "norm": float("inf"), "rate": 0.5})
    assert read(tmp_path) == [{"step": 7, "loss": None, "norm": None, "rate": 0.5}]
    assert "Step 7: loss is nan, norm is inf." in caplog.text


@pytest.mark.parametrize("end", ["", '{"step": 25, "lo', '{"step": 25, "loss"\n'])
def test_resume_drops_later_lines_and_one_cut_short(tmp_path, end):
    with MetricsWriter(tmp_path) as writer:
        for step in (10, 20, 30):
            writer.write(step, {"loss": float(step)})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + end)
    with MetricsWriter(tmp_path, start_step=20) as writer:
        assert [line["step"] for line in read(tmp_path)] == [10, 20]
        writer.write(30, {"loss": 0.0})
    assert [line["step"] for line in read(tmp_path)] == [10, 20, 30]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_new_run_in_the_same_directory_starts_the_file_anew(tmp_path):
    for _ in range(2):
        with MetricsWriter(tmp_path) as writer:
            writer.write(1, {"loss": 0.0})
    assert len(read(tmp_path)) == 1


def test_steps_come_in_order_and_once(tmp_path):
    with MetricsWriter(tmp_path, start_step=4) as writer:
        writer.write(5, {})
        with pytest.raises(ValueError, match="step 5 comes after step 5; write the steps"):
            writer.write(5, {})


def test_a_run_goes_on_without_tensorboard(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "clu.metric_writers", None)  # its import fails
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"loss": 2.0})
        writer.write(2, {"loss": 1.0})
    assert len(read(tmp_path)) == 2
    assert [r.message for r in caplog.records if r.levelno == logging.WARNING] == [
        "TensorBoard's events are no longer written."
    ]


def test_writing_does_not_wait_for_the_import(tmp_path, monkeypatch, events):
    imported = threading.Event()

    class Slow(Events):
        def __init__(self, directory):
            assert imported.wait(timeout=30)

    module = types.SimpleNamespace(SummaryWriter=Slow)
    monkeypatch.setitem(sys.modules, "clu.metric_writers", module)
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"loss": 2.0})
        assert (read(tmp_path), events.written) == ([{"step": 1, "loss": 2.0}], [])
        imported.set()
    assert events.written == [(1, {"loss": 2.0}), "closed"]


@pytest.mark.slow
def test_events_of_the_real_writer_can_be_read(tmp_path):
    code = """
import glob, sys
from gshard_train.metrics import MetricsWriter
with MetricsWriter(sys.argv[1]) as writer:
    writer.write(3, {"loss": 0.25})
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray
(path,) = glob.glob(sys.argv[1] + "/events.out.tfevents.*")
for event in EventFileLoader(path).Load():
    for value in event.summary.value:
        print(event.step, value.tag, make_ndarray(value.tensor))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "3 loss 0.25\n"
