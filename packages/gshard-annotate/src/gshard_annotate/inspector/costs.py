"""What a program computes and moves, and how long that takes at least, counted from its final form.

See `instruction_costs` for what counts as FLOPs and bytes.
"""

import collections
import dataclasses
from typing import NamedTuple

from gshard_annotate.inspector.chip_figures import Chip
from gshard_annotate.inspector.collectives import KINDS
from gshard_annotate.inspector.flow import Flow
from gshard_annotate.inspector.hlo import Instruction
from gshard_annotate.inspector.instruction_costs import Counter
from gshard_annotate.inspector.loops import Runs
from gshard_annotate.inspector.operations import Name, Shares
from gshard_annotate.inspector.report import Operation

_NO_TRAFFIC = """parameter constant tuple get-tuple-element bitcast after-all partition-id
replica-id opt-barrier while conditional call domain add-dependency"""
# Neither read nor write main memory themselves.
_FREE = frozenset(_NO_TRAFFIC.split())
_INDEXED = ("gather", "scatter", "scatter-add", "scatter_add")
_OPAQUE = ("tpu_custom_call", "triton", "__gpu$xla.gpu.triton")


class Work(NamedTuple):
    """What one device does in one call, loop bodies counted as often as they run.

    Attributes:
      flops: Of matrix products and convolutions.
      bytes_accessed: Read and written in main memory.
      roofline_seconds: For each operation the longest of products, other arithmetic and moving,
        summed, without exchanges; 0 without a chip.
      opaque: Custom kernels that nobody can look into, by name with how often they run.
      operations: The same by operation of the user's program, longest first, without exchanges.
      indexed_seconds: Of gathers and scatters, from their bytes alone.
    """

    flops: int
    bytes_accessed: int
    roofline_seconds: float
    opaque: collections.Counter[str]
    operations: tuple[Operation, ...]
    indexed_seconds: float


def count_work(flow: Flow, runs: Runs, chip: Chip | None, platform: str) -> Work:
    """FLOPs, bytes and roofline time of a final (partitioned, optimised) program."""
    program = flow.program
    counter = Counter(program, fast_memory=platform == "tpu")
    shares = Shares(flow, counter.flops)
    total, by_name = _Sums(), collections.defaultdict[Name, _Sums](_Sums)
    opaque: collections.Counter[str] = collections.Counter()
    for name, computation in program.computations.items():
        times = runs.counts.get(name, 0)
        if not times or name in runs.fused:
            continue
        for one in computation.instructions.values():
            if one.opcode in _FREE or one.opcode.endswith(("-done", "-update")):
                continue
            work = counter.flops(one), counter.bytes(one)
            if one.opcode.removesuffix("-start") in KINDS:
                total.add(times, *work, 0.0)
                continue
            seconds = _seconds(counter, one, work, chip) if chip else 0.0
            total.add(times, *work, seconds)
            for operation, share in shares.of(one).items():
                by_name[operation].add(times, *work, seconds, share)
            if one.opcode == "custom-call" and (target := _opaque(one)):
                opaque[target] += times
    operations = _operations(by_name, timed=chip is not None)
    indexed = sum(one.seconds or 0.0 for one in operations if one.primitive in _INDEXED)
    return Work(int(total.flops), int(total.bytes), total.seconds, opaque, operations, indexed)


@dataclasses.dataclass
class _Sums:
    times: int = 0
    flops: float = 0
    bytes: float = 0
    seconds: float = 0.0

    def add(self, times: int, flops: int, num_bytes: int, seconds: float, share: float = 1) -> None:
        self.times += times
        self.flops += times * flops * share
        self.bytes += times * num_bytes * share
        self.seconds += times * seconds * share


def _seconds(counter: Counter, one: Instruction, work: tuple[int, int], chip: Chip) -> float:
    """The longest of what the chip's units, which work at the same time, have to do."""
    flops, num_bytes = work
    if flops and chip.rounds:
        flops = counter.rounded_flops(one)
    vectors = counter.vector_operations(one) / chip.vector_rate if chip.vector_rate else 0.0
    return max(flops / chip.flops, num_bytes / chip.memory_bandwidth, vectors)


def _operations(by_name: dict[Name, _Sums], *, timed: bool) -> tuple[Operation, ...]:
    operations = [
        Operation(
            scope=name.scope,
            primitive=name.primitive,
            backward=name.backward,
            recomputed=name.recomputed,
            times=sums.times,
            flops=round(sums.flops),
            bytes_accessed=round(sums.bytes),
            seconds=sums.seconds if timed else None,
        )
        for name, sums in by_name.items()
    ]
    return tuple(
        sorted(operations, key=lambda one: (-(one.seconds or 0), -one.flops, -one.bytes_accessed))
    )


def _opaque(one: Instruction) -> str:
    target = one.attribute("custom_call_target").strip('"')
    return target if target.startswith(_OPAQUE) else ""
