"""Scalars on disk."""

import json
import logging
import resource
import shutil
import subprocess
import sys
import threading
import types
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from gshard_train.disk_faults import DiskError
from gshard_train.monitoring.metrics import MetricsWriter


class Events:
    """Stands for clu's writer, whose import loads TensorFlow."""

    written: ClassVar[list] = []
    histograms: ClassVar[list] = []
    images: ClassVar[list] = []

    def __init__(self, directory):
        self.directory = directory

    def write_scalars(self, step, scalars):
        Events.written.append((step, scalars))

    def write_histograms(self, step, arrays):
        Events.histograms.append((step, arrays))

    def write_images(self, step, images):
        (pixels,) = images.values()
        assert pixels.shape[0] == 1
        assert pixels.shape[3] == 3
        Events.images.append(step)

    def flush(self):
        pass

    def close(self):
        Events.written.append("closed")


@pytest.fixture(autouse=True)
def events(monkeypatch):
    Events.written, Events.histograms, Events.images = [], [], []
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


def test_later_scalars_join_the_last_line(tmp_path, events):
    with MetricsWriter(tmp_path) as writer:
        writer.write(5, {"loss": 2.0})
        writer.write(10, {"loss": 1.0})
        writer.add(10, {"eval/all/loss": 1.25, "eval/all/bleu": float("nan")})
        with pytest.raises(ValueError, match="step 5 is not the last one, 10; add to a line"):
            writer.add(5, {})
        writer.write(15, {"loss": 0.5})
    assert read(tmp_path) == [
        {"step": 5, "loss": 2.0},
        {"step": 10, "loss": 1.0, "eval/all/loss": 1.25, "eval/all/bleu": None},
        {"step": 15, "loss": 0.5},
    ]
    assert [step for step, _ in events.written[:-1]] == [5, 10, 10, 15]


def test_the_last_line_of_the_run_before_is_known_even_if_it_is_dropped(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        assert writer.before == {}
        writer.write(5, {"hours": 1.0})
        writer.write(10, {"hours": 2.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 15, "hou')
    with MetricsWriter(tmp_path, start_step=5) as writer:
        assert writer.before == {"step": 10, "hours": 2.0}
    assert [line["step"] for line in read(tmp_path)] == [5]


def test_load_becomes_histograms_and_a_picture_now_and_then(tmp_path, events):
    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write_load(step, np.full((2, 4), float(step)), ["encoder 0", "decoder 0"])
    assert [path.name for path in tmp_path.glob("*.png")] == ["expert_load.png"]
    histograms = [(step, sorted(found)) for step, found in events.histograms]
    names = ["expert_load/decoder 0", "expert_load/encoder 0"]
    assert histograms == [(1, names), (2, names), (3, names)]
    assert events.images == [1, 3]  # the first at once, the newest at the end


def test_without_its_picture_a_run_goes_on(tmp_path, events, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # its import fails
    with MetricsWriter(tmp_path) as writer:
        writer.write_load(1, np.ones((1, 4)), ["encoder 0"])
        writer.write(1, {"loss": 1.0})
    (said,) = [text for text in caplog.messages if text.startswith("expert_load.png")]
    assert said.startswith("expert_load.png is no longer drawn: ModuleNotFoundError: import of")
    assert (1, {"loss": 1.0}) in events.written


def test_a_run_goes_on_without_tensorboard(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "clu.metric_writers", None)  # its import fails
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"loss": 2.0})
        writer.write(2, {"loss": 1.0})
    assert len(read(tmp_path)) == 2
    (said,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert said.startswith("TensorBoard's events are no longer written: ModuleNotFoundError: imp")


def test_lines_that_cannot_be_written_wait_and_are_written_later(tmp_path, caplog):
    """A file that may not grow (RLIMIT_FSIZE) stands for a full disk."""
    path = tmp_path / "metrics.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"loss": 1.0})
        writer.write(2, {"loss": 2.0})
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, limits[1]))
        try:
            writer.add(2, {"bleu": 5.0})
            writer.write(3, {"loss": 3.0})
            writer.write(4, {"loss": 4.0})
            assert len(read(tmp_path)) == 1  # whole lines, or none
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        writer.write(5, {"loss": 5.0})
    assert [line["loss"] for line in read(tmp_path)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert read(tmp_path)[1]["bleu"] == 5.0
    (said,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert said == (
        f"{path} could not be written: File too large; the run goes on, and its lines wait in "
        "memory."
    )


def test_lines_left_over_are_in_the_log_and_a_file_that_was_removed_is_made_anew(tmp_path, caplog):
    directory = tmp_path / "run"
    with MetricsWriter(directory) as writer:
        writer.write(1, {"loss": 1.0})
        (directory / "metrics.jsonl").unlink()
        writer.write(2, {"loss": 2.0})
        assert [line["step"] for line in read(directory)] == [2]
        shutil.rmtree(directory)
        writer.write(3, {"loss": 3.0})
        writer.write(4, {"loss": 4.0})
    (said,) = [r.message for r in caplog.records if r.levelno == logging.ERROR]
    assert said.endswith('{"step": 3, "loss": 3.0}\n{"step": 4, "loss": 4.0}\n')


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError) as error:
        MetricsWriter(tmp_path / "file")
    assert error.value.faults[0] == (
        f"metrics.jsonl could not be written: File exists ({tmp_path / 'file'})"
    )


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
from gshard_train.monitoring.metrics import MetricsWriter
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
