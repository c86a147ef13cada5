"""The work of a program by named scope and pass: the rows of a table, largest first."""

import dataclasses
from collections.abc import Iterable

from gshard_annotate.inspector.report import Operation, Report

OUTSIDE = "(no scope)"


@dataclasses.dataclass(frozen=True)
class ScopeSum:
    """The operations of one scope in one pass.

    Attributes:
      scope: As in `Operation`; `OUTSIDE` where there is none.
      during: `forward`, `backward`, or `recomputed` in the backward pass.
      largest: The primitive that takes most of it.
      flops: Of matrix products and convolutions.
      bytes_accessed: Read and written in main memory.
      seconds: Estimate; None without a chip.
      share: Of the estimated step, 0 to 1; None without a chip.
    """

    scope: str
    during: str
    largest: str
    flops: int
    bytes_accessed: int
    seconds: float | None
    share: float | None


def scope_sums(report: Report) -> list[ScopeSum]:
    """The rows, those that take longest first; by bytes and FLOPs where there are no times."""
    found: dict[tuple[str, str], list[Operation]] = {}
    for one in report.operations:
        found.setdefault((one.scope or OUTSIDE, _during(one)), []).append(one)
    step = report.cost.step_seconds
    rows = [_sum(scope, during, group, step) for (scope, during), group in found.items()]
    return sorted(rows, key=lambda one: (-(one.seconds or 0), -one.flops, -one.bytes_accessed))


def _during(one: Operation) -> str:
    return "recomputed" if one.recomputed else "backward" if one.backward else "forward"


def _sum(scope: str, during: str, group: list[Operation], step: float | None) -> ScopeSum:
    seconds = _total(one.seconds for one in group)
    return ScopeSum(
        scope=scope,
        during=during,
        largest=max(group, key=lambda one: (one.seconds or 0, one.flops)).primitive,
        flops=sum(one.flops for one in group),
        bytes_accessed=sum(one.bytes_accessed for one in group),
        seconds=seconds,
        share=seconds / step if seconds is not None and step else None,
    )


def _total(seconds: Iterable[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if known else None
