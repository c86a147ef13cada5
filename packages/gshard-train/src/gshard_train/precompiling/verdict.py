"""Whether a program fits on a device: what it holds there, and what the compiler lets it have."""

import dataclasses
from collections.abc import Iterable

from gshard_annotate.inspector.quantities import size
from gshard_train.precompiling.job import Facts, Fault, Result, Tensor

_GIB = 2**30
# What the TPU compiler of libtpu 0.0.42 gives to a program, by what JAX calls a device: it refuses
# larger ones with "exceeds available HBM (15.48G)". The rest of the memory is its own.
_FOR_PROGRAMS = {
    "TPU v2": 7.48,
    "TPU v3": 15.48,
    "TPU v4": 30.75,  # a chip, as JAX has it there
    "TPU v5 lite": 15.75,
    "TPU v5": 95.74,
    "TPU v6 lite": 31.25,
    "TPU7x": 94.75,  # half a chip
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """Bytes on one device while the program runs; they sum to the peak.

    Attributes:
      parameters: of the model.
      optimizer: its state, without what lies in the host's memory.
      inputs: the batch.
      padding: what the chip's layout of these adds to them.
      activations: what the program makes and drops while it runs (temporaries), gradients too;
        None where nobody knows.
      results: what it returns beside what it replaces.
      peak: the most at one time; None where nobody knows.
      limit: what the compiler gives to a program; None where nobody knows.
      on_host: bytes of the optimizer in the host's memory.
    """

    parameters: int
    optimizer: int
    inputs: int
    padding: int = 0
    activations: int | None = None
    results: int = 0
    peak: int | None = None
    limit: int | None = None
    on_host: int = 0

    @property
    def free(self) -> int | None:
        """What is left of the limit, below zero where it is not enough."""
        return None if self.peak is None or self.limit is None else self.limit - self.peak

    @property
    def state(self) -> int:
        """What stays there between programs."""
        return self.parameters + self.optimizer


def device_memory(result: Result, facts: Facts) -> DeviceMemory:
    """What one device holds, as far as it is known: all of it where there is a program."""
    parameters, optimizer = (_bytes(facts.tensors, what) for what in ("parameters", "optimizer"))
    inputs = _bytes(facts.tensors, "batch")
    known = parameters + optimizer + inputs
    memory = DeviceMemory(
        parameters=parameters,
        optimizer=optimizer,
        inputs=inputs,
        limit=_limit(result, facts),
        on_host=sum(one.device_bytes for one in facts.tensors if one.on_host),
    )
    if result.report is not None:
        compiled = result.report.memory
        return dataclasses.replace(
            memory,
            padding=max(0, compiled.arguments - known),
            activations=compiled.temporaries,
            results=max(0, compiled.results - compiled.aliased),
            peak=compiled.peak,
        )
    if result.fault is None or result.fault.needed_bytes is None:
        return memory
    needed = result.fault.needed_bytes
    return dataclasses.replace(memory, activations=max(0, needed - known), peak=needed)


def program_limit(device_kind: str) -> int | None:
    """Bytes that the compiler gives to a program on such a device."""
    gib = _FOR_PROGRAMS.get(device_kind)
    return None if gib is None else int(gib * _GIB)


def fits(memory: DeviceMemory, fault: Fault | None) -> bool | None:
    """Whether the program fits on a device; None where there is no telling.

    That it was compiled does not say so: for a machine that is not there the compiler looks at
    temporaries, by an estimate from before it lays them out, and not at what lies beside them.
    """
    if fault is not None:
        return False if fault.kind == "too large" else None
    if memory.peak is not None:
        return memory.limit is None or memory.peak <= memory.limit
    lies = memory.state + memory.inputs
    return False if memory.limit is not None and lies > memory.limit else None


def verdict(memory: DeviceMemory, fault: Fault | None) -> tuple[bool | None, str]:
    """Whether it fits, and that as a sentence."""
    found = fits(memory, fault)
    if fault is not None and found is None:
        return None, f"no telling whether it fits: {_STOPPED[fault.kind]}"
    if memory.peak is None:
        return found, "does not fit" if fault else _of_state(memory, found)
    if memory.limit is None:
        return found, f"takes {size(memory.peak)} a device, whose memory is not known"
    used = f"{size(memory.peak)} of the {size(memory.limit)} that a device has for programs"
    if not found:
        over = size(memory.peak - memory.limit)
        took = "" if fault else "; the compiler took it, since it looks at temporaries alone"
        return found, f"does not fit: {used}, {over} too much{took}"
    return found, f"fits: {used}, {size(memory.limit - memory.peak)} free"


def _of_state(memory: DeviceMemory, found: bool | None) -> str:
    """What is known of a program that was not compiled."""
    lies = f"parameters, optimizer and batch take {size(memory.state + memory.inputs)}"
    if memory.limit is None:
        return f"not compiled: {lies} a device, whose memory is not known"
    lies += f" of the {size(memory.limit)} that a device has for programs"
    if found is False:
        return f"does not fit: {lies}, whatever the program takes"
    return f"not compiled, so no telling whether it fits: {lies}"


_STOPPED = {
    "refused": "the checks before compiling refuse it",
    "failed": "compiling it failed",
    "crashed": "the compiler crashed",
    "timed out": "the compiler was not done in time",
}


def _limit(result: Result, facts: Facts) -> int | None:
    if result.fault is not None and result.fault.limit_bytes is not None:
        return result.fault.limit_bytes
    of_kind = program_limit(facts.device_kind)
    return of_kind or (result.report.memory.limit if result.report else None)


def _bytes(tensors: Iterable[Tensor], *what: str) -> int:
    return sum(one.device_bytes for one in tensors if one.what in what and not one.on_host)
