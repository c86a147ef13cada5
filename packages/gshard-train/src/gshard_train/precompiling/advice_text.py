"""What would make a run fit, as lines of text."""

import textwrap
from collections.abc import Iterator

from gshard_annotate.inspector.columns import WIDTH
from gshard_train.precompiling.advice import Advice, Tried


def advice_text(advice: Advice) -> str:
    """What was tried, one line each, and the flags of what fits."""
    lines = ["WHAT WOULD MAKE IT FIT"]
    if advice.reason:
        lines += _wrapped(advice.reason)
    for one in advice.tried:
        lines += tried_lines(one)
    if advice.found:
        lines += ["  Give it these flags:", *(f"    {flag}" for flag in advice.found.flags)]
    else:
        lines.append("  Nothing of this fits: take more or larger devices, or a smaller model.")
    return "\n".join(lines)


def tried_lines(one: Tried) -> list[str]:
    """What was tried and what became of it."""
    mark = "+" if one.fits else "-"
    cautions = "".join(f" ({caution})" for caution in one.cautions)
    return list(_wrapped(f"{one}{cautions}", mark))


def _wrapped(text: str, mark: str = " ") -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=f"  {mark} ", subsequent_indent=" " * 4)
