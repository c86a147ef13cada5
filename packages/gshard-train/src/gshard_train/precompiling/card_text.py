"""A cost card as text: what is asked first (does it fit, how fast, how dear), then the reasons."""

import textwrap
from collections.abc import Sequence

from gshard_annotate.checks import describe_mesh
from gshard_annotate.inspector.columns import WIDTH, Column, table
from gshard_annotate.inspector.quantities import duration, number, percent, size
from gshard_train.monitoring.short_numbers import short
from gshard_train.precompiling.advice_text import advice_text
from gshard_train.precompiling.card import ESTIMATE, CostCard
from gshard_train.precompiling.card_words import (
    PROGRAMS,
    UNITS,
    cost_rows,
    memory_rows,
    no_estimate,
    outcome_of_compiling,
)
from gshard_train.precompiling.exchange_sums import ExchangeSum

MOST_EXCHANGES, MOST_ROOMS = 20, 8

_EXCHANGES = (
    Column(""),
    Column("kind"),
    Column("mesh axes", shrinks=2),
    Column("in all", right=True),
    Column("times", right=True),
    Column("time", right=True),
    Column("share", right=True),
    Column("source"),
    Column("cause", shrinks=3),
)
_ROOMS = (
    Column("what"),
    Column("a device", right=True),
    Column("shape", shrinks=2),
    Column("split over", shrinks=2),
    Column("name", shrinks=3),
    Column("source"),
)
_AMOUNTS = (Column("  "), Column("", right=True), Column("", right=True), Column(""))


def card_text(card: CostCard) -> str:
    """What `print(card.text())` shows."""
    parts = [
        _head(card),
        _speed(card),
        advice_text(card.advice) if card.advice else "",
        _model(card),
        _memory(card),
        _time(card),
        _exchanges(card),
        _surprises(card),
        _rooms(card),
        f"COMPILING: {outcome_of_compiling(card)}",
        _notes(card),
    ]
    return "\n\n".join(filter(None, parts))


def heading(card: CostCard) -> str:
    """What was compiled for what."""
    slices = f"{card.job.num_slices} slices of " if card.job.num_slices > 1 else ""
    return (
        f"{card.title}: {PROGRAMS[card.mode]} on {slices}{card.job.topology}, "
        f"{card.num_devices:,} {card.device_kind} devices, mesh {describe_mesh(dict(card.mesh))}"
    )


def _head(card: CostCard) -> str:
    lines = [heading(card), f"{card.verdict[0].upper()}{card.verdict[1:]}"]
    if card.fits is None and card.fault:
        lines += card.fault.splitlines()
    wrapped = (textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines)
    return "\n".join(wrapped)


def _speed(card: CostCard) -> str:
    if card.step_seconds is None or card.tokens_per_second is None:
        return no_estimate(card)
    longest = card.target_tokens // card.batch_size
    of = f" of translations of {longest:,} tokens" if card.mode == "decode" else ""
    used = "" if card.utilisation is None else f", {percent(card.utilisation)} of peak (model FLOP)"
    lines = [
        f"ESTIMATE: {duration(card.step_seconds)} a {UNITS[card.mode][0]}{of}, "
        f"{short(card.tokens_per_second)} source tokens/s, "
        f"{short(card.rows_per_second or 0)} examples/s{used}",
        f"  {short(card.tokens)} source tokens: "
        + ", ".join(f"{name} {amount}" for name, amount in cost_rows(card))
        + (f" at {card.price:g} a device-hour" if card.money is not None else ""),
    ]
    return "\n".join(lines)


def _model(card: CostCard) -> str:
    lines = [
        f"MODEL: {short(card.parameters)} parameters ({card.parameters:,}), "
        f"{short(card.expert_parameters)} of them in experts; {short(card.active_parameters)} "
        "active for a token",
        f"  a batch of {card.batch_size:,} rows: {short(card.source_tokens)} source and "
        f"{short(card.target_tokens)} target tokens at most",
        f"  {number(card.model_flops / card.num_devices, 'FLOP')} a device by the model"
        + (f", {number(card.device_flops, 'FLOP')} as compiled" if card.device_flops else ""),
    ]
    return "\n".join(lines)


def _memory(card: CostCard) -> str:
    memory = card.memory
    of = f" of {size(memory.limit)}" if memory.limit else ""
    peak = size(memory.peak) if memory.peak is not None else "not known"
    whole = memory.limit or memory.peak
    rows = [
        ("", size(count), percent(count / whole) if whole else "", what)
        for _, count, what in memory_rows(card)
    ]
    host = f"\n  {size(memory.on_host)} of the optimizer in the host's memory" * bool(
        memory.on_host
    )
    return f"MEMORY of a device: {peak}{of}\n{_amounts(rows)}{host}"


def _time(card: CostCard) -> str:
    if not card.step_seconds or not card.parts:
        return ""
    rows = [
        ("", duration(seconds), percent(seconds / card.step_seconds), part)
        for part, seconds in card.parts.items()
        if seconds
    ]
    chip = f" on {card.chip}" if card.chip else ""
    said = textwrap.fill(f"({ESTIMATE})", WIDTH, initial_indent="  ", subsequent_indent="   ")
    head = f"TIME of a {UNITS[card.mode][0]}{chip}: {duration(card.step_seconds)}"
    return f"{head}\n{said}\n{_amounts(rows)}"


def _amounts(rows: Sequence[Sequence[str]]) -> str:
    body = table(_AMOUNTS, [("  ", *row[1:]) for row in rows])
    return body.partition("\n")[2]


def _exchanges(card: CostCard) -> str:
    if not card.is_compiled:
        return ""
    if not card.exchanges:
        return "COLLECTIVES: none"
    shown = card.exchanges[:MOST_EXCHANGES]
    rows = [_exchange(one, card.step_seconds) for one in shown]
    moved = size(sum(one.bytes for one in card.exchanges))
    runs = sum(one.times for one in card.exchanges)
    head = f"COLLECTIVES of a {UNITS[card.mode][0]}: {runs:,} runs; a device has {moved} of results"
    lines = [f"{head} in all", table(_EXCHANGES, rows)]
    if left := len(card.exchanges) - len(shown):
        lines.append(f"… and {left:,} smaller: --json")
    return "\n".join(lines)


def _exchange(one: ExchangeSum, step_seconds: float | None) -> list[str]:
    share = one.seconds / step_seconds if one.seconds is not None and step_seconds else None
    return [
        "!" if one.surprise else "",
        one.kind,
        ", ".join(one.mesh_axes) or f"groups of {one.group_size}",
        size(one.bytes),
        f"{one.times:,}",
        duration(one.seconds) if share is not None else "",
        percent(share) if share is not None else "",
        one.source,
        one.cause,
    ]


def _surprises(card: CostCard) -> str:
    if not card.surprises:
        return ""
    from gshard_annotate.inspector.text import MOST_SURPRISES, listed

    head = f"SURPRISES ({len(card.surprises):,}): what nobody asked for"
    return "\n".join([head, *listed(card.surprises, MOST_SURPRISES)])


def _rooms(card: CostCard) -> str:
    if not card.rooms:
        return ""
    rows = [
        [one.what, size(one.bytes), one.shape, one.split, one.names, one.source]
        for one in card.rooms[:MOST_ROOMS]
    ]
    return f"WHAT TAKES THE ROOM\n{table(_ROOMS, rows)}"


def _notes(card: CostCard) -> str:
    if not card.notes:
        return ""
    from gshard_annotate.inspector.text import listed

    return "\n".join(["NOTES", *listed(card.notes, len(card.notes))])
