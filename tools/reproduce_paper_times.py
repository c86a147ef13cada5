"""Where a step's time goes: Figure 8, and its growth.

All times are estimates from compiled programs; see `gshard_train.precompiling.card.ESTIMATE`.
"""

from __future__ import annotations

from typing import Any

import paper_figures
import reproduce_paper_programs as programs
from gshard_annotate.inspector.report import Exchange, Report
from gshard_train.precompiling.card import ESTIMATE
from gshard_train.precompiling.job import Job
from reproduce_paper_cards import Found
from reproduce_paper_tables import PERCENT, Column, Section, deviation

EXPERTS = (128, 512, 2048)
LAYERS = 36
_OTHER = "other (norms, dropout)"
# The innermost named scope of the models that is here counts.
_PART_OF_SCOPE = {
    "projections": "attention projections",
    "attention": "attention",
    "dense_feed_forward": "dense feed-forward",
    "gating": "gating and dispatch",
    "dispatch": "gating and dispatch",
    "combine": "gating and dispatch",
    "experts": "experts",
    "norm": _OTHER,
}
# Embeddings, logits, loss and optimizer are no part of a layer.
_OUTSIDE = {"embedding", "logits", "loss", "optimizer"}
# Of a pair of encoder layers, which Figure 8 shows: a pair of decoder layers attends to the source
# as well, so that the mean pair of a model has three attentions, and the encoder's two.
_OF_A_MEAN_PAIR = {"attention projections": 2 / 3, "attention": 2 / 3}


def breakdown_jobs() -> dict[int, Job]:
    """The programs of Figure 8 by experts."""
    return {experts: programs.fixed_load(experts, LAYERS) for experts in EXPERTS}


def pair_times(report: Report, layers: int) -> dict[str, float]:
    """Seconds of the forward pass of one MoE and one dense layer of the encoder, by part."""
    names = (*next(iter(paper_figures.STEP_TIME.values())), _OTHER)
    seconds = dict.fromkeys(names, 0.0)
    for one in report.operations:
        part = _part(one.scope)
        if part and not one.backward and not one.recomputed:
            seconds[part] += one.seconds or 0.0
    for one in report.exchanges:
        if one.collective.kind == "all-to-all" and is_forward(one):
            seconds["all-to-all"] += one.seconds or 0.0
    return {
        part: spent * _OF_A_MEAN_PAIR.get(part, 1.0) / (layers / 2)
        for part, spent in seconds.items()
    }


def unnamed_seconds(report: Report) -> float:
    """Of a step's forward pass, where no named scope tells what it belongs to."""
    return sum(
        one.seconds or 0.0
        for one in report.operations
        if not (one.scope or one.backward or one.recomputed)
    )


def is_forward(exchange: Exchange) -> bool:
    """Whether it is of the forward pass, and not of that computed again."""
    name = exchange.collective.op_name
    return "transpose(" not in name and "rematted_computation" not in name


def _part(scope: str) -> str | None:
    """The part of the figure that an operation is of; None for what is no layer's."""
    inside = scope.split("/")
    if not scope or _OUTSIDE & set(inside):
        return None
    return next((_PART_OF_SCOPE[one] for one in reversed(inside) if one in _PART_OF_SCOPE), _OTHER)


def breakdown(found: Found) -> Section:
    """Figure 8."""
    times = _pair_times(found)
    rows = []
    for experts, parts in times.items():
        bars = paper_figures.STEP_TIME[experts]
        for part, seconds in parts.items():
            rows.append((f"{experts}E", part, *_beside(bars.get(part), seconds * 1e6)))
        total = sum(parts.values()) * 1e6
        rows.append((f"{experts}E", "all", *_beside(paper_figures.STEP_TIME_TOTAL[experts], total)))
    columns = (
        Column("experts"),
        Column("part"),
        Column("paper, measured µs", ",.0f"),
        Column("paper, roofline µs", ",.0f"),
        Column("here, estimate µs", ",.0f"),
        Column("to measured", PERCENT),
        Column("to roofline", PERCENT),
    )
    says = [
        "Forward pass of one MoE and one dense layer, of the training step of the model with 36 "
        f"layers and {programs.TOKENS_PER_CORE:,} tokens a core. Both of ours are means over the "
        "model's pairs; of attention two thirds, since decoder layers attend twice.",
        f"Estimate: {ESTIMATE}. It is to be compared with the paper's roofline; what was measured "
        "there is longer.",
        "Activations are float32, as the paper's. Attention here has the random bits of dropout in "
        "it (shifts, xor and additions of threefry), a good part of its time.",
    ]
    if unnamed := [
        unnamed_seconds(report) * 1e6 / (LAYERS / 2) for report in _reports(found).values()
    ]:
        said = ", ".join(f"{one:,.0f}" for one in unnamed)
        says.append(
            "Not in it is what has no named scope, in the layers or outside of them: "
            f"{said} µs, divided by the pairs."
        )
    return Section(
        key="breakdown",
        title="Time of a step",
        of="Figure 8",
        columns=columns,
        rows=tuple(rows),
        says=tuple(says),
        picture=lambda axes: _draw_breakdown(axes, times),
    )


