"""Several processes that watch each other, here in one, with a clock that is set by hand."""

import contextlib
import threading

import pytest

from gshard_train.errors import PeerLostError
from gshard_train.watchdog import EVALUATING, HELD_OUT, READING, RESTORING, Limits, Watchdog

LIMITS = Limits(silent=10, stuck=60)


class Store(dict):
    """As JAX's coordination service, in memory."""

    def key_value_set(self, key, value, allow_overwrite=False):
        assert allow_overwrite or key not in self
        self[key] = value

    def blocking_key_value_get(self, key, timeout_in_ms):
        return self[key]

    def key_value_dir_get(self, key):
        return [(name, value) for name, value in self.items() if name.startswith(f"{key}/")]


class Clock:
    """Seconds that pass when told to."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def three(clock):
    store = Store()
    return [Watchdog(i, 3, store=store, limits=LIMITS, clock=clock) for i in range(3)]


def look(watchdogs, clock, seconds):
    """What each says, five seconds after five seconds."""
    said = []
    for _ in range(0, seconds, 5):
        clock.now += 5
        said = [watchdog.look() for watchdog in watchdogs]
    return said


def test_nothing_is_said_while_all_make_steps(three, clock):
    for step in range(10):
        for watchdog in three:
            watchdog.tell(step)
        assert look(three, clock, 20) == [None] * 3


def test_one_that_was_killed_is_named_with_its_step_before_the_others_are_stuck(three, clock):
    for watchdog, step in zip(three, (7, 7, 6), strict=True):
        watchdog.tell(step)
    assert look(three, clock, 5) == [None] * 3
    assert look(three[:2], clock, 15) == [None] * 2
    said = look(three[:2], clock, 5)
    assert said[0] == said[1]  # the second reads what the first found
    assert [s.split(" on ")[0] for s in said] == ["process 2"] * 2
    assert [s.split(", ", 1)[1] for s in said] == [
        "at step 6 (training), has not been heard of for 15 s"
    ] * 2


def test_one_that_is_stuck_is_named_by_all_while_its_thread_still_answers(three, clock):
    for watchdog, step in zip(three, (7, 5, 7), strict=True):
        watchdog.tell(step)
    assert look(three, clock, 60) == [None] * 3
    said = look(three, clock, 5)
    assert all(s.startswith("process 1 on ") for s in said)
    assert all(s.endswith("at step 5 (training), has done nothing for 65 s") for s in said)


def test_one_that_saves_is_not_stuck_until_it_saves_for_too_long(three, clock):
    look(three, clock, 55)
    for watchdog in three:
        watchdog.tell(4, "saving")
    assert look(three, clock, 60) == [None] * 3
    assert "at step 4 (saving)" in look(three, clock, 5)[0]


def test_one_that_is_done_is_missed_by_nobody(clock):
    store = Store()
    first, second = (Watchdog(i, 2, store=store, limits=LIMITS, clock=clock) for i in range(2))
    with second:
        second.tell(9)
    first.tell(9)
    assert look([first], clock, 50) == [None]


def test_one_that_failed_is_missed(clock):
    store = Store()
    first, second = (Watchdog(i, 2, store=store, limits=LIMITS, clock=clock) for i in range(2))
    second.tell(9)
    with contextlib.suppress(OSError), second:
        raise OSError("disk full")
    first.tell(9)
    assert look([first], clock, 15) == [None]
    assert "at step 9 (failed), has not been heard of for 15 s" in str(look([first], clock, 5)[0])


def test_one_that_never_came_is_missed_after_the_longer_limit(clock):
    first = Watchdog(0, 2, store=Store(), limits=LIMITS, clock=clock)
    assert look([first], clock, 55) == [None]
    first.tell(0, "compiling")
    assert look([first], clock, 10) == ["process 1 has not been heard of since the start"]


@pytest.mark.parametrize("doing", [EVALUATING, READING, HELD_OUT, RESTORING])
def test_what_reads_much_may_take_ten_times_as_long(three, clock, doing):
    for watchdog in three:
        watchdog.tell(4, doing)
    assert look(three, clock, 600) == [None] * 3
    assert f"({doing}) for 605 s" in look(three, clock, 5)[0]


def test_the_thread_ends_the_process_once(clock):
    ended, said = threading.Event(), []

    def end(text):
        said.append(text)
        ended.set()

    store, limits = Store(), Limits(silent=100, stuck=0.01)
    other = Watchdog(0, 2, store=store, limits=LIMITS)
    other.tell(5)
    other.look()
    watchdog = Watchdog(1, 2, store=store, limits=limits, end=end)
    watchdog.tell(3)
    with watchdog:
        assert ended.wait(20)
    assert len(said) == 1
    assert said[0].startswith("process 1 on ")
    assert said[0].endswith("; process 1 ends at step 3")


@pytest.mark.parametrize(
    "error",
    [PeerLostError("gone"), ValueError("UNKNOWN: Gloo AllGather failed: Connection closed")],
)
def test_what_another_process_caused_waits_for_the_word_who_it_is(error):
    store, said = Store(), []
    first = Watchdog(0, 2, store=store)
    limits = Limits(silent=0.4, stuck=100)
    second = Watchdog(1, 2, store=store, limits=limits, end=said.append)
    with contextlib.suppress(PeerLostError, ValueError), second:
        first.leave("SIGTERM while compiling")
        raise error
    assert len(said) == 1
    assert ", at step 0, was stopped by SIGTERM while compiling; process 1 ends at" in said[0]


class Deaf(Store):
    """A store whose server is gone."""

    def key_value_dir_get(self, key):
        raise RuntimeError("UNAVAILABLE: failed to connect\nmore")


def test_a_coordinator_that_is_gone_is_named():
    ended, said = threading.Event(), []

    def end(text):
        said.append(text)
        ended.set()

    with Watchdog(1, 2, store=Deaf(), limits=Limits(silent=0.05, stuck=100), end=end):
        assert ended.wait(20)
    assert said == [
        "process 0 no longer answers (UNAVAILABLE: failed to connect); process 1 ends at step 0"
    ]


def test_process_0_that_only_keeps_the_store_is_missed_by_another(three, clock):
    assert look(three, clock, 5) == [None] * 3
    assert look(three[1:], clock, 10) == [None] * 2
    said = look(three[1:], clock, 5)
    assert [s.split(" on ")[0] for s in said] == ["process 0"] * 2


def test_one_that_leaves_ends_the_others_with_its_reason(three, clock):
    three[2].tell(3)
    three[2].leave("SIGTERM while compiling")
    said = look(three[:2], clock, 5)
    assert [s.split(" on ")[0] for s in said] == ["process 2"] * 2
    assert said[0].endswith(", at step 3, was stopped by SIGTERM while compiling")


def test_nobody_is_blamed_where_all_are_at_the_same_step(three, clock):
    for watchdog in three:
        watchdog.tell(4)
    assert look(three, clock, 65) == ["all processes are at step 4 (training) for 65 s"] * 3


def test_limits_lie_below_the_one_at_which_jax_aborts_without_the_step():
    assert not list(Limits().faults())
    assert list(Limits(silent=90, stuck=-1).faults()) == [
        "stuck_seconds=-1 must be a number above 0",
        "silent_seconds=90 must be at most 80: after 100 s without a sign of life JAX aborts all "
        "processes, and does not say at which step",
    ]


def test_one_process_alone_is_not_watched():
    with Watchdog(0, 1) as watchdog:
        watchdog.tell(3)
