"""What compiling takes by the number of cores: the paper's claim that it hardly grows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import reproduce_paper_programs as programs
from gshard_train.precompiling.job import Job
from reproduce_paper_cards import Found
from reproduce_paper_programs import Compiled
from reproduce_paper_tables import PERCENT, Column, Section, deviation

COMPILE_CORES = (16, 32, 128, 512, 2048)
_GIB = 2**30
_COLUMNS = (
    Column("cores", ",d"),
    Column("machine"),
    Column("lowering s", ".1f"),
    Column("compiling s", ".1f"),
    Column("both s", ".1f"),
    Column("to 32 cores", PERCENT),
    Column("CPU s of the process", ".0f"),
    Column("host's memory GiB", ".1f"),
    Column("ended as"),
)


def compile_jobs() -> dict[int, Job]:
    """The model of 36 layers by its number of cores, with one expert and the same load on each."""
    return {cores: programs.fixed_load(cores, 36) for cores in COMPILE_CORES}


def compiling(found: Found) -> Section:
    """The claim that the time to compile hardly depends on the number of partitions."""
    made = {cores: found[job] for cores, job in compile_jobs().items() if job in found}
    base = _seconds(made[32]) if 32 in made else None
    rows = [_row(cores, one, base) for cores, one in made.items()]
    return Section(
        key="compile",
        title="Time to compile",
        of="in words",
        columns=_COLUMNS,
        rows=tuple(rows),
        says=tuple(_says(made)),
        picture=lambda axes: _draw_compiling(axes, rows),
    )


def _row(cores: int, made: Compiled, base: float | None) -> tuple[Any, ...]:
    seconds, result = _seconds(made), made.result
    return (
        cores,
        programs.FULL_LOAD[cores],
        result.lower_seconds or None,
        result.compile_seconds or None,
        seconds,
        deviation(seconds, base),
        made.cpu_seconds,
        result.host_peak_bytes / _GIB or None,
        "" if result.fault is None else result.fault.kind,
    )


def _says(made: Mapping[int, Compiled]) -> list[str]:
    busiest = max((one.load for one in made.values()), default=0.0)
    says = [
        "36 layers, one expert of each MoE layer and 2,048 tokens on each core. The paper gives no "
        "seconds; it says that one program for all partitions keeps compiling about constant.",
        "CPU seconds are of a process that starts, imports, compiles and inspects.",
    ]
    # The program before leaves its own load, of as many threads as there are CPUs.
    if busiest > (os.cpu_count() or 1) + 1:
        says.append(
            f"The machine was busy with {busiest:.1f} processes when a program's compiling began: "
            "seconds are longer than on a quiet one, CPU seconds less so."
        )
    return says


def _seconds(made: Compiled) -> float | None:
    if made.result.fault is not None and made.result.fault.kind != "too large":
        return None
    return made.result.lower_seconds + made.result.compile_seconds or None


def _draw_compiling(axes: Any, rows: list[tuple[Any, ...]]) -> None:
    shown = [row for row in rows if row[4] is not None]
    axes.plot([row[0] for row in shown], [row[4] for row in shown], "o-", label="seconds")
    axes.plot([row[0] for row in shown], [row[6] for row in shown], "s--", label="CPU seconds")
    axes.set_xscale("log", base=2)
    axes.set_xticks([row[0] for row in shown], [f"{row[0]:,}" for row in shown])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("cores")
    axes.legend(frameon=False)
