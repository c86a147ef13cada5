"""The collectives of a program as few lines: those that one line of the source causes as one."""

import dataclasses

from gshard_annotate.inspector.quantities import place
from gshard_annotate.inspector.report import Exchange


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExchangeSum:
    """All runs in a step of the exchanges of one kind that one line of the program causes.

    Attributes:
      kind: as `all-to-all`.
      mesh_axes: over which they run; empty where the groups are not those of mesh axes.
      group_size: devices that exchange with each other.
      source: file and line, as "exchange.py:92".
      cause: the annotation that asks for them.
      times: how often they run.
      bytes: that one device has of their results, of all runs.
      seconds: of all runs; None without a chip's figures.
      surprise: what nobody asked for, else "".
    """

    kind: str
    mesh_axes: tuple[str, ...]
    group_size: int
    source: str
    cause: str
    times: int
    bytes: int
    seconds: float | None
    surprise: str


def summed(exchanges: tuple[Exchange, ...]) -> tuple[ExchangeSum, ...]:
    """Exchanges of the same kind, mesh axes and line as one, most seconds first."""
    groups: dict[tuple[str, tuple[str, ...], int, str, str], list[Exchange]] = {}
    for one in exchanges:
        key = (one.collective.kind, one.mesh_axes, one.group_size, place(one.source), one.surprise)
        groups.setdefault(key, []).append(one)
    sums = [_sum(group) for group in groups.values()]
    return tuple(sorted(sums, key=lambda one: (-(one.seconds or 0.0), -one.bytes)))


def _sum(group: list[Exchange]) -> ExchangeSum:
    one = group[0]
    seconds = [each.seconds for each in group if each.seconds is not None]
    return ExchangeSum(
        kind=one.collective.kind,
        mesh_axes=one.mesh_axes,
        group_size=one.group_size,
        source=place(one.source),
        cause=one.cause.removesuffix(f" at {place(one.source)}"),
        times=sum(each.times for each in group),
        bytes=sum(each.collective.bytes * each.times for each in group),
        seconds=sum(seconds) if seconds else None,
        surprise=one.surprise,
    )
