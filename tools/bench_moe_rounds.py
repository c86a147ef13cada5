"""Times of several programs in one process, fair to each of them on a machine that others use too.

Every round runs every program once, in another order each time; what is compared are the ratios
within a round, so that a slow minute hits both sides of a ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

# A sample repeats a program that is shorter than this.
_SAMPLE_SECONDS = 0.02


def interleaved(
    programs: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of one call of each program, by name, one figure per round.

    Args:
      programs: Each runs to its end, results included, when called.
      rounds: How many figures.
    """
    calls = {name: _calls_per_sample(run) for name, run in programs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    names = list(programs)
    for _ in range(rounds):
        for name in names:
            seconds[name].append(_seconds(programs[name], calls[name]))
        # Neighbours change, so that none always runs behind the same other one's caches.
        names = names[2:] + names[:2][::-1]
    return seconds


def median_ratio(seconds: list[float], reference: list[float]) -> float:
    """The median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(seconds, reference, strict=True))


def _calls_per_sample(run: Callable[[], object]) -> int:
    run()
    return max(1, round(_SAMPLE_SECONDS / _seconds(run, 1)))


def _seconds(run: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls
