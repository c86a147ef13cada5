"""Which steps are traced."""

import jax
import pytest

from gshard_train.monitoring import profiling
from gshard_train.monitoring.profiling import Profiler


@pytest.fixture
def traces(monkeypatch):
    """Starts and ends of traces, with the step that was the newest then."""
    seen = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda path: seen.append(("start", path)))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: seen.append("stop"))
    return seen


def run(profiler, traces, steps):
    """Makes steps, each of which leaves its number among the traces."""
    with profiler:
        for step in steps:
            profiler.before(step, ())
            traces.append(step)
            profiler.after(step, ())


def test_from_the_first_step_to_the_last(tmp_path, traces):
    run(Profiler(str(tmp_path), (3, 4), start=1, total=6), traces, range(2, 7))
    assert traces == [2, ("start", tmp_path / "profile"), 3, 4, "stop", 5, 6]


def test_a_run_that_ends_earlier_ends_the_trace(tmp_path, traces):
    run(Profiler(str(tmp_path), (2, 9), start=0, total=3), traces, range(1, 4))
    assert traces[-1] == "stop"


def test_no_steps_and_steps_of_an_earlier_run_trace_nothing(tmp_path, traces, caplog):
    run(Profiler(str(tmp_path), (), start=0, total=2), traces, [1, 2])
    assert (traces, caplog.messages) == ([1, 2], [])
    run(Profiler(str(tmp_path), (3, 4), start=5, total=7), traces, [6, 7])
    assert traces == [1, 2, 6, 7]
    assert caplog.messages == [
        "profile_steps=(3, 4): this run makes the steps 6 to 7 and begins no profile."
    ]


@pytest.mark.parametrize("steps", [(5,), (0, 3), (4, 3), (1, 2, 3), (1.0, 2.0), 5, "10"])
def test_steps_that_cannot_be_are_refused(steps):
    assert not list(profiling.faults([10, 15]))
    assert not list(profiling.faults(()))
    (fault,) = profiling.faults(steps)
    assert fault == (
        f"profile_steps={steps!r} must be the first and the last step to trace, both counted from "
        "1, such as (10, 15), or () for none"
    )
