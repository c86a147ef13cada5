"""What a device holds and what compiling takes: Table 1, Figure 7, the claim about compiling."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

import paper_figures
import reproduce_paper_programs as programs
from gshard_train import config, state
from gshard_train.models.config import TransformerConfig
from gshard_train.monitoring.overview import counts
from gshard_train.precompiling.card import CostCard, cost_card
from gshard_train.precompiling.job import Job
from reproduce_paper_programs import Compiled
from reproduce_paper_tables import PERCENT, Column, Section, deviation

_RUN = "gshard_train/configs/runs/train.gin"
_UNUSED = ("MODEL_DIR = 'none'", "MIXTURE_OR_TASK_NAME = 'none'", "TRAIN_STEPS = 1")
_GB, _GIB = 1e9, 2**30
COMPILE_CORES = (16, 32, 128, 512, 2048)

Found = Mapping[Job, Compiled]


def parameters() -> Section:
    """Table 1; nothing is compiled."""
    rows = []
    for name, model in paper_figures.MODELS.items():
        found = counts(state.abstract_model(model_of(programs.shipped(model))))
        total, experts, active = (one / 1e9 for one in found)
        off = deviation(total, model.billions)
        rows.append((name, model.billions, total, off, experts, active))
    columns = (
        Column("model"),
        Column("paper, billions", ",g"),
        Column("here, billions", ",.2f"),
        Column("deviation", "+.1%"),
        Column("of it in experts", ",.2f"),
        Column("active for a token", ".2f"),
    )
    says = (
        "The paper prints rounded numbers. Its sizes (appendix A.2) give what stands here; the "
        "second table of the target vocabulary and learned positions, 0.035 billion, are ours.",
    )
    return Section(
        key="parameters",
        title="Parameters",
        of="Table 1",
        columns=columns,
        rows=tuple(rows),
        says=says,
    )


def model_of(job: Job) -> TransformerConfig:
    """The model that a job compiles."""
    loaded = config.load([*job.gin_files, _RUN], [*_UNUSED, *job.gin_bindings])
    return loaded.arguments("gshard_train.training.train")["experiment"].model


def memory_jobs() -> dict[tuple[int, int], Job]:
    """The programs of Figure 7 by experts and layers."""
    return {bar: programs.fixed_load(*bar) for bar in paper_figures.MEMORY}


def memory(found: Found) -> Section:
    """Figure 7."""
    rows = []
    for (experts, layers), job in memory_jobs().items():
        if job not in found:
            continue
        bar, card, why = paper_figures.MEMORY[experts, layers], *card_of(found[job])
        here = _memory_cells(card)
        rows.append(
            (
                f"{experts}E, {layers}L",
                bar.weights,
                here[0],
                deviation(here[0], bar.weights),
                bar.total,
                here[1],
                deviation(here[1], bar.total),
                here[2],
                _recomputed(model_of(job)),
                short_verdict(card) if card else why,
            )
        )
    columns = (
        Column("model"),
        Column("weights, paper GB", ".2f"),
        Column("weights, here", ".2f"),
        Column("their deviation", PERCENT),
        Column("all, paper GB", ".2f"),
        Column("all, here", ".2f"),
        Column("its deviation", PERCENT),
        Column("activations, here", ".2f"),
        Column("computed again, here"),
        Column("verdict"),
    )
    says = (
        f"Assumed: {programs.TOKENS_PER_CORE:,} source and as many target tokens a core, rows of "
        f"{programs.ROW}; the paper does not say. GB are 1e9 bytes on one core, of 16 GiB. Weights "
        "include the optimizer's state (Adafactor's rows and columns); activations are all that "
        "the program makes and drops again, gradients too.",
        "What the backward pass computes again is set in our files (`remat`); the paper's compiler "
        "chose by itself: nothing at 12 and 24 layers, 28 % of the cycles at 36, 34 % at 60.",
    )
    return Section(
        key="memory",
        title="Memory of a core",
        of="Figure 7",
        columns=columns,
        rows=tuple(rows),
        says=says,
        picture=lambda axes: _draw_memory(axes, rows),
    )


def _recomputed(model: TransformerConfig) -> str:
    remat = model.remat if isinstance(model.remat, str) else ", ".join(model.remat)
    dtype = jnp.dtype(model.dtype).name
    return remat if dtype == "float32" else f"{remat}, {dtype}"


def _memory_cells(card: CostCard | None) -> tuple[float | None, ...]:
    """GB of the state, of everything and of activations."""
    if card is None:
        return None, None, None
    sizes = (card.memory.state, card.memory.peak, card.memory.activations)
    return tuple(None if size is None else size / _GB for size in sizes)


def _draw_memory(axes: Any, rows: list[tuple[Any, ...]]) -> None:
    for shift, (weights, total), name in ((-0.2, (1, 4), "paper"), (0.2, (2, 5), "here")):
        places = [place + shift for place in range(len(rows))]
        colour = {"paper": "#b0772c", "here": "#2c7fb0"}[name]
        axes.bar(places, [row[total] or 0 for row in rows], 0.36, color=colour, alpha=0.45)
        bars = [row[weights] or 0 for row in rows]
        axes.bar(places, bars, 0.36, color=colour, label=f"{name}: weights, all")
    axes.set_xticks(range(len(rows)), [row[0] for row in rows])
    axes.set_ylabel("GB a core")
    axes.legend(frameon=False)


def compile_jobs() -> dict[int, Job]:
    """The model of 36 layers by its number of cores, with one expert and the same load on each."""
    return {cores: programs.fixed_load(cores, 36) for cores in COMPILE_CORES}


def compiling(found: Found) -> Section:
    """The claim that the time to compile hardly depends on the number of partitions."""
    made = {cores: found[job] for cores, job in compile_jobs().items() if job in found}
    base = _seconds(made[32]) if 32 in made else None
    rows = []
    for cores, one in made.items():
        seconds, result = _seconds(one), one.result
        rows.append(
            (
                cores,
                programs.FULL_LOAD[cores],
                result.lower_seconds,
                result.compile_seconds,
                seconds,
                deviation(seconds, base),
                one.cpu_seconds,
                result.host_peak_bytes / _GIB,
                "" if result.fault is None else result.fault.kind,
            )
        )
    columns = (
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
    return Section(
        key="compile",
        title="Time to compile",
        of="in words",
        columns=columns,
        rows=tuple(rows),
        says=tuple(says),
        picture=lambda axes: _draw_compiling(axes, rows),
    )


def _seconds(made: Compiled) -> float | None:
    if made.result.fault is not None and made.result.fault.kind != "too large":
        return None
    return made.result.lower_seconds + made.result.compile_seconds


def _draw_compiling(axes: Any, rows: list[tuple[Any, ...]]) -> None:
    shown = [row for row in rows if row[4] is not None]
    axes.plot([row[0] for row in shown], [row[4] for row in shown], "o-", label="seconds")
    axes.plot([row[0] for row in shown], [row[6] for row in shown], "s--", label="CPU seconds")
    axes.set_xscale("log", base=2)
    axes.set_xticks([row[0] for row in shown], [f"{row[0]:,}" for row in shown])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("cores")
    axes.legend(frameon=False)


def card_of(made: Compiled) -> tuple[CostCard | None, str]:
    """The program's cost card; None, and why, where nothing is known of it."""
    fault = made.result.fault
    if made.result.facts is None or (fault is not None and fault.kind != "too large"):
        return None, f"{fault.kind}: {fault.message.splitlines()[0]}" if fault else "nothing known"
    return cost_card(made.result, tokens=paper_figures.TOKENS), ""


def short_verdict(card: CostCard) -> str:
    """Whether the program fits, in three words."""
    return card.verdict.partition(":")[0]
