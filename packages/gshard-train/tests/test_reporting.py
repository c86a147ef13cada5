"""What is reported of the steps, when, and at what cost."""

import json
import types

import jax.numpy as jnp
import numpy as np
import pytest

from gshard_train.monitoring import hosts, reporting
from gshard_train.monitoring.guard import Guard
from gshard_train.monitoring.reporting import Reporter
from gshard_train.monitoring.stopwatch import Stopwatch
from gshard_train.nonfinite import Piece


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(reporting.time, "monotonic", clock)
    return clock


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    loads = []
    fake = types.SimpleNamespace(
        scalars=lambda *_: None, load=lambda *load: loads.append(load), close=lambda: None
    )
    monkeypatch.setattr("gshard_train.monitoring.metrics.TensorBoard", lambda _: fake)
    return loads


def reporter(tiny, tmp_path, clock, **options):
    experiment = types.SimpleNamespace(
        model_dir=str(tmp_path), model=tiny, task_feature_lengths={"inputs": 6, "targets": 5}
    )
    model = types.SimpleNamespace(
        names=lambda: {"output": ("embed", "vocab")},
        shapes=lambda: {"output": jnp.zeros((3, 5))},
    )
    prepared = types.SimpleNamespace(mesh=types.SimpleNamespace(size=8), model=model)
    watch = Stopwatch(clock)
    values = {"start": 0, "total": 10, "log_period": 2, "watch": watch, "began": 40.0, **options}
    return Reporter(experiment, prepared, **values), watch


def step(loss, **values):
    counts = {"source_tokens": 30, "target_tokens": 20, "sequences": 10}
    norms = {"total_loss": loss, "gradient_norm": loss, "update_norm": 1.0, "parameter_norm": 1.0}
    figures = {"loss": loss, **norms, **counts, **values}
    bad = jnp.array([not np.isfinite(loss)])
    flags = {"nonfinite_tensors": bad, "nonfinite_parameters": ~bad & False, "nonfinite": bad[0]}
    made = {name: jnp.asarray(value, jnp.float32) for name, value in figures.items()}
    return made | flags


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def test_a_line_is_written_when_the_next_step_is_under_way(tiny, tmp_path, clock):
    made, _ = reporter(tiny, tmp_path, clock)
    with made:
        for number in (1, 2):
            made.add(number, step(float(number)))
        assert lines(tmp_path) == []
        made.add(3, step(3.0))
        assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(2, 1.5)]
        made.report()
        made.report()
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(2, 1.5), (3, 3.0)]


def test_speed_is_over_the_time_without_stalls_and_the_wait_for_data_is_told(tiny, tmp_path, clock):
    made, watch = reporter(tiny, tmp_path, clock, peak_flops_per_device=1e6)
    with made:
        with made.stall("compile_seconds"):
            clock.now += 20.0
        with watch.part("data"):
            clock.now += 1.0
        clock.now += 3.0
        made.add(1, step(1.0))
        made.add(2, step(1.0))
        made.report()
        with made.stall("checkpoint_stall_seconds"):
            clock.now += 5.0
        clock.now += 7.0
        made.add(3, step(1.0))
        made.report()
    line, next_line = lines(tmp_path)
    assert line["step_seconds"] == 2.0
    assert line["tokens_per_second"] == 2 * 50 / 4.0
    assert line["sequences_per_second"] == 2 * 10 / 4.0
    assert line["data_wait_share"] == 0.25
    assert (line["compile_seconds"], line["checkpoint_stall_seconds"]) == (20.0, 5.0)
    assert next_line["step_seconds"] == 7.0
    assert not {"compile_seconds", "checkpoint_stall_seconds"} & next_line.keys()
    assert line["utilisation"] == pytest.approx(line["tflops_per_device"] * 1e12 / 1e6)
    assert line["host_seconds"] == 2.0


