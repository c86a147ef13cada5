"""One run of several processes, each with its own devices.

On a machine that tells (a TPU pod, SLURM, Open MPI, Kubernetes) JAX finds the others itself;
elsewhere the address of the first process, their number and the own index are given, as T5X's
flags do. Everything is checked before a process waits for another.
"""

import contextlib
import dataclasses
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from gshard_train import aborts
from gshard_train.errors import RESTART, UserError, report

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^:\s\[\]]+):(\d{1,5})")
_HOST = re.compile(r"[\w.:\[\]-]+")
_EXAMPLE = "10.0.0.1:8476"
_GRACE_SECONDS = 30  # by which JAX's limit lies behind ours
HEARTBEAT_SECONDS = 100  # without a sign of life after which JAX aborts all processes
_LISTED = 8  # numbers of processes in a sentence
_LEAVE_SECONDS = 10  # in which a process that failed waits for the others
_MEET_SECONDS = 120  # the same where all are to end, each when it has written what it had
_COUNT, _COUNTS = "gshard_train/process_count", "gshard_train/process_counts"
_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
    """Which processes make up a run, and which of them this is.

    Attributes:
      coordinator_address: host and port of process 0, as every process reaches it.
      process_count: how many there are.
      process_index: which this one is, from 0.
      found_by_jax: the machine tells all three; what is given as well wins.
      timeout_seconds: how long to wait until all have come.
    """

    coordinator_address: str | None = None
    process_count: int | None = None
    process_index: int | None = None
    found_by_jax: bool = False
    timeout_seconds: int = 300

    def faults(self) -> Iterator[str]:
        """What is wrong with these values, one sentence each."""
        given = {
            "--coordinator_address": self.coordinator_address,
            "--process_count": self.process_count,
            "--process_index": self.process_index,
        }
        missing = [flag for flag, value in given.items() if value is None]
        if 0 < len(missing) < len(given) and not self.found_by_jax:
            yield (
                f"{' and '.join(_given(given))} without {' and '.join(missing)}: several "
                "processes need all three, each process with its own --process_index"
            )
        yield from self._value_faults()

    def _value_faults(self) -> Iterator[str]:
        address, count, index = self.coordinator_address, self.process_count, self.process_index
        if address is not None and not ((m := _ADDRESS.fullmatch(address)) and int(m[2]) < 65536):
            yield (
                f"--coordinator_address={address} must be HOST:PORT, where process 0 can be "
                f"reached by all, such as {_EXAMPLE}"
            )
        if count is not None and count < 1:
            yield f"--process_count={count} must be at least 1"
        if index is not None and index < 0:
            yield f"--process_index={index} must be at least 0"
        elif index is not None and count is not None and 1 <= count <= index:
            yield (
                f"--process_index={index} must be below --process_count={count}: indices go from "
                f"0 to {count - 1}"
            )
        if self.timeout_seconds < 1:
            yield f"--process_timeout={self.timeout_seconds} must be at least 1 second"

    def several(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether there is anything to join: flags say so, or the environment of TPU slices."""
        workers = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
        # libtpu sets it to a sentence where it finds no TPU.
        pod = len(workers) > 1 and all(_HOST.fullmatch(worker) for worker in workers)
        # A slice of one host has no other worker: GKE names the host that all slices meet at.
        slices = bool(environment.get("MEGASCALE_COORDINATOR_ADDRESS"))
        return self.found_by_jax or self.coordinator_address is not None or pod or slices


def _given(flags: Mapping[str, object]) -> list[str]:
    return [f"{flag}={value}" for flag, value in flags.items() if value is not None]


def join(processes: Processes, *, program: str) -> None:
    """Waits for the other processes and makes all devices known to all; nothing for a single one.

    Must come before anything asks JAX for its devices. When not all have come in time, the process
    ends with the exit code for "start again", since a machine may be late, and with a line that
    says as much as can be known from here: JAX itself would abort it with a stack trace.

    Args:
      processes: which there are.
      program: its name in messages, such as `gshard-train`.

    Raises:
      UserError: the values are wrong, or the machine does not tell what it was asked for.
    """
    if faults := list(processes.faults()):
        raise UserError(*faults)
    if not processes.several():
        return
    _need_free_port(processes)
    import jax

    # It would swallow SIGTERM from here on, before anyone asks for it (`interruption`).
    jax.config.update("jax_enable_preemption_service", False)
    with _time_limit(processes, program):
        try:
            jax.distributed.initialize(
                coordinator_address=processes.coordinator_address,
                num_processes=processes.process_count,
                process_id=processes.process_index,
                initialization_timeout=processes.timeout_seconds + _GRACE_SECONDS,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(_failure(processes, error)) from error
    _need_one_count()
    # Nothing about devices: the question would start JAX's backend, before make_mesh sets it up.
    _logger.info("All processes have come.")


def joined() -> bool:
    """Whether this is one of several processes that have found each other."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def leave(exit_code: int, *, all_leave: bool = False) -> None:
    """Ends one of several processes that cannot go on; returns where there is only one.

    At a normal exit JAX waits five minutes for the others, which may be waiting for this one. When
    one ends without the others JAX aborts them.

    Args:
      exit_code: of the process.
      all_leave: all have agreed to end, and are waited for until they have.
    """
    if not joined():
        return
    import jax

    ending = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    with aborts.last_word(lambda: os._exit(exit_code)):  # where process 0 is faster
        ending.start()
        ending.join(_MEET_SECONDS if all_leave else _LEAVE_SECONDS)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(exit_code)


def coordinator_answers() -> bool:
    """Whether process 0 can still be reached."""
    from jax._src import distributed  # no public name tells the address

    address = distributed.global_state.coordinator_address
    return address is None or _answers(address)


def _need_free_port(processes: Processes) -> None:
    """Raises where process 0 could not listen; JAX crashes there."""
    if processes.coordinator_address is None or processes.process_index != 0:
        return
    port = int(processes.coordinator_address.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise UserError(
            f"--coordinator_address={processes.coordinator_address}: process 0 cannot listen on "
            f"port {port} ({os.strerror(error.errno or 0)}): another process here has "
            "--process_index=0 too, or something else has the port; give each process an index of "
            "its own, or all another port"
        ) from error


@contextlib.contextmanager
def _time_limit(processes: Processes, program: str) -> Iterator[None]:
    """Ends the process when the block takes longer than the others are waited for."""

    def give_up() -> None:
        print(report(program, UserError(_too_late(processes))), file=sys.stderr, flush=True)
        os._exit(RESTART)  # the main thread is inside JAX, where no exception reaches it

    timer = threading.Timer(processes.timeout_seconds, give_up)
    timer.daemon = True
    timer.start()

    def turned_away() -> None:
        print(report(program, UserError(_turned_away(processes))), file=sys.stderr, flush=True)
        os._exit(RESTART)

    try:
        with aborts.last_word(turned_away):
            yield
    finally:
        timer.cancel()


def _too_late(processes: Processes) -> str:
    address, index, count = (
        processes.coordinator_address,
        processes.process_index,
        processes.process_count,
    )
    waited = f"after {processes.timeout_seconds} s"
    longer = "or wait longer with --process_timeout=SECONDS"
    if address is None:
        return f"{waited} not all processes of this job have come; look at their logs, {longer}"
    me = f"process {index} of {count}"
    if index and not _answers(address):
        return (
            f"{me}: {waited} nothing answers at {address}: process 0 is missing; start it, check "
            f"that --coordinator_address is its address, {longer}"
        )
    others = [i for i in range(count or 0) if i not in (0, index)]
    if len(others) == 1:
        missing = f"process {others[0]} is missing"
    else:
        missing = f"of {_listed(others) or 'the others'} at least one is missing"
    return f"{me}: {waited} not all have come to {address}; {missing}; start it, {longer}"


def _listed(numbers: list[int]) -> str:
    if len(numbers) <= _LISTED:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]} to {numbers[-1]}"


