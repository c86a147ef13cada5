"""Where the time of a step goes, as the parts that the paper's breakdown and a card name."""

import math
import statistics
from collections.abc import Mapping

from gshard_annotate.inspector.report import Operation, Report

PARTS: tuple[str, ...] = (
    "dense matmul",
    "expert matmul",
    "attention",
    "gating",
    "dispatch",
    "embedding and logits",
    "optimizer",
    "other",
    "collectives",
)

# Seconds: less is what rounding leaves of a difference.
_NOTHING = 1e-9
# The named scopes of the models and the step; of several the innermost that is here counts.
_PART_OF_SCOPE = {
    "dense_feed_forward": "dense matmul",
    "projections": "dense matmul",  # queries, keys, values and output of attention
    "experts": "expert matmul",
    "attention": "attention",
    "gating": "gating",
    "dispatch": "dispatch",
    "combine": "dispatch",
    "embedding": "embedding and logits",
    "logits": "embedding and logits",
    "loss": "embedding and logits",
    "optimizer": "optimizer",
}


def breakdown(report: Report) -> dict[str, float]:
    """Seconds of each of `PARTS` in a step; their sum is the report's `cost.step_seconds`.

    What is computed in a feed-forward layer or in the experts beside the matrix products (norm,
    dropout, ReLU) counts with them; XLA fuses most of it into them.

    Raises:
      ValueError: a report without times (no chip) or without operations (of an old version).
    """
    cost = report.cost
    if cost.step_seconds is None or cost.collective_seconds is None:
        raise ValueError(f"breakdown: the report on {report.title} names no chip and has no times")
    if not report.operations and cost.step_seconds > cost.collective_seconds:
        raise ValueError(
            f"breakdown: the report on {report.title} has no operations; it was written by an "
            "older gshard-annotate, compile again"
        )
    seconds = dict.fromkeys(PARTS, 0.0)
    for one in report.operations:
        seconds[part_of(one)] += one.seconds or 0.0
    seconds["collectives"] = cost.collective_seconds
    # Sums of the same numbers in another order differ in their last digits.
    seconds["other"] += cost.step_seconds - sum(seconds.values())
    return seconds


def growth(reports: Mapping[int, Report]) -> dict[str, float | None]:
    """How the time of each of `PARTS` grows with the devices: the x of O(devices ** x).

    The slope of the straight line through the logarithms that is nearest to all of them; 0 is
    constant, 0.5 the square root. None for a part that takes no time on some machine.

    Args:
      reports: by number of devices, of the same work on each device.

    Raises:
      ValueError: fewer than two machines, or what `breakdown` refuses.
    """
    if len(reports) < 2:
        raise ValueError(f"growth: {len(reports)} machines; it takes 2 to grow")
    parts = {devices: breakdown(report) for devices, report in reports.items()}
    return {part: _slope({d: times[part] for d, times in parts.items()}) for part in PARTS}


def _slope(seconds: Mapping[int, float]) -> float | None:
    if min(seconds.values()) < _NOTHING:
        return None
    points = [(math.log(devices), math.log(value)) for devices, value in seconds.items()]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def part_of(operation: Operation) -> str:
    """The part of `PARTS` to which an operation counts."""
    return part_of_scope(operation.scope)


def part_of_scope(scopes: str) -> str:
    """The part of what stands in these named scopes, as `attention/projections`."""
    inside = reversed(scopes.split("/"))
    return next((_PART_OF_SCOPE[scope] for scope in inside if scope in _PART_OF_SCOPE), "other")
