"""Numbers outside their range, as sentences: all faults of a call in one error."""

from collections.abc import Iterator
from typing import Any

_LONGEST = 60  # of a value in a sentence


def shares(**values: Any) -> Iterator[str]:
    """One sentence for each value that is not in [0, 1)."""
    for name, value in values.items():
        if not is_share(value):
            yield f"{name}={_shown(value)} must be in [0, 1){_hint(value)}"


def not_negative(**values: Any) -> Iterator[str]:
    """One sentence for each value that is no number or below 0."""
    for name, value in values.items():
        if not is_number(value) or not value >= 0.0:
            yield f"{name}={_shown(value)} must be a number of at least 0{_hint(value)}"


def positive(**values: Any) -> Iterator[str]:
    """One sentence for each value that is no number above 0."""
    for name, value in values.items():
        if not is_number(value) or not value > 0.0:
            yield f"{name}={_shown(value)} must be a number above 0{_hint(value)}"


def counts(**values: Any) -> Iterator[str]:
    """One sentence for each value that is no integer of at least 1."""
    for name, value in values.items():
        if not is_whole(value, 1):
            yield f"{name}={_shown(value)} must be an integer of at least 1{_hint(value)}"


def raise_faults(who: str, *faults: Iterator[str]) -> None:
    """Raises a ValueError with all of the sentences, if there are any."""
    if found := [fault for each in faults for fault in each]:
        raise ValueError(f"{who}: {'; '.join(found)}")


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a float."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_share(value: Any) -> bool:
    """Whether a value is a number in [0, 1)."""
    return is_number(value) and 0.0 <= value < 1.0


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is an integer of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _shown(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _hint(value: Any) -> str:
    if not callable(value):
        return ""
    return f"; it is a function, so call it: in gin @{_shown(value)}(), with brackets"
