"""How exchanges and operators grow with the number of devices: Figure 9 and Table 4."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import paper_figures
import reproduce_paper_programs as programs
from gshard_annotate.inspector.chips import CHIPS, exchange_seconds
from reproduce_paper_tables import PERCENT, Column, Section, deviation

_MB = 1e6
_CORES_OF_A_CHIP = 2
_CHIP = CHIPS["v3"]
# The largest square slice whose rows of chips the torus model takes as lines.
_OPEN_CORES = 512
_SCRIPT = pathlib.Path(__file__).parent / "reproduce_paper_operators.py"
_OPERATOR_COLUMNS = (
    Column("operator"),
    Column("compute, paper"),
    Column("here D^", ".2f"),
    Column("exchange, paper"),
    Column("its bytes here D^", ".2f"),
    Column("its time here D^", ".2f"),
    Column("collective, paper"),
    Column("compiled"),
)


def exchanges() -> Section:
    """Figure 9 by the torus model; nothing is compiled."""
    rows, below = [], 0
    for (kind, megabytes), measured in paper_figures.EXCHANGES.items():
        for partitions, papers in zip(paper_figures.PARTITIONS, measured, strict=True):
            ours = _microseconds(kind, megabytes, partitions)
            rows.append((kind, megabytes, partitions, papers, ours, deviation(ours, papers)))
            below += papers < ours
    columns = (
        Column("exchange"),
        Column("MB a core", "d"),
        Column("cores", ",d"),
        Column("paper, measured µs", ",.0f"),
        Column("model µs", ",.0f"),
        Column("deviation", PERCENT),
    )
    says = [
        "A model, not a measurement: bytes over the links of a TPU v3 torus at their published "
        "bandwidth, without latency (`gshard_annotate.inspector.chips.exchange_seconds`). Slices "
        "are the squares and 1:2 rectangles that the compiler has. "
        f"Measured times below it: {below} of {len(rows)}.",
    ]
    for kind in ("all-to-all", "all-reduce"):
        papers = _growth(kind, lambda kind, size, at: paper_figures.EXCHANGES[kind, size][at])
        ours = _growth(kind, lambda kind, size, at: _microseconds(kind, size, _cores(at)))
        says.append(f"{kind} from 16 to 2,048 cores, 8 MB: paper x{papers:.1f}, model x{ours:.1f}.")
    says.append(
        "The paper's all-to-all doubles with the longest side of the slice (4 to 32 chips). The "
        "model takes sides of 32 chips as closed rings, on which it takes half the time of a line; "
        "the paper's times do not show that."
    )
    return Section(
        key="exchanges",
        title="Exchanges",
        of="Figure 9",
        columns=columns,
        rows=tuple(rows),
        says=tuple(says),
        picture=_draw_exchanges,
    )


def sides(cores: int) -> tuple[int, int]:
    """Chips along each side of the slice that has so many cores: a square, or two of them."""
    chips = cores // _CORES_OF_A_CHIP
    short = 1 << (chips.bit_length() - 1) // 2
    return short, chips // short


def _microseconds(kind: str, megabytes: int, cores: int) -> float:
    num_bytes = int(megabytes * _MB)
    return exchange_seconds(kind, num_bytes, cores, _CHIP, sides(cores)) * 1e6


def _cores(at: int) -> int:
    return paper_figures.PARTITIONS[at]


def _growth(kind: str, of: Any) -> float:
    return of(kind, 8, -1) / of(kind, 8, 0)


def _draw_exchanges(axes: Any) -> None:
    colours = {"all-to-all": "#b0772c", "all-reduce": "#2c7fb0"}
    for (kind, size), measured in paper_figures.EXCHANGES.items():
        ours = [_microseconds(kind, size, cores) for cores in paper_figures.PARTITIONS]
        mark = "o" if size == 8 else "s"
        for values, style, name in ((measured, "-", "paper"), (ours, "--", "model")):
            axes.plot(
                paper_figures.PARTITIONS,
                values,
                style + mark,
                color=colours[kind],
                markersize=4,
                label=f"{kind} {size} MB, {name}",
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(paper_figures.PARTITIONS, [f"{one:,}" for one in paper_figures.PARTITIONS])
    axes.set_xlabel("cores")
    axes.set_ylabel("µs")
    axes.legend(frameon=False, fontsize=8, ncols=2)


def compiled_operators(
    cores: Sequence[int], *, timeout_seconds: float
) -> dict[str, dict[str, Any]]:
    """Work of each operator by its number of devices, from a process of its own.

    Raises:
      SubprocessError: that process came to no good end; it has said why.
    """
    variables = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, str(_SCRIPT), ",".join(map(str, cores))],
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
        timeout=timeout_seconds,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def sources() -> str:
    """Of what `compiled_operators` gives: a hash of our packages and of its script."""
    return programs.sources() + hashlib.sha256(_SCRIPT.read_bytes()).hexdigest()[:8]


def operators(found: Mapping[str, Mapping[str, Any]], fault: str = "") -> Section:
    """Table 4 from what `compiled_operators` gave, or why it gave nothing."""
    rows = [
        _operator(name, growth, found[name])
        for name, growth in paper_figures.OPERATORS.items()
        if name in found
    ]
    cores = sorted({int(one) for works in found.values() for one in works})
    says = (
        f"Each compiled for {', '.join(f'{one:,}' for one in cores)} cores, with split dimensions "
        "that grow as the cores. D^p: the power that fits best. Compute is FLOPs of a core (bytes "
        "where there are none), and bytes of an exchange are a core's too: both as compiled.",
        f"Time of an exchange is the torus model's for these bytes, up to {_OPEN_CORES} cores: in "
        "larger slices the model has closed rings, which halve the way once.",
    )
    return Section(
        key="operators",
        title="Operators",
        of="Table 4",
        columns=_OPERATOR_COLUMNS,
        rows=tuple(rows),
        says=says if found else (fault,),
    )


def _operator(name: str, growth: paper_figures.Growth, works: Mapping[str, Any]) -> tuple[Any, ...]:
    at = {int(cores): work for cores, work in works.items()}
    kinds = sorted({kind for work in at.values() for kind in work["collectives"]})
    small = {cores: work for cores, work in at.items() if cores <= _OPEN_CORES}
    return (
        name,
        _order(growth.compute),
        power({cores: work["flops"] or work["bytes"] for cores, work in at.items()}),
        _order(growth.communication) if growth.collective else "-",
        power({cores: sum(work["collectives"].values()) for cores, work in at.items()}),
        power({cores: work["seconds"] for cores, work in small.items()}),
        growth.collective or "-",
        ", ".join(kinds) or "-",
    )


def power(values: Mapping[int, float]) -> float | None:
    """The p of the line log(value) = p log(D) + c with least squares; None without values."""
    points = [(math.log(at), math.log(value)) for at, value in values.items() if value > 0]
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return slope / sum((x - mean_x) ** 2 for x, _ in points)


def _order(exponent: float) -> str:
    return {0: "O(1)", 0.5: "O(sqrt D)", 1: "O(D)"}[exponent]
