"""What the compiler made of the annotations: the collectives of a compiled program.

A claim about sharding is a claim about the compiled program; `expect_collectives` makes it a test.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from gshard_annotate.checks import did_you_mean, raise_faults

KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")

# `  ROOT %name = type kind(operands), attributes`; an asynchronous one has a start and a done.
_INSTRUCTION = re.compile(rf"^\s+(?:ROOT )?%?[\w.-]+ = (.*?) ({'|'.join(KINDS)})(-start)?\(")
# `%name (parameters) -> type {` at the beginning of a line.
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) .*\{$")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_OP_NAME = re.compile(r'op_name="([^"]*)"')


class Compiled(Protocol):
    """What `jax.jit(f).lower(...).compile()` returns, as far as it is needed here."""

    def as_text(self) -> str | None:
        """The program in HLO."""
        ...


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective instruction. Inside a loop it runs more than once and is listed once.

    Attributes:
      kind: One of `KINDS`.
      shape: Its result on one device, as `f32[8,64]`; several arrays are joined by a comma.
      bytes: Size of that result.
      computation: The computation that holds it: the program, or the body of a loop.
      op_name: The operation of the program that it came from.
    """

    kind: str
    shape: str
    bytes: int
    computation: str
    op_name: str


def collectives(compiled: Compiled | str) -> list[Collective]:
    """The collectives of a compiled function (or of its HLO text), in the text's order.

    An asynchronous collective counts once.
    """
    text = compiled if isinstance(compiled, str) else compiled.as_text() or ""
    found, computation = [], ""
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            computation = header[1]
        elif match := _INSTRUCTION.match(line):
            arrays = _result_arrays(*match.groups())
            op_name = _OP_NAME.search(line)
            found.append(
                Collective(
                    kind=match[2],
                    shape=", ".join(f"{dtype}[{dims}]" for dtype, dims in arrays),
                    bytes=sum(_array_bytes(dtype, dims) for dtype, dims in arrays),
                    computation=computation,
                    op_name=op_name[1] if op_name else "",
                )
            )
    return found


def expect_collectives(compiled: Compiled | str, expected: Mapping[str, int]) -> list[Collective]:
    """The collectives of a compiled function, which has to contain these numbers of these kinds.

    Kinds that `expected` does not name are free; name them with 0 to exclude them.

    Raises:
      AssertionError: Another number, with a list of those found.
      ValueError: Not a kind of collective.
    """
    wrong = [kind for kind in expected if kind not in KINDS]
    raise_faults(
        "expect_collectives",
        [f"no collective is called '{kind}'{did_you_mean(kind, KINDS)}" for kind in wrong],
    )
    found = collectives(compiled)
    count = Counter(one.kind for one in found)
    off = [kind for kind, number in expected.items() if count[kind] != number]
    if off:
        counts = ", ".join(f"{count[kind]} {kind} instead of {expected[kind]}" for kind in off)
        lines = [
            f"\n  {one.kind} {one.shape} ({one.bytes} bytes) in {one.computation}: {one.op_name}"
            for one in found
            if one.kind in off
        ]
        raise AssertionError(f"the compiled program has {counts}{''.join(lines)}")
    return found


def _result_arrays(result: str, kind: str, start: str | None) -> list[tuple[str, str]]:
    arrays = _ARRAY.findall(result)
    if start and kind in ("all-gather", "collective-permute"):
        # These starts return their operands beside their results, then scalars of context.
        arrays = [array for array in arrays if array != ("u32", "")]
        return arrays[len(arrays) // 2 :]
    return arrays


def _array_bytes(dtype: str, dims: str) -> int:
    bits = 8 if dtype == "pred" else int((re.search(r"\d+", dtype) or ["8"])[0])
    return math.ceil(math.prod(int(size) for size in dims.split(",") if size) * bits / 8)
