"""Where two sides of a test set stop saying the same, line by line."""

from collections.abc import Sequence
from itertools import accumulate

_CLEARLY = 2.0  # how many times more words must be shared behind the shift than without it
_LINES = 3  # lines behind the shift that say something, at the least


def explain(shorter: Sequence[str], longer: Sequence[str], names: tuple[str, str]) -> str:
    """Why one side has more lines, as far as the texts show it; '' where they do not.

    Args:
      shorter: the lines of the side with fewer lines.
      longer: the lines of the other.
      names: what to call the two.
    """
    surplus = len(longer) - len(shorter)
    for side, name in ((shorter, names[0]), (longer, names[1])):
        # Lines that Python's splitlines() breaks and \n does not.
        broken = [i for i, text in enumerate(side, start=1) if len(text.splitlines()) > 1]
        parts = sum(len(side[i - 1].splitlines()) - 1 for i in broken)
        if broken and parts == surplus:
            return (f"line {broken[0]} of {name} holds a line separator that is not \\n, at which "
                    "something has split it: split at \\n only")  # fmt: skip
    blank = [i for i, text in enumerate(longer, start=1) if not text.strip()]
    if len(blank) == surplus:
        return f"line {blank[0]} of {names[1]} is blank"
    line = first_shifted_line(shorter, longer)
    return f"from line {line} on they are no longer about the same" if line else ""


def first_shifted_line(shorter: Sequence[str], longer: Sequence[str]) -> int:
    """The first line at which `shorter` has lost lines that `longer` has; 0 if it does not show.

    The place is where most words are shared: with the same line before it, with the line as far
    on as there are lines too many behind it.
    """
    shift = len(longer) - len(shorter)
    count = len(shorter)
    here = [_shared(a, b) for a, b in zip(shorter, longer, strict=False)]
    there = [_shared(a, b) for a, b in zip(shorter, longer[shift:], strict=True)]
    before = [0.0, *accumulate(here)]
    behind = [*accumulate(reversed(there), initial=0.0)][::-1]
    best = max(range(count + 1), key=lambda at: before[at] + behind[at])
    unshifted = before[count] - before[best]
    if count - best < _LINES or behind[best] <= _CLEARLY * unshifted:
        return 0
    return best + 1


def _shared(left: str, right: str) -> float:
    """The share of words that two lines have in common."""
    a, b = set(left.casefold().split()), set(right.casefold().split())
    return len(a & b) / len(a | b) if a and b else 0.0
