"""Real processes on one machine that are stuck or killed: what the others say."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gshard_train.errors import RESTART

# Processes that meet at every step, as those of a run do on their devices, without devices.
MEETING = """
import sys, time
from jax._src import distributed as jax_distributed
from gshard_train import distributed
from gshard_train.watchdog import Limits, Watchdog
address, count, index, stuck = sys.argv[1], *map(int, sys.argv[2:])
distributed.join(
    distributed.Processes(
        coordinator_address=address,
        process_count=count,
        process_index=index,
        timeout_seconds=1200,
    ),
    program="program",
)
with Watchdog(index, count, limits=Limits(silent=5, stuck=10)) as watchdog:
    for step in range(1, 10**6):
        if step == stuck:
            time.sleep(1000)
        watchdog.tell(step)
        print(step, flush=True)
        jax_distributed.global_state.client.wait_at_barrier(f"step {step}", 10**6)
        time.sleep(0.1)
"""
SECONDS = 1200  # far more than a busy machine needs


def free_address() -> str:
    with socket.socket() as there:
        there.bind(("localhost", 0))
        return f"localhost:{there.getsockname()[1]}"


class Started:
    """A process whose output is a file, and how it ended."""

    def __init__(self, output: pathlib.Path, *command: str):
        self._output = output
        with output.open("w") as file:
            environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
            self.process = subprocess.Popen(
                [sys.executable, *command], env=environment, stdout=file, stderr=subprocess.STDOUT
            )

    def said(self) -> str:
        return self._output.read_text()

    def says(self, pattern: str) -> str:
        """Waits until it does; what matched."""
        until = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.said(), re.MULTILINE)):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)
        return found[0]

    def ends(self) -> int:
        return self.process.wait(SECONDS)


@contextlib.contextmanager
def several(folder: pathlib.Path, *commands: list[str]) -> Iterator[list[Started]]:
    started = [Started(folder / f"{i}.txt", *command) for i, command in enumerate(commands)]
    try:
        yield started
    finally:
        for each in started:
            each.process.kill()
            each.process.wait()


def meeting(count: int, stuck: dict[int, int]) -> list[list[str]]:
    address = free_address()
    steps = [str(stuck.get(index, 0)) for index in range(count)]
    return [["-c", MEETING, address, str(count), str(i), steps[i]] for i in range(count)]


@pytest.mark.slow
def test_one_that_is_stuck_is_named_by_all_with_its_host_and_step(tmp_path: pathlib.Path) -> None:
    with several(tmp_path, *meeting(2, {1: 3})) as started:
        assert [each.ends() for each in started] == [RESTART] * 2
        for index, each in enumerate(started):
            said = (
                rf"process 1 on {socket.gethostname()}, at step 2 \(training\), has done nothing "
            )
            assert re.search(rf"{said}for \d+ s; process {index} ends at step", each.said())


@pytest.mark.slow
def test_death_of_the_first_and_of_another_is_told_with_host_and_step(
    tmp_path: pathlib.Path,
) -> None:
    with several(tmp_path, *meeting(2, {})) as (first, second):
        for each in (first, second):
            each.says("^3$")
        second.process.kill()
        assert first.ends() == RESTART
        assert re.search(
            rf"process 1 on {socket.gethostname()}, at step \d+ \(training\), has not been "
            r"heard of for \d+ s; process 0 ends at step \d+\.",
            first.said(),
        )
    with several(tmp_path, *meeting(2, {})) as (first, second):
        second.says("^30$")
        first.process.kill()
        assert second.ends() == RESTART
        assert re.search(
            rf"process 0 on {socket.gethostname()}, at step \d+ \(training\), has died; process 1 "
            r"ends at step \d+\.",
            second.said(),
        )
