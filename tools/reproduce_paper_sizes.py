"""What a device holds: Table 1 and Figure 7."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import paper_figures
import reproduce_paper_programs as programs
from gshard_train import state
from gshard_train.models.config import TransformerConfig
from gshard_train.monitoring.overview import counts
from gshard_train.precompiling.card import CostCard
from gshard_train.precompiling.job import Job
from reproduce_paper_cards import LAYOUT, Found, Known, experiment_of, known
from reproduce_paper_tables import PERCENT, Column, Section, deviation

_GB = 1e9
_MEMORY = (
    Column("model"),
    Column("weights, paper GB", ".2f"),
    Column("weights, here", ".2f"),
    Column("their deviation", PERCENT),
    Column("all, paper GB", ".2f"),
    Column("all, here", ".2f"),
    Column("its deviation", PERCENT),
    Column("activations, here", ".2f"),
    Column("computed again, here"),
    Column("layout, here"),
    Column("verdict"),
)
_MEMORY_SAYS = (
    f"Assumed: {programs.TOKENS_PER_CORE:,} source and as many target tokens a core, rows of "
    f"{programs.ROW}; the paper does not say. GB are 1e9 bytes on one core, of 16 GiB. Weights "
    "include the optimizer's state (Adafactor's rows and columns); activations are all that "
    "the program makes and drops again, gradients too.",
    "What the backward pass computes again is set in our files (`remat`); the paper's compiler "
    "chose by itself: nothing at 12 and 24 layers, 28 % of the cycles at 36, 34 % at 60.",
    LAYOUT,
)


def parameters() -> Section:
    """Table 1; nothing is compiled."""
    rows = []
    for name, model in paper_figures.MODELS.items():
        found = counts(state.abstract_model(experiment_of(programs.shipped(model)).model))
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


def memory_jobs() -> dict[tuple[int, int], Job]:
    """The programs of Figure 7 by experts and layers."""
    return {bar: programs.fixed_load(*bar) for bar in paper_figures.MEMORY}


def memory(found: Found) -> Section:
    """Figure 7."""
    rows = [_memory_row(*each) for each in known(found, memory_jobs())]
    return Section(
        key="memory",
        title="Memory of a core",
        of="Figure 7",
        columns=_MEMORY,
        rows=tuple(rows),
        says=_MEMORY_SAYS,
        picture=lambda axes: _draw_memory(axes, rows),
    )


def _memory_row(bar: tuple[int, int], job: Job, of: Known) -> tuple[Any, ...]:
    experts, layers = bar
    papers, (state_gb, peak_gb, rest_gb) = paper_figures.MEMORY[bar], _memory_cells(of.card)
    return (
        f"{experts}E, {layers}L",
        papers.weights,
        state_gb,
        deviation(state_gb, papers.weights),
        papers.total,
        peak_gb,
        deviation(peak_gb, papers.total),
        rest_gb,
        _recomputed(experiment_of(job).model),
        of.layout,
        of.verdict,
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
