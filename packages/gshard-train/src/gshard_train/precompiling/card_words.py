"""What a cost card says in the same words as text and as a page."""

from collections.abc import Iterator

from gshard_annotate.inspector.quantities import duration, size
from gshard_train.precompiling.card import CostCard

PROGRAMS = {"train": "training step", "eval": "scoring of given targets", "decode": "translation"}
# What one run of the program is called, and several.
UNITS = {
    "train": ("step", "steps"),
    "eval": ("batch", "batches"),
    "decode": ("batch", "batches"),
}
_ACTIVATIONS = {
    "train": "activations, gradients",
    "eval": "activations",
    "decode": "activations, kept keys and values",
}


def memory_rows(card: CostCard) -> Iterator[tuple[str, int, str]]:
    """The parts of a device's memory: class, bytes, what it is; without those that are nothing."""
    memory = card.memory
    activations = _ACTIVATIONS[card.mode]
    unsure = "" if card.is_compiled else " and padding"
    rows = (
        ("parameters", memory.parameters, "parameters"),
        ("optimizer", memory.optimizer, "optimizer's state"),
        ("inputs", memory.inputs, "batch"),
        ("padding", memory.padding, "padding of these on the chip"),
        ("activations", memory.activations or 0, f"{activations} (temporaries){unsure}"),
        ("results", memory.results, "results beside what they replace"),
    )
    return ((kind, count, what) for kind, count, what in rows if count)


def cost_rows(card: CostCard) -> Iterator[tuple[str, str]]:
    """What the tokens cost: name and amount."""
    if card.days is None or card.device_years is None:
        return
    yield UNITS[card.mode][1], f"{card.steps:,}"
    yield "time", f"{_three(card.days)} days"
    yield "device-years", _three(card.device_years)
    if card.money is not None:
        yield "money", _three(card.money)


def no_estimate(card: CostCard) -> str:
    """Why a compiled program has no times; "" where there is no program."""
    if not card.is_compiled:
        return ""
    return f"NO ESTIMATE of times: the figures of {card.device_kind} are not known"


def outcome_of_compiling(card: CostCard) -> str:
    """What compiling took."""
    spent = card.lower_seconds + card.compile_seconds
    if not card.is_compiled and not card.fault:
        return "not asked for"
    if not spent:  # nobody was left to tell
        return "not finished"
    ended = "done in" if card.is_compiled else "given up after"
    traced = f", {duration(card.lower_seconds)} of it for tracing" if card.lower_seconds else ""
    took = card.host_peak_bytes
    with_memory = f"; with {size(took)} of this machine's memory" if took else ""
    return f"{ended} {duration(spent)}{traced}{with_memory}"


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
