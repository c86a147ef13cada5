"""A cost card as one HTML page that needs nothing beside itself.

Style, script and tables are those of the sharding report, which it looks like. Every text that
comes from a program or a user passes through `html.escape`.
"""

import string
from collections.abc import Iterator
from html import escape
from importlib import resources
from importlib.metadata import version

from gshard_annotate.inspector.page_figures import mesh_drawing, stacked_bar
from gshard_annotate.inspector.quantities import duration, number, percent, size
from gshard_train.monitoring.short_numbers import short
from gshard_train.precompiling.card import ESTIMATE, CostCard
from gshard_train.precompiling.card_words import (
    PROGRAMS,
    UNITS,
    cost_rows,
    memory_rows,
    no_estimate,
    outcome_of_compiling,
)
from gshard_train.precompiling.page_advice import advice_section
from gshard_train.precompiling.page_card_tables import arrays_section, exchanges_section

_EXACT = (
    "parameters, bytes, FLOP as compiled and collectives: the compiler for this machine made the "
    "program. What stands in a loop counts as often as the loop runs."
)


def card_page(card: CostCard) -> str:
    """The text of the page."""
    body = [
        _header(card),
        _verdict(card),
        _figures(card),
        advice_section(card.advice) if card.advice else "",
        _memory(card),
        _time(card),
        _model(card),
        _surprises(card),
        _finder(),
        exchanges_section(card),
        arrays_section(card),
        _how_to_read(card),
    ]
    folder = resources.files("gshard_annotate") / "inspector" / "page"
    template = string.Template((folder / "report.html").read_text("utf-8"))
    own = resources.files("gshard_train") / "precompiling" / "page" / "card.css"
    return template.substitute(
        title=escape(f"{card.title}: cost card"),
        body="\n".join(filter(None, body)),
        css=(folder / "report.css").read_text("utf-8") + own.read_text("utf-8"),
        js=(folder / "report.js").read_text("utf-8"),
    )


def _header(card: CostCard) -> str:
    slices = f"{card.job.num_slices} slices of " if card.job.num_slices > 1 else ""
    facts = [
        PROGRAMS[card.mode].capitalize(),
        escape(f"{slices}{card.job.topology}"),
        escape(f"{card.num_devices:,} {card.device_kind} devices"),
    ]
    return (
        f'<header><div><p class="eyebrow">Cost card</p>\n<h1>{escape(card.title)}</h1>\n'
        f'<p class="soft">{" · ".join(facts)}</p></div>\n{mesh_drawing(card.mesh)}</header>'
    )


def _verdict(card: CostCard) -> str:
    said = escape(f"{card.verdict[0].upper()}{card.verdict[1:]}")
    kind = "good" if card.fits else "warn" if card.fits is False or card.fault else "open"
    fault = f'<p class="faults">{escape(card.fault)}</p>' if card.fault else ""
    return f'<p class="verdict {kind}">{said}</p>{fault}'


def _figures(card: CostCard) -> str:
    if card.step_seconds is None or card.tokens_per_second is None:
        return f'<p class="soft">{escape(no_estimate(card))}</p>' if card.is_compiled else ""
    figures = [
        (
            f"Estimated {UNITS[card.mode][0]}",
            duration(card.step_seconds),
            f"{card.batch_size:,} rows",
        ),
        ("Source tokens a second", short(card.tokens_per_second), "estimate"),
        ("Utilisation", percent(card.utilisation), "model FLOP of the chips' peak"),
    ]
    (unit, runs), *costs = cost_rows(card)
    for name, amount in costs:
        price = f", at {card.price:g} a device-hour" if name == "money" else ""
        below = f"{short(card.tokens)} source tokens, {runs} {unit}{price}"
        figures.append((name.capitalize(), amount, below))
    listed = "".join(
        f'<div class="figure"><dt>{what}</dt><dd class="value">{escape(value)}</dd>'
        f'<dd class="soft small">{escape(below)}</dd></div>'
        for what, value, below in figures
    )
    return (
        f'<section id="figures"><h2>What it would take</h2><dl class="figures">{listed}</dl>'
        "</section>"
    )


def _memory(card: CostCard) -> str:
    memory = card.memory
    segments = [(kind, what, count, size(count)) for kind, count, what in memory_rows(card)]
    whole = max(memory.limit or 0, sum(one[2] for one in segments))
    used = size(memory.peak) if memory.peak is not None else "not known"
    of = f" of {size(memory.limit)}" if memory.limit else ""
    return (
        '<section id="memory"><h2>Memory of a device</h2>'
        f"{stacked_bar(f'At its peak {used}{of}', segments, whole, memory.limit)}</section>"
    )


def _time(card: CostCard) -> str:
    if not card.step_seconds or not card.parts:
        return ""
    segments = [
        (part.split()[0], part, spent, f"{duration(spent)}, {percent(spent / card.step_seconds)}")
        for part, spent in card.parts.items()
    ]
    chip = f" on {escape(card.chip)}" if card.chip else ""
    title = f"Estimated, {duration(card.step_seconds)}{chip}"
    return (
        f'<section id="time"><h2>Time of a {UNITS[card.mode][0]}</h2>'
        f"{stacked_bar(title, segments, card.step_seconds)}"
        f'<p class="small soft">{ESTIMATE[0].upper()}{ESTIMATE[1:]}.</p></section>'
    )


def _model(card: CostCard) -> str:
    flops = number(card.model_flops / card.num_devices, "FLOP")
    compiled = f", {number(card.device_flops, 'FLOP')} as compiled" if card.device_flops else ""
    rows = [
        ("Parameters", f"{short(card.parameters)} ({card.parameters:,})"),
        ("In experts", short(card.expert_parameters)),
        ("Active for a token", short(card.active_parameters)),
        ("Batch", f"{card.batch_size:,} rows: {short(card.source_tokens)} source and "
                  f"{short(card.target_tokens)} target tokens at most"),
        ("Work of a device", f"{flops} by the model{compiled}"),
        ("Compiling", outcome_of_compiling(card)),
    ]  # fmt: skip
    listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f'<section id="model"><h2>Model and program</h2><dl class="card">{listed}</dl></section>'


def _surprises(card: CostCard) -> str:
    if not card.surprises:
        return ""
    listed = "".join(f"<li><p>{escape(one)}</p></li>" for one in card.surprises)
    head = f"Surprises ({len(card.surprises):,}): what nobody asked for"
    return f'<section id="surprises"><h2>{head}</h2><ol class="surprises">{listed}</ol></section>'


def _finder() -> str:
    return (
        '<form class="finder" role="search" hidden><label for="find">Filter tables</label>'
        '<input id="find" type="search" placeholder="kind, axis, name, file" autocomplete="off">'
        '<label><input id="flagged" type="checkbox"> Only surprises</label>'
        '<output for="find flagged" class="soft"></output></form>'
    )


def _how_to_read(card: CostCard) -> str:
    listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in _readings(card))
    return f'<section id="read"><h2>How to read this</h2><dl class="made">{listed}</dl></section>'


def _readings(card: CostCard) -> Iterator[tuple[str, str]]:
    yield "Exact", _EXACT
    yield "Estimates", f"seconds and all that follows from them: {ESTIMATE}."
    yield "Device", "what JAX calls one; on TPU v2 and v3 each of a chip's two cores."
    for note in card.notes:
        yield "Note", note
    yield "Made by", f"gshard-train {version('gshard-train')}"
