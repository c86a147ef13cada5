"""A compiled program and its compiler's steps, put together into a report."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gshard_annotate.inspector.acceptance import rank
from gshard_annotate.inspector.annotated_flow import AnnotatedFlow
from gshard_annotate.inspector.annotations import read_annotations
from gshard_annotate.inspector.causes import Causes
from gshard_annotate.inspector.chip_figures import Chip
from gshard_annotate.inspector.collectives import Collective, group_text, placed_collectives
from gshard_annotate.inspector.costs import Work, count_work
from gshard_annotate.inspector.flow import Flow
from gshard_annotate.inspector.groups import (
    group_axes,
    groups,
    pair_axes,
    pair_rows,
    touched_axes,
)
from gshard_annotate.inspector.hlo import Instruction, Program
from gshard_annotate.inspector.loops import Runs, runs
from gshard_annotate.inspector.machine import Machine
from gshard_annotate.inspector.moved import Crossing
from gshard_annotate.inspector.quantities import percent, place, plural, size
from gshard_annotate.inspector.report import Cost, Exchange, Memory, Report
from gshard_annotate.inspector.shardings import Axes, sdy_meshes
from gshard_annotate.inspector.torus import Block, exchange_seconds
from gshard_annotate.inspector.values import annotation_values, arguments, leaf_value, results

# From what share of the time on a reader has to know how it was found.
_TELLING = 0.01


class Dump(NamedTuple):
    """The program before and after XLA found the shardings that nobody gave.

    Attributes:
      before: It.
      after: It.
      final: The text at the end, where the compiler writes it; else "".
    """

    before: Program
    after: Program
    final: str = ""


def analyse(
    compiled: Any,
    final: Program,
    dump: Dump | None,
    mesh: Mapping[str, int],
    devices: Sequence[Any],
    chip: Chip | None,
    title: str,
    platform: str,
    assumed_trips: int = 1,
) -> Report:
    """The report about a compiled function.

    Args:
      compiled: What JAX compiled.
      final: Its text.
      dump: The compiler's steps; None when they could not be seen.
      mesh: Axis sizes, in order; may be empty when the program has a mesh of its own.
      devices: The devices in the order of the mesh; may be empty.
      chip: For which to estimate times.
      title: What to call the function; its own name when empty.
      platform: Where it runs, when the devices are not known.
      assumed_trips: Of loops for which they depend on data.
    """
    axes = _axes(final, dump, mesh)
    platform = devices[0].platform if devices else platform
    flow = Flow(dump.after, axes) if dump else None
    seen = runs(dump.after, assumed=assumed_trips) if dump else None
    counts = runs(final, seen.trips if seen else None, assumed_trips)
    annotations = read_annotations(dump.before, flow) if dump and flow else []
    before = dump.before if dump else None
    given, made = arguments(compiled, final, before, axes), results(compiled, before, axes)
    asked = [(leaf.name, leaf.asked) for leaf in made]
    left_open = [leaf.name for leaf in given if leaf.asked is None]
    annotated = AnnotatedFlow(flow, annotations, asked, left_open) if flow else None
    final_flow = Flow(final, {})
    causes = Causes(final_flow, annotated)
    work = count_work(final_flow, counts, chip, platform)
    exchanges = _exchanges(final, counts, causes, axes, devices, chip)
    cost = _cost(work, exchanges, chip)
    return Report(
        title=title or final.header.partition(",")[0].removeprefix("HloModule jit_"),
        platform=platform,
        chip=chip.name if chip else None,
        mesh=dict(axes),
        values=(
            *(leaf_value("argument", leaf, axes, flow, i) for i, leaf in enumerate(given)),
            *annotation_values(annotations, seen.counts if seen else {}, axes),
            *(
                # What is gathered on its way out is told there.
                leaf_value("result", leaf, axes, None if i in causes.returned else flow, i)
                for i, leaf in enumerate(made)
            ),
        ),
        exchanges=_ranked(exchanges, cost),
        memory=_memory(compiled, chip),
        cost=cost,
        compile_seconds=0.0,
        notes=tuple(_notes(final, counts, work, dump, platform, assumed_trips)),
        operations=work.operations,
    )


def _axes(final: Program, dump: Dump | None, mesh: Mapping[str, int]) -> Axes:
    """The mesh of the program: the given one if it has as many devices, else its own."""
    if math.prod(mesh.values()) == final.num_partitions and mesh:
        return mesh
    for own in sdy_meshes(dump.before.header) if dump else ():
        if math.prod(own.values()) == final.num_partitions:
            return own
    return mesh


def _exchanges(
    final: Program,
    counts: Runs,
    causes: Causes,
    axes: Axes,
    devices: Sequence[Any],
    chip: Chip | None,
) -> list[Exchange]:
    found = []
    machine = Machine(devices, chip) if chip else None
    for one, instruction, fusion in placed_collectives(final):
        taking_part = _Group(instruction, axes)
        times = counts.counts.get(one.computation, 1)
        outer = fusion or instruction
        cause = causes.of(Crossing(one, instruction, outer, taking_part.touched, taking_part.size))
        source = final.source(instruction) or cause.source
        seconds = None
        if chip and machine:
            moved = one.bytes * (taking_part.size if one.kind == "reduce-scatter" else 1)
            block = taking_part.block(machine)
            seconds = times * exchange_seconds(one.kind, moved, taking_part.size, chip, block)
        found.append(
            Exchange(
                collective=one,
                mesh_axes=taking_part.axes,
                group_size=taking_part.size,
                times=times,
                seconds=seconds,
                share=None,
                source=source,
                cause=cause.text,
                surprise=_sentence(one, source, cause.surprise),
            )
        )
    return found


class _Group:
    """The devices that exchange with each other."""

    def __init__(self, one: Instruction, axes: Axes):
        text = group_text(one)
        self.rows = self.pairs = None
        if one.attribute("source_target_pairs"):
            self.pairs = pair_rows(text)
            self.axes = self.touched = pair_axes(text, axes)
            self.size = math.prod(axes[axis] for axis in self.axes)
            return
        self.rows = groups(text)
        self.axes, self.touched = group_axes(self.rows, axes), touched_axes(self.rows, axes)
        everyone = math.prod(axes.values())
        self.size = everyone if self.rows is None else self.rows.shape[1]
        if self.rows is None:
            self.axes = self.touched = tuple(axes)

    def block(self, machine: Machine) -> Block | None:
        """Where they lie on the machine; None where that is not known."""
        if self.pairs is not None:
            return machine.path(self.pairs)
        return None if self.rows is None else machine.block(self.rows)


def _sentence(one: Collective, source, complaint: str) -> str:
    if not complaint:
        return ""
    at = f" at {place(source)}" if source else ""
    return f"{one.kind} of {size(one.bytes)}{at}: {complaint}"


def _ranked(exchanges: Sequence[Exchange], cost: Cost) -> tuple[Exchange, ...]:
    """Surprises first, then by bytes; with their share of the step."""
    shared = [
        dataclasses.replace(one, share=one.seconds / cost.step_seconds)
        if cost.step_seconds and one.seconds is not None
        else one
        for one in exchanges
    ]
    return tuple(sorted(shared, key=rank))


def _cost(work: Work, exchanges: Sequence[Exchange], chip: Chip | None) -> Cost:
    if chip is None:
        return Cost(flops=float(work.flops), bytes_accessed=float(work.bytes_accessed))
    exchanging = sum(one.seconds or 0.0 for one in exchanges)
    return Cost(
        flops=float(work.flops),
        bytes_accessed=float(work.bytes_accessed),
        compute_seconds=work.flops / chip.flops,
        memory_seconds=work.bytes_accessed / chip.memory_bandwidth,
        collective_seconds=exchanging,
        step_seconds=work.roofline_seconds + exchanging,
    )


def _memory(compiled: Any, chip: Chip | None) -> Memory:
    sizes = compiled.memory_analysis()
    parts = [
        getattr(sizes, f"{name}_size_in_bytes", 0)
        for name in ("argument", "output", "temp", "alias")
    ]
    given, made, temporary, aliased = parts
    return Memory(
        arguments=given,
        results=made,
        temporaries=temporary,
        aliased=aliased,
        peak=given + made + temporary - aliased,
        limit=chip.memory_bytes if chip else None,
    )


def _notes(
    final: Program,
    counts: Runs,
    work: Work,
    dump: Dump | None,
    platform: str,
    assumed_trips: int,
) -> list[str]:
    counted = "once" if assumed_trips == 1 else f"{assumed_trips:,} times"
    notes = []
    for loop in counts.unknown:
        at = place(final.source(loop)) or loop.op_name
        notes.append(f"how often the loop at {at} runs depends on data; it counts {counted}")
    for kernel, times in work.opaque.items():
        notes.append(f"{plural(times, 'run')} of custom kernel {kernel}: its work is not counted")
    if platform == "tpu" and work.indexed_seconds > _TELLING * work.roofline_seconds:
        share = percent(work.indexed_seconds / work.roofline_seconds)
        notes.append(
            f"gathers and scatters ({share} of the work's time) are timed by their bytes alone; on "
            "a TPU they take longer"
        )
    if dump is None and final.num_partitions > 1:
        notes.append(
            "the compiler's steps could not be seen: no annotated values, and causes only where "
            "an operation's name tells"
        )
    return notes
