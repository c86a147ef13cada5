"""Joining the processes of a run: what is refused before, and who is missed when time is up."""

import socket
import subprocess
import sys

import pytest

from gshard_train.distributed import Processes, join
from gshard_train.distributed import _turned_away as turned_away
from gshard_train.errors import RESTART, UserError

JOIN = """
import sys
from gshard_train import distributed, errors
address, count, index, seconds = sys.argv[1:]
try:
    distributed.join(
        distributed.Processes(
            coordinator_address=address,
            process_count=int(count),
            process_index=int(index),
            timeout_seconds=int(seconds),
        ),
        program="program",
    )
except errors.UserError as error:
    sys.exit(errors.report("program", error))
"""


def free_port():
    with socket.socket() as there:
        there.bind(("localhost", 0))
        return there.getsockname()[1]


def faults(**given):
    with pytest.raises(UserError) as caught:
        join(Processes(**given), program="program")
    return list(caught.value.faults)


def test_one_flag_without_the_others():
    assert faults(process_count=2) == [
        "--process_count=2 without --coordinator_address and --process_index: several processes "
        "need all three, each process with its own --process_index"
    ]


@pytest.mark.parametrize("address", ["host", "host:", ":80", "host:99999", "a b:1", "host:x"])
def test_address_without_host_or_port(address):
    (fault,) = faults(coordinator_address=address, process_count=2, process_index=0)
    assert fault.startswith(f"--coordinator_address={address} must be HOST:PORT")


@pytest.mark.parametrize("address", ["host:80", "10.0.0.1:8476", "[fe80::1]:80"])
def test_addresses_that_are_right(address):
    processes = Processes(coordinator_address=address, process_count=2, process_index=1)
    assert list(processes.faults()) == []


def test_index_beyond_the_count_and_other_numbers():
    assert faults(
        coordinator_address="a:1", process_count=2, process_index=2, timeout_seconds=0
    ) == [
        "--process_index=2 must be below --process_count=2: indices go from 0 to 1",
        "--process_timeout=0 must be at least 1 second",
    ]
    assert faults(coordinator_address="a:1", process_count=0, process_index=-1) == [
        "--process_count=0 must be at least 1",
        "--process_index=-1 must be at least 0",
    ]


def test_machine_that_tells_may_be_told_a_part():
    assert list(Processes(found_by_jax=True, process_count=2).faults()) == []


def start(address, count, index, seconds):
    arguments = [address, str(count), str(index), str(seconds)]
    command = [sys.executable, "-c", JOIN, *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_time_limit_says_who_is_missing():
    first, second, three = (f"localhost:{free_port()}" for _ in range(3))
    waiting = start(three, 3, 0, 100)
    started = [start(first, 2, 1, 1), start(second, 2, 0, 1), start(three, 3, 1, 4)]
    said = [process.communicate()[1] for process in started]
    waiting.kill()
    waiting.communicate()
    assert [process.returncode for process in started] == [RESTART] * 3
    longer = "or wait longer with --process_timeout=SECONDS\n"
    assert said == [
        f"program: process 1 of 2: after 1 s nothing answers at {first}: process 0 is missing; "
        f"start it, check that --coordinator_address is its address, {longer}",
        f"program: process 0 of 2: after 1 s not all have come to {second}; process 1 is missing; "
        f"start it, {longer}",
        f"program: process 1 of 3: after 4 s not all have come to {three}; process 2 is missing; "
        f"start it, {longer}",
    ]


@pytest.mark.slow
def test_processes_that_were_told_different_counts_all_say_so():
    address = f"localhost:{free_port()}"
    started = [start(address, count, index, 100) for index, count in enumerate((2, 3))]
    assert [process.communicate()[1] for process in started] == [
        "program: --process_count is 2 at process 0 and 3 at process 1; give all processes the "
        "same\n"
    ] * 2


def test_one_that_process_0_does_not_take_says_what_may_be_wrong():
    processes = Processes(coordinator_address="a:1", process_count=3, process_index=2)
    assert turned_away(processes) == (
        "process 2 of 3: process 0 at a:1 does not take this process, for what is said above: "
        "either another one has --process_index=2 as well, or process 0 has another "
        "--process_count than 3"
    )


def test_port_that_is_taken():
    with socket.create_server(("", 0)) as taken:
        address = f"localhost:{taken.getsockname()[1]}"
        assert faults(coordinator_address=address, process_count=2, process_index=0) == [
            f"--coordinator_address={address}: process 0 cannot listen on port "
            f"{taken.getsockname()[1]} (Address already in use): another process here has "
            "--process_index=0 too, or something else has the port; give each process an index of "
            "its own, or all another port"
        ]
