"""What the compiler tells of a program that does not fit on a device."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from gshard_annotate.inspector.frames import Source
from gshard_annotate.inspector.hlo import NOTHING, Instruction, Program, parse

_MOST_PIECES = 40
_SIZES = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"([\d.]+)([BKMGT]?)"
_NEEDED = (
    re.compile(rf"\({_SIZE}\) exceeds available \w+ \({_SIZE}\)"),
    re.compile(rf"Used {_SIZE} of {_SIZE} "),
)
# Main memory has no colour; others, as that of single numbers, do.
_TEMPORARIES = re.compile(r"^allocation \d+: size \d+, preallocated-temp:", re.MULTILINE)
_VALUE = re.compile(
    r" value: <\d+ ([^ {]+)(\{[\d,]*\})? @\d+> \(size=(\d+),offset=(\d+)\): (\w+\[[\d,]*\])"
)


@dataclasses.dataclass(frozen=True)
class Piece:
    """An array in the memory that the program takes while it runs.

    Attributes:
      bytes: its size on one device, as it lies there (padded to the chip's tiles).
      shape: as `f32[16,2048]`, on one device.
      op_name: of the operation that makes it, as JAX writes it.
      source: the line of the user's program.
    """

    bytes: int
    shape: str
    op_name: str
    source: Source | None


class TooLargeError(MemoryError):
    """A program that does not fit on a device.

    Attributes:
      needed: bytes that the compiler counted; None where it did not say.
      limit: bytes that there are.
      pieces: the largest arrays of the program's own memory, no two of which lie in the same
        place, largest first, though not all need be there at one time; empty where the compiler
        did not write them down.
    """

    def __init__(
        self,
        message: str,
        *,
        needed: int | None = None,
        limit: int | None = None,
        pieces: tuple[Piece, ...] = (),
    ):
        super().__init__(message)
        self.needed, self.limit, self.pieces = needed, limit, pieces


def needed_and_limit(said: str) -> tuple[int, int] | None:
    """How many bytes the compiler counted and how many there are, by its message."""
    for pattern in _NEEDED:
        if found := pattern.search(said):
            return _bytes(found[1], found[2]), _bytes(found[3], found[4])
    return None


def read_pieces(folder: Path) -> tuple[Piece, ...]:
    """The largest pieces by what the compiler wrote into a folder before it gave up."""
    assigned = sorted(folder.glob("*after_optimizations-buffer-assignment.txt"))
    programs = sorted(folder.glob("*after_optimizations.txt"))
    if not assigned:
        return ()
    values = list(_apart(_temporaries(assigned[-1].read_text())))
    program = parse(programs[-1].read_text()) if programs else Program("")
    made_by = _found({name for name, _, _, _ in values}, program)
    return tuple(
        Piece(size, shape, made_by[name].op_name, program.source(made_by[name]))
        for name, size, _, shape in values
    )


def _temporaries(text: str) -> list[tuple[str, int, int, str]]:
    """Name, size, offset and shape of each value of the program's own memory, largest first."""
    allocation = _TEMPORARIES.search(text)
    if allocation is None:
        return []
    end = text.find("\nallocation ", allocation.end())
    found = _VALUE.findall(text, allocation.end(), end if end >= 0 else len(text))
    values = [(name, int(size), int(offset), shape) for name, _, size, offset, shape in found]
    return sorted(values, key=lambda value: -value[1])


def _apart(values: list[tuple[str, int, int, str]]) -> Iterator[tuple[str, int, int, str]]:
    """Those that share no place with a larger one; not all of them need be there at one time."""
    taken: list[tuple[int, int]] = []
    for value in values:
        start, end = value[2], value[2] + value[1]
        if value[1] and all(end <= low or high <= start for low, high in taken):
            taken.append((start, end))
            yield value
        if len(taken) == _MOST_PIECES:
            return


def _found(names: set[str], program: Program) -> dict[str, Instruction]:
    found = {one.name: one for one in program if one.name in names}
    return {name: found.get(name, NOTHING) for name in names}


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _SIZES[unit])