def test_device_hours_go_on_over_restarts_and_count_work_that_was_lost(tiny, tmp_path, clock):
    for start, hours in ((0, 1.0), (2, 0.5)):
        began = clock.now
        made, _ = reporter(tiny, tmp_path, clock, start=start, began=began)
        with made:
            clock.now += 3600 * hours
            made.add(start + 1, step(1.0))
            made.report()
            made.add(start + 3, step(1.0))
            made.report()
        if start == 0:
            assert [line["step"] for line in lines(tmp_path)] == [1, 3]
    assert [line["step"] for line in lines(tmp_path)] == [1, 3, 5]
    last = lines(tmp_path)[-1]
    assert (last["device_hours"], last["device_hours_total"]) == (4.0, 12.0)


def test_load_of_experts_is_added_up_over_steps_and_layers_are_named(
    tiny, tmp_path, clock, no_tensorboard
):
    made, _ = reporter(tiny, tmp_path, clock, repeated_share=lambda: 0.25)
    with made:
        made.add(1, step(1.0, expert_load=[[4, 0, 0, 0], [1, 1, 1, 1], [2, 2, 0, 0]]))
        made.add(2, step(1.0, expert_load=[[0, 4, 0, 0], [1, 1, 1, 1], [0, 2, 2, 0]]))
        made.report()
    ((number, load_LE, layers),) = no_tensorboard
    assert (number, layers) == (2, ["encoder 0", "encoder 2", "decoder 0"])
    np.testing.assert_allclose(load_LE, [[2, 2, 0, 0], [1, 1, 1, 1], [1, 2, 1, 0]])
    (line,) = lines(tmp_path)
    assert (line["expert_load_max"], line["repeated_share"]) == (2.0, 0.25)


def test_a_step_that_is_no_number_is_named_when_the_next_is_added(tiny, tmp_path, clock):
    made, _ = reporter(tiny, tmp_path, clock)
    with made:
        made.add(1, step(1.0))
        made.add(2, step(float("inf")), {"next_index": 1})
        with pytest.raises(FloatingPointError, match="step 2: loss is inf; gradients that are not"):
            made.add(3, step(1.0))
    assert [line["step"] for line in lines(tmp_path)] == [1]  # those before it are not lost


def test_steps_that_are_left_out_are_counted_on_over_a_resume(tiny, tmp_path, clock):
    def guard(left_out):
        pieces = [Piece(("output",), None)]
        examples = [["de 3"]].__getitem__
        return Guard(lambda: pieces, allowed=2, left_out=left_out, examples=examples)

    made, _ = reporter(tiny, tmp_path, clock, guard=guard(0))
    with made:
        for number, loss in enumerate([1.0, float("nan"), 3.0, float("nan")], 1):
            made.add(number, step(loss), 0)
            made.report()
    assert [line["skipped_steps"] for line in lines(tmp_path)] == [0, 1, 1, 2]
    assert made.skipped_steps == 2
    made, _ = reporter(tiny, tmp_path, clock, start=3, log_period=3, guard=guard(1))
    with made:  # one is left: the second that was left out came after the checkpoint
        made.add(4, step(float("nan")), 0)
        made.add(5, step(5.0), 0)
        made.report()
        made.add(6, step(float("nan")), 0)
        with pytest.raises(FloatingPointError, match=r"beside the 2 that train\.skipped_steps"):
            made.report()
    line = lines(tmp_path)[-1]
    assert (line["step"], line["skipped_steps"], line["loss"]) == (5, 2, 5.0)
    assert line["tokens_per_second"] > 0


def test_an_evaluation_joins_the_line_of_its_step(tiny, tmp_path, clock):
    made, _ = reporter(tiny, tmp_path, clock)
    with made:
        made.add(3, step(1.0))
        made.report()
        made.add_figures({"eval/all/loss": 0.5})
    (line,) = lines(tmp_path)
    assert (line["step"], line["loss"], line["eval/all/loss"]) == (3, 1.0, 0.5)


def test_the_slowest_of_several_hosts_is_named(monkeypatch):
    from jax.experimental import multihost_utils

    assert hosts.slowest(1.5) == {"host_seconds": 1.5}
    monkeypatch.setattr("jax.process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda own: np.array([1.0, own, 0.5]))
    assert hosts.slowest(3.0) == {
        "host_seconds": 1.5,
        "slowest_host": 1,
        "slowest_host_seconds": 3.0,
    }