def _turned_away(processes: Processes) -> str:
    """What is said when JAX aborts a process that would join: process 0 does not take it."""
    index, count = processes.process_index, processes.process_count
    if index is None:
        return "process 0 does not take this process, for what is said above"
    return (
        f"process {index} of {count}: process 0 at {processes.coordinator_address} does not take "
        f"this process, for what is said above: either another one has --process_index={index} as "
        f"well, or process 0 has another --process_count than {count}"
    )


def _need_one_count() -> None:
    """Raises on all processes where one was told another number of them; JAX would not notice."""
    from jax._src import distributed  # no public name for the client

    state: Any = distributed.global_state
    client, wait = state.client, 1000 * _GRACE_SECONDS
    client.key_value_set(f"{_COUNT}/{state.process_id}", str(state.num_processes))
    if state.process_id == 0:
        counts = [
            client.blocking_key_value_get(f"{_COUNT}/{index}", wait)
            for index in range(state.num_processes)
        ]
        others = [f"{c} at process {i}" for i, c in enumerate(counts) if c != counts[0]]
        client.key_value_set(_COUNTS, f"{counts[0]} at process 0 and {others[0]}" if others else "")
    if said := client.blocking_key_value_get(_COUNTS, wait):
        raise UserError(f"--process_count is {said}; give all processes the same")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True


def _failure(processes: Processes, error: Exception) -> str:
    said = " ".join(str(error).split())
    if processes.coordinator_address is None:
        return (
            f"--multiprocess_gpu: this machine does not tell which processes belong together "
            f"({said}); give --coordinator_address, --process_count and --process_index"
        )
    return f"--coordinator_address={processes.coordinator_address}: {said}"
