"""What follows from a search: what the winner costs, or what to change where nothing fits."""

from collections.abc import Iterator

from gshard_annotate.inspector.quantities import size
from gshard_train.planning.options import Options
from gshard_train.planning.row import Row
from gshard_train.planning.search import Found
from gshard_train.planning.table import layout_line
from gshard_train.precompiling.card import ESTIMATE, cost_card
from gshard_train.precompiling.card_words import cost_rows
from gshard_train.precompiling.verdict import device_memory


def conclusion(found: Found, least_bytes: int, options: Options) -> str:
    """In a few lines.

    Args:
      found: by the search.
      least_bytes: of a device, for the state in the layout that needs least.
      options: of the search.
    """
    if found.best is not None:
        return _best(found.best, found, options)
    measured = [row for row in found.rows if row.bytes is not None]
    if not found.rows:
        return _nothing(found, least_bytes, options)
    if not measured:
        return "No layout could be compiled; the first lines of the reasons are in the table."
    return _nearest(min(measured, key=lambda row: row.bytes or 0))


def _nothing(found: Found, least_bytes: int, options: Options) -> str:
    if found.ended == "interrupted":
        return "Interrupted before the first layout was compiled."
    if found.ended == "time":
        return (
            f"--time_limit={options.time_limit:g} was over before the first layout was compiled; "
            "give more seconds."
        )
    if not least_bytes:
        return "The checks refuse every layout; take another machine, or other sizes."
    return (
        f"No layout has room: parameters and optimizer alone take {size(least_bytes)} of a device "
        "in the one that needs least. Take more devices, or a smaller model."
    )


def _best(best: Row, found: Found, options: Options) -> str:
    own = next((row for row in found.rows if row.candidate.own), None)
    lines = [*_beside_own(best, own), *_cost(best, options)]
    lines.append(f"Steps are estimates: {ESTIMATE}.")
    report = best.result.report
    lines += [f"Of this one: {note}." for note in (report.notes if report else ())]
    before, after = _groups(own, best)
    if before != after:
        lines.append(
            f"With {after} groups instead of {before} other tokens share an expert's slots, and "
            "others find none: the model learns from other numbers. --vary without num_groups "
            "keeps them."
        )
    return "\n".join(lines)


def _beside_own(best: Row, own: Row | None) -> Iterator[str]:
    if own is best:
        yield "The gin files' own layout is the fastest that was found."
        return
    yield f"Fastest that fits: {layout_line(best.candidate)}."
    if own is None:
        yield "The gin files' own is refused by the checks, as was said at the beginning."
    elif own.fits and own.seconds and best.seconds:
        yield f"{own.seconds / best.seconds:.2f} times as fast as the gin files' own."
    else:
        large = own.result.fault is None or own.result.fault.kind == "too large"
        yield f"The gin files' own {'does not fit' if large else 'was not compiled'}."


def _cost(best: Row, options: Options) -> Iterator[str]:
    card = cost_card(best.result, tokens=options.tokens, price=options.price)
    if amounts := dict(cost_rows(card)):
        money = f", {amounts['money']} at {card.price:g} an hour" if "money" in amounts else ""
        yield (
            f"{options.tokens:.3g} source tokens take {amounts['time']}, "
            f"{amounts['device-years']} device-years{money}."
        )


def _groups(own: Row | None, best: Row) -> tuple[int, int]:
    after = best.candidate.experiment.model.num_groups
    return (own.candidate.experiment.model.num_groups if own else after), after


def _nearest(row: Row) -> str:
    """Of what does not fit, the one that needs least, and what would help."""
    assert row.result.facts is not None
    memory = device_memory(row.result, row.result.facts)
    parts = {
        "parameters": memory.parameters,
        "the optimizer": memory.optimizer,
        "activations and gradients": memory.activations or 0,
    }
    said = ", ".join(f"{size(count)} {what}" for what, count in parts.items())
    limit = f" of {size(memory.limit)}" if memory.limit else ""
    help_ = (
        "more devices, or Experiment.offload_optimizer = True"
        if memory.limit and memory.state > memory.limit / 2
        else "a smaller BATCH_SIZE, more devices, or TransformerConfig.dtype = 'bfloat16'"
    )
    return (
        f"Nothing that was compiled fits. Nearest: {layout_line(row.candidate)}, which needs "
        f"{size(memory.peak or 0)}{limit}: {said}.\nWhat helps: {help_}."
    )
