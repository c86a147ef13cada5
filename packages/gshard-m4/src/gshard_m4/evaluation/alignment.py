"""Where two sides of a test set stop saying the same, line by line."""

from collections.abc import Sequence
from itertools import accumulate

_CLEARLY = 2.0  # how many times more words must be shared behind the shift than without it
_LINES = 3  # lines behind the shift that say something, at the least
# A mean share of words that lines about different things seldom reach.
_SAME = 0.15
# Where sides of the same length are looked at: so many lines, at the end of each part of them.
_PARTS = 4
_WINDOW = (20, 50)
_SHIFTS = (1, -1, 2, -2, 3, -3)


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
    if line:
        return f"from line {line} on they are no longer about the same"
    end = range(max(0, len(shorter) - _WINDOW[0]), len(shorter))
    if len(end) >= _LINES and _mean(shorter, longer, end, 0) >= _SAME:
        return (f"they are about the same up to line {end.stop}, the last of {names[0]}; line "
                f"{end.stop + 1} of {names[1]} is the first without one")  # fmt: skip
    return ""


def shifted(said: Sequence[str], wanted: Sequence[str]) -> str:
    """Where one of two sides of the same length lags behind, in words; '' where it does not show.

    Only a part of the lines is looked at, and only where they share hardly a word.
    """
    count = len(said)
    for part in range(_PARTS, 0, -1):
        end = count * part // _PARTS
        lines = range(max(0, end - _WINDOW[1]), end)
        if len(lines) < _WINDOW[0] or _mean(said, wanted, lines, 0) >= _SAME:
            continue
        shares = {shift: _mean(said, wanted, lines, shift) for shift in _SHIFTS}
        shift = max(shares, key=lambda one: shares[one])
        if shares[shift] >= max(_SAME, _CLEARLY * _mean(said, wanted, lines, 0)):
            return _shift_in_words(said, wanted, lines, shift)
    return ""


def _shift_in_words(said: Sequence[str], wanted: Sequence[str], lines: range, shift: int) -> str:
    far = abs(shift)
    more = f"{far} line{'s' if far > 1 else ''} {'further down' if shift > 0 else 'further up'}"
    sides = (said[:-far], wanted) if shift > 0 else (wanted[:-far], said)
    first = first_shifted_line(*sides) if lines.stop == len(said) else 0
    place = f"from line {first} on" if first else f"on lines {lines.start + 1} to {lines.stop}"
    return f"says {place} what the references say {more}"


def _mean(said: Sequence[str], wanted: Sequence[str], lines: range, shift: int) -> float:
    """The mean share of words that lines have in common with those as far on as `shift`."""
    there = [i for i in lines if 0 <= i + shift < len(wanted)]
    return sum(_shared(said[i], wanted[i + shift]) for i in there) / len(lines)


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
