"""What the TPU compiler says of a program that is too large for the chip, as data."""

import re

from gshard_train.precompiling.job import Fault

_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"([\d.]+)([BKMGT]?)"
_NEEDED = re.compile(rf"\({_SIZE}\) exceeds available \w+ \({_SIZE}\)")


def too_large(error: MemoryError) -> Fault:
    """The fault that an inspector's `MemoryError` tells, with what the compiler said."""
    said = str(error.__cause__ or error)
    found = _NEEDED.search(said)
    return Fault(
        kind="too large",
        message=str(error).removeprefix("inspect: "),
        needed_bytes=_bytes(found[1], found[2]) if found else None,
        limit_bytes=_bytes(found[3], found[4]) if found else None,
    )


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
