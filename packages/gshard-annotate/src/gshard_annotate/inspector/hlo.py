"""The text of an XLA program (HLO) as computations and instructions.

The whole text is read line by line once; attributes are looked up when they are asked for, because
device lists make lines long and few of them matter.
"""

import functools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from gshard_annotate.inspector.frames import TABLES, Call, Frames, Source

# `  ROOT %name = type opcode(operands), attributes`. Types hold no ` word(`.
_INSTRUCTION = re.compile(r"  (ROOT )?%?([^\s=]+) = (.*?) ([a-z][\w-]*)\(")
# `%name (parameters) -> type {` or `ENTRY %name ...` at the beginning of a line.
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.-]+) .*\{$")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,<=]*)\](?:\{[^}]*?(?:S\((\d+)\))?\})?")
_OPERAND = re.compile(r"%([\w.-]+)")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_CALLERS = frozenset(("fusion", "while", "call", "conditional", "async-start", "custom-call"))
# Computations that an instruction runs; those of `to_apply` only when it is a call.
_CALLED = re.compile(
    r"\b(calls|to_apply|body|condition|branch_computations|true_computation|false_computation"
    r"|called_computations)=(\{[^}]*\}|%?[\w.-]+)"
)


class Array(NamedTuple):
    """One array of a type: `f32[8,64]` in main memory, or in a faster one (`S(1)`)."""

    dtype: str
    dims: tuple[int, ...]
    space: int

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> int:
        """Its size, without the padding of a layout."""
        return math.ceil(self.elements * dtype_bits(self.dtype) / 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@functools.cache
def dtype_bits(dtype: str) -> int:
    """Bits of one element; 0 for what is no data (tokens)."""
    if dtype in ("token", "opaque"):
        return 0
    return 8 if dtype == "pred" else int((re.search(r"\d+", dtype) or ["8"])[0])


@functools.lru_cache(maxsize=65536)
def arrays(shape: str) -> tuple[Array, ...]:
    """The arrays of a type, those of a tuple in order."""
    return tuple(
        Array(
            dtype, tuple(int(size.lstrip("<=")) for size in dims.split(",") if size), int(at or 0)
        )
        for dtype, dims, at in _ARRAY.findall(shape)
    )


class Instruction:
    """One instruction: `%name = shape opcode(operands), attributes`."""

    __slots__ = (
        "_called",
        "_operands",
        "_rest",
        "_split",
        "computation",
        "is_root",
        "name",
        "opcode",
        "shape",
    )

    def __init__(
        self, name: str, opcode: str, shape: str, rest: str, is_root: bool, computation: str
    ):
        self.name, self.opcode, self.shape = name, opcode, shape
        self.is_root, self.computation = is_root, computation
        self._rest, self._split = rest, -1
        self._operands: list[str] | None = None
        self._called: list[tuple[str, str]] | None = None

    @property
    def operands(self) -> list[str]:
        """The names of its operands."""
        if self._operands is None:
            self._operands = _OPERAND.findall(self._rest, 0, self._end_of_operands())
        return self._operands

    @property
    def literal(self) -> str:
        """What stands between its parentheses: a constant's value, a parameter's number."""
        return self._rest[: self._end_of_operands()]

    @property
    def attributes(self) -> str:
        """Everything behind the operands."""
        return self._rest[self._end_of_operands() + 1 :]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that it makes."""
        return arrays(self.shape)

    @property
    def bytes(self) -> int:
        """The size of what it makes."""
        return sum(array.bytes for array in self.arrays)

    @property
    def op_name(self) -> str:
        """The operation of the user's program that it came from, as JAX writes it."""
        # Looked for as plain text, which is faster by far behind long lists of devices.
        start = self._rest.find('op_name="')
        found = _OP_NAME.match(self._rest, start) if start >= 0 else None
        return found[1].replace("\\'", "'").replace('\\"', '"') if found else ""

    @property
    def frame(self) -> int:
        """Its place in the table of stack frames; 0 when it has none."""
        found = _FRAME.search(self._rest)
        return int(found[1]) if found else 0

    def attribute(self, key: str) -> str:
        """The text behind `key=`, up to the comma that ends it; empty when it is not there."""
        found = _key(key).search(self._rest, self._end_of_operands())
        return _value(self._rest, found.end()) if found else ""

    def called(self) -> list[tuple[str, str]]:
        """Role (`body`, `calls`, ...) and name of each computation that it runs."""
        if self.opcode not in _CALLERS:
            return []
        if self._called is None:
            self._called = [
                (role, name.lstrip("%"))
                for role, names in _CALLED.findall(self._rest, self._end_of_operands())
                for name in re.findall(r"%?[\w.-]+", names)
                if role != "to_apply" or self.opcode == "call"
            ]
        return self._called

    def _end_of_operands(self) -> int:
        if self._split < 0:
            self._split = _closing(self._rest)
        return self._split


# Stands where an instruction should be in a text that lacks it.
NOTHING = Instruction("", "", "", "", False, "")


class Computation:
    """Instructions by name, in order; one of them is the root, which gives the result."""

    __slots__ = ("instructions", "name", "parameters", "root")

    def __init__(self, name: str):
        self.name = name
        self.instructions: dict[str, Instruction] = {}
        self.parameters: dict[int, Instruction] = {}
        self.root = NOTHING


class Program:
    """An HLO module."""

    def __init__(self, header: str):
        self.header = header
        self.computations: dict[str, Computation] = {}
        self.entry = Computation("")
        self._frames = Frames()
        self._sources: dict[int, Source | None] = {}

    def __iter__(self) -> Iterator[Instruction]:
        for computation in self.computations.values():
            yield from computation.instructions.values()

    @property
    def num_partitions(self) -> int:
        """Over how many devices it is partitioned."""
        found = re.search(r"num_partitions=(\d+)", self.header)
        return int(found[1]) if found else 1

    def source(self, instruction: Instruction) -> Source | None:
        """The innermost line of the user's program, rather than of an installed library."""
        frame = instruction.frame
        if frame not in self._sources:
            self._sources[frame] = self._frames.source(frame)
        return self._sources[frame]

    def stack(self, instruction: Instruction) -> tuple[Call, ...]:
        """The calls that led to it, the innermost first; none when they are not known."""
        return self._frames.stack(instruction.frame)


def parse(text: str) -> Program:
    """The program that `compiled.as_text()` or one of XLA's dumps shows."""
    lines = iter(text.splitlines())
    program = Program(next((line for line in lines if line.startswith("HloModule")), ""))
    current, table = Computation(""), ""
    for line in lines:
        if line.startswith("  "):
            if match := _INSTRUCTION.match(line):
                _add(current, match, line[match.end() :])
        elif line.endswith("{") and (match := _COMPUTATION.match(line)):
            current = program.computations[match[2]] = Computation(match[2])
            if match[1]:
                program.entry = current
        elif line in TABLES:
            table = line
        elif table and line[:1].isdigit():
            program._frames.add(table, line)
    return program


def _add(computation: Computation, match: re.Match[str], rest: str) -> None:
    root, name, shape, opcode = match.groups()
    made = Instruction(name, opcode, shape, rest, bool(root), computation.name)
    computation.instructions[name] = made
    if root:
        computation.root = made
    if opcode == "parameter":
        computation.parameters[int(made.literal)] = made


@functools.cache
def _key(key: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=[ ,]){key}=")


def _closing(text: str) -> int:
    """Where the parenthesis ends that was opened before `text`."""
    end = text.find(")")
    if text.find("(", 0, end) < 0:
        return end if end >= 0 else len(text)
    depth = 1
    for found in re.finditer(r"[()]", text):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.start()
    return len(text)


def _value(text: str, start: int) -> str:
    """The value that begins at `start`: up to a comma outside of brackets and quotes."""
    depth, quoted = 0, False
    for found in re.finditer(r'[\[\](){},]|\\.|"', text[start:]):
        one = found[0]
        if one == '"':
            quoted = not quoted
        elif quoted or one[0] == "\\":
            continue
        elif one == "," and depth == 0:
            return text[start : start + found.start()]
        elif one in "[({":
            depth += 1
        elif one in "])}":
            depth -= 1
    return text[start:]
