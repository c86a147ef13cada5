"""The machine that layouts are for: how many devices of which chip, with how much memory."""

from typing import NamedTuple

from gshard_annotate import topology_devices
from gshard_annotate.inspector.chips import CHIPS, Chip, chip_of
from gshard_train.errors import UserError
from gshard_train.precompiling.job import Job, Result
from gshard_train.precompiling.verdict import program_limit


class Machine(NamedTuple):
    """A machine.

    Attributes:
      num_devices: on all slices.
      chip: what a device is.
      device_bytes: what a device has for programs.
    """

    num_devices: int
    chip: Chip
    device_bytes: int


class _Kind(NamedTuple):
    """A device of which only this is known."""

    device_kind: str


def machine_of(job: Job, described: Result) -> Machine:
    """The machine of a job.

    Args:
      job: whose topology it is.
      described: what is known of the job. Where its own layout is refused, the topology may still
        be one.

    Raises:
      UserError: there is no such topology, no compiler for it, or no figures of its chip.
    """
    if described.facts is not None:
        kind, count = described.facts.device_kind, described.facts.num_devices
    else:
        assert described.fault is not None
        try:
            devices = topology_devices(job.topology, num_slices=job.num_slices)
        except ValueError as error:
            raise UserError(*described.fault.message.split("\n")) from error
        kind, count = devices[0].device_kind, len(devices)
    chip = chip_of([_Kind(kind)])
    if chip is None:
        raise UserError(
            f"--topology={job.topology}: there are no figures of {kind} to rank layouts by; those "
            f"of {', '.join(CHIPS)} are known"
        )
    return Machine(count, chip, program_limit(kind) or chip.memory_bytes)
