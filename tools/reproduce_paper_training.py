"""What a training takes: Table 3. Estimates from compiled programs."""

from __future__ import annotations

from typing import Any

import paper_figures
import reproduce_paper_programs as programs
from gshard_train.precompiling.card import ESTIMATE
from gshard_train.precompiling.job import Job
from reproduce_paper_cards import LAYOUT, Found, Known, known
from reproduce_paper_tables import PERCENT, Column, Section, deviation

_COLUMNS = (
    Column("model"),
    Column("steps/s, paper", ".2f"),
    Column("steps/s, here", ".2f"),
    Column("their deviation", PERCENT),
    Column("days, paper", ".1f"),
    Column("days, here", ".1f"),
    Column("days' deviation", PERCENT),
    Column("core-years, paper", ".1f"),
    Column("core-years, here", ".1f"),
    Column("years' deviation", PERCENT),
    Column("M tokens/s, here", ".2f"),
    Column("share of peak", ".0%"),
    Column("layout, here"),
    Column("memory"),
)
_SAYS = (
    f"Ours are estimates: {ESTIMATE}. The paper's are of real runs.",
    "Where the paper is faster than such a floor, a batch of it must have held less than ours, "
    "which has as many target tokens as source tokens.",
    "1e12 source tokens (T(96L): 1.2e12, as the paper's pipeline), each model file as it comes "
    "with us. Batches of 4M and 1M tokens: by "
    "its days the paper's are 4.0e6 and 1.0e6, ours are 2^22 and 2^20, 5 % more in a step.",
    "Share of peak counts what the model needs, nothing that is computed again, at bfloat16 peak.",
    LAYOUT,
)


def cost_jobs() -> dict[str, Job]:
    """Every row of Table 1 by its name, as its file has it."""
    return {name: programs.shipped(model) for name, model in paper_figures.MODELS.items()}


def cost(found: Found) -> Section:
    """Table 3, and the rows that it does not have."""
    tokens = {name: model.tokens for name, model in paper_figures.MODELS.items()}
    rows = [_row(name, of) for name, _, of in known(found, cost_jobs(), tokens)]
    return Section(
        key="cost",
        title="What a training takes",
        of="Table 3",
        columns=_COLUMNS,
        rows=tuple(rows),
        says=_SAYS,
        picture=lambda axes: _draw_cost(axes, rows),
    )


def _row(name: str, of: Known) -> tuple[Any, ...]:
    model, card = paper_figures.MODELS[name], of.card
    pace = 1 / card.step_seconds if card and card.step_seconds else None
    days, years = (card.days, card.device_years) if card else (None, None)
    return (
        name,
        model.steps_per_second,
        pace,
        deviation(pace, model.steps_per_second),
        model.days,
        days,
        deviation(days, model.days),
        model.core_years,
        years,
        deviation(years, model.core_years),
        card.tokens_per_second / 1e6 if card and card.tokens_per_second else None,
        card.utilisation if card else None,
        of.layout,
        of.verdict,
    )


def _draw_cost(axes: Any, rows: list[tuple[Any, ...]]) -> None:
    for shift, column, name in ((-0.2, 7, "paper"), (0.2, 8, "here, estimate")):
        places = [place + shift for place in range(len(rows))]
        axes.barh(places, [row[column] or 0 for row in rows], 0.38, label=name)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("core-years, logarithmic")
    axes.legend(frameon=False)
