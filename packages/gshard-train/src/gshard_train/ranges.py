"""Numbers outside their range, as sentences: all faults of a call in one error."""

from collections.abc import Iterator
from typing import Any


def shares(**values: Any) -> Iterator[str]:
    """One sentence for each value that is not in [0, 1)."""
    for name, value in values.items():
        if not _is_number(value) or not 0.0 <= value < 1.0:
            yield f"{name}={value!r} must be in [0, 1)"


def not_negative(**values: Any) -> Iterator[str]:
    """One sentence for each value that is no number or below 0."""
    for name, value in values.items():
        if not _is_number(value) or not value >= 0.0:
            yield f"{name}={value!r} must be a number of at least 0"


def positive(**values: Any) -> Iterator[str]:
    """One sentence for each value that is no number above 0."""
    for name, value in values.items():
        if not _is_number(value) or not value > 0.0:
            yield f"{name}={value!r} must be a number above 0"


def counts(**values: Any) -> Iterator[str]:
    """One sentence for each value that is no integer of at least 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield f"{name}={value!r} must be an integer of at least 1"


def raise_faults(who: str, *faults: Iterator[str]) -> None:
    """Raises a ValueError with all of the sentences, if there are any."""
    if found := [fault for each in faults for fault in each]:
        raise ValueError(f"{who}: {'; '.join(found)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
