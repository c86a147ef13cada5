"""Where the marks of an axis stand."""

import math
from collections.abc import Sequence

_STEPS = (1, 2, 2.5, 5, 10)


def linear_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """The round numbers from `low` to `high`, evenly spaced, `most` of them or fewer."""
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * each for each in _STEPS if unit * each >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 10) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[int]:
    """The powers of ten that enclose `low` to `high`, both at least 1; every 2nd if many."""
    first = math.floor(math.log10(max(low, 1)))
    last = max(math.ceil(math.log10(max(high, 1))), first + 1)
    return [10**power for power in range(first, last + 1)]


def short_count(count: float) -> str:
    """A count as people write it on an axis: 950, 10k, 2.5M, 6T."""
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:g}"


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; no sign where it rounds to nothing."""
    text = f"{value:+.{digits}f}".replace("-", "\u2212")
    return text if text[1:].strip("0.") else text[1:]


def extent(values: Sequence[float], *, zero: bool) -> tuple[float, float]:
    """The range of an axis: all values, zero too if asked, and a little room on both sides."""
    found = [*values, 0.0] if zero else values
    low, high = min(found), max(found)
    room = 0.04 * (high - low) or 1.0
    return low - room, high + room
