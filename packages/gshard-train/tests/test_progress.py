"""Lines in a log and a bar on a terminal."""

import io
import logging

import pytest

from gshard_train.monitoring.progress import Progress

FIGURES = {"loss": 3.41234, "tokens_per_second": 48210.4, "dropped": 0.0213, "other": 1.0}


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO, "gshard_train.monitoring.progress")
    return caplog


def test_line_with_step_loss_speed_drops_and_time_left(clock, log):
    with Progress(1000, 2050, stream=io.StringIO(), clock=clock) as progress:
        clock.now += 50.0
        progress.update(1250, FIGURES)
    assert log.messages == [
        "step 1,250 of 2,050   loss 3.412   48,210 tokens/s   dropped 2.1 %   2:40 left"
    ]


def test_share_of_peak_and_slowest_host_are_shown_where_they_are_known(clock, log):
    with Progress(0, 10, stream=io.StringIO(), clock=clock) as progress:
        progress.update(0, {"utilisation": 0.4126, "dropped": 0.01, "slowest_host": 3})
    assert log.messages == ["step 0 of 10   41.3 % of peak   dropped 1.0 %   slowest host 3"]


def test_figures_that_are_not_there_are_left_out(clock, log):
    with Progress(0, 10, stream=io.StringIO(), clock=clock) as progress:
        progress.update(0, {})
        clock.now += 3600.0
        progress.update(5, {"loss": 1.0})
    assert log.messages == ["step 0 of 10   ", "step 5 of 10   loss 1.000   1:00:00 left"]


def test_lines_keep_their_distance_and_the_last_is_shown(clock, log):
    with Progress(0, 100, every_seconds=10.0, stream=io.StringIO(), clock=clock) as progress:
        for step in range(1, 13):
            clock.now += 3.0
            progress.update(step, {})
    assert [line.split()[1] for line in log.messages] == ["1", "5", "9", "12"]


def test_a_slow_first_step_fades_from_the_time_left(clock, log):
    with Progress(0, 100, every_seconds=0.0, stream=io.StringIO(), clock=clock) as progress:
        for step, seconds in enumerate([60.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 1):
            clock.now += seconds
            progress.update(step, {})
    assert log.messages[0].endswith("1:39:00 left")
    assert log.messages[-1].endswith("2:14 left")


def test_bar_starts_where_the_run_does_and_logs_no_line(clock, log):
    terminal = Terminal()
    with Progress(1000, 2000, stream=terminal, clock=clock) as progress:
        clock.now += 10.0
        progress.update(1500, FIGURES)
    last = terminal.getvalue().split("\r")[-1]
    assert last.startswith(" 75 % |")
    assert "| 1,500 of 2,000   loss 3.412   48,210 tokens/s   dropped 2.1 %   0:10 left" in last
    assert log.messages == []


def test_bar_makes_room_for_a_log_line(clock):
    terminal = Terminal()
    handler = logging.StreamHandler(terminal)
    logging.getLogger().addHandler(handler)
    try:
        with Progress(0, 10, stream=terminal, clock=clock) as progress:
            progress.update(5, {})
            logging.getLogger("any").warning("hello")
        assert handler.filters == []
    finally:
        logging.getLogger().removeHandler(handler)
    before = terminal.getvalue().split("hello")[0]
    assert before.endswith("\r")
    assert before.rstrip("\r").split("\r")[-1].strip() == ""