def _pair_times(found: Found) -> dict[int, dict[str, float]]:
    return {experts: pair_times(one, LAYERS) for experts, one in _reports(found).items()}


def _reports(found: Found) -> dict[int, Report]:
    """Reports of the programs of Figure 8 that there are, by experts."""
    jobs = {experts: job for experts, job in breakdown_jobs().items() if job in found}
    reports = {experts: found[job].result.report for experts, job in jobs.items()}
    return {experts: report for experts, report in reports.items() if report is not None}


def _beside(bar: paper_figures.Bar | None, ours: float) -> tuple[float | None, ...]:
    measured, roofline = bar or (None, None)
    return measured, roofline, ours, deviation(ours, measured), deviation(ours, roofline)


def _draw_breakdown(axes: Any, times: dict[int, dict[str, float]]) -> None:
    columns: list[tuple[str, dict[str, float]]] = []
    for experts, parts in times.items():
        bars = paper_figures.STEP_TIME[experts]
        columns += [
            (f"{experts}E\nmeasured", {part: bar.measured for part, bar in bars.items()}),
            (f"{experts}E\nroofline", {part: bar.roofline for part, bar in bars.items()}),
            (f"{experts}E\nhere", {part: seconds * 1e6 for part, seconds in parts.items()}),
        ]
    below = [0.0] * len(columns)
    for part in (*next(iter(paper_figures.STEP_TIME.values())), _OTHER):
        heights = [parts.get(part, 0.0) / 1000 for _, parts in columns]
        axes.bar(range(len(columns)), heights, 0.7, bottom=below, label=part)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set_xticks(range(len(columns)), [name for name, _ in columns], fontsize=8)
    axes.set_ylabel("ms")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)


def growth(found: Found) -> Section:
    """What 16 times the experts cost."""
    times, (few, many) = _pair_times(found), (EXPERTS[0], EXPERTS[-1])
    low, high = (paper_figures.STEP_TIME_TOTAL[experts] for experts in (few, many))
    exchanged = [paper_figures.STEP_TIME[experts]["all-to-all"] for experts in (few, many)]
    pair = _ratio(times, lambda parts: sum(parts.values()))
    moved = _ratio(times, lambda parts: parts["all-to-all"])
    short, long = (_step_seconds(found, experts) for experts in (few, many))
    step = long / short if short and long else None
    roofline = high.roofline / low.roofline
    moved_roofline = exchanged[1].roofline / exchanged[0].roofline
    said, moved_said = paper_figures.STEP_TIME_GROWTH, paper_figures.ALL_TO_ALL_GROWTH
    rows = (
        ("forward pass of the two layers", said, roofline, pair, deviation(pair, said)),
        ("its all-to-all", moved_said, moved_roofline, moved, deviation(moved, moved_said)),
        ("the whole step", None, None, step, None),
    )
    columns = (
        Column("time of"),
        Column("paper, measured", ".2f"),
        Column("paper, roofline", ".2f"),
        Column("here, estimate", ".2f"),
        Column("to measured", PERCENT),
    )
    says = (
        f"From {few} experts on {few} cores to {many} on {many}: 16 times the experts, and almost "
        "16 times the parameters. The step has its optimizer and the sums of gradients.",
        "What grows is the all-to-all, by its way on the torus, and gating, whose work on a core "
        "grows with the experts. Of these machines the torus model closes the rings of that with "
        "2,048 cores alone, which halves its all-to-all; the paper's times do not show that.",
    )
    return Section(
        key="growth",
        title="Growth of a step with 16 times the experts",
        of="in words",
        columns=columns,
        rows=rows,
        says=says,
    )


def _ratio(times: dict[int, dict[str, float]], of: Any) -> float | None:
    few, many = times.get(EXPERTS[0]), times.get(EXPERTS[-1])
    return of(many) / of(few) if few and many and of(few) else None


def _step_seconds(found: Found, experts: int) -> float | None:
    report = _reports(found).get(experts)
    return report.cost.step_seconds if report else None
