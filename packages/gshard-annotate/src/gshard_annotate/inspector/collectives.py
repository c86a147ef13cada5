"""The collectives of a compiled program, and a test on their numbers.

A claim about sharding is a claim about the compiled program; `expect_collectives` makes it a test.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from gshard_annotate.checks import did_you_mean, raise_faults
from gshard_annotate.inspector.groups import groups
from gshard_annotate.inspector.hlo import Array, Instruction, Program, parse

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)


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
      shape: Its result on one device, as `f32[8,64]`; several arrays are joined by a comma, equal
        ones counted: `4 x f32[2,64]`.
      bytes: Size of that result.
      computation: The computation that holds it: the program, or the body of a loop.
      op_name: The operation of the program that it came from.
      instruction: Its name in the compiled program.
      where: The line of the user's program, as `layers.py:88`; empty when it is not known.
    """

    kind: str
    shape: str
    bytes: int
    computation: str
    op_name: str
    instruction: str = dataclasses.field(default="", compare=False)
    where: str = dataclasses.field(default="", compare=False)


def collectives(compiled: Compiled | str) -> list[Collective]:
    """The collectives of a compiled function (or of its HLO text), in the text's order.

    An asynchronous collective counts once. The all-reduce in a TPU's `all-reduce-scatter` is a
    reduce-scatter.
    """
    text = compiled if isinstance(compiled, str) else compiled.as_text() or ""
    return find_collectives(parse(text))


def expect_collectives(
    program: Any,
    expected: Mapping[str, int],
    *,
    args: Any = None,
) -> list[Collective]:
    """The collectives of a program, which has to contain these numbers of these kinds.

    Kinds that `expected` does not name are free; name them with 0 to exclude them.

    Args:
      program: A compiled function or its HLO text, a lowered function, the `Report` of `inspect`,
        or a function (jitted or not) when `args` are given.
      expected: How many collectives of each kind; those in a loop count once.
      args: What to compile the function for: a tuple or list of its arguments, which hold arrays
        or `jax.ShapeDtypeStruct`; what is neither is the one argument.

    Raises:
      AssertionError: Another number, with a list of those found and the lines they come from.
      ValueError: Not a kind of collective.
      TypeError: A function without `args`, or something that is no program.
    """
    wrong = [kind for kind in expected if kind not in KINDS]
    raise_faults(
        "expect_collectives",
        [f"no collective is called '{kind}'{did_you_mean(kind, KINDS)}" for kind in wrong],
    )
    found = _collectives_of(program, args)
    count = Counter(one.kind for one in found)
    off = [kind for kind, number in expected.items() if count[kind] != number]
    if off:
        counts = ", ".join(f"{count[kind]} {kind} instead of {expected[kind]}" for kind in off)
        lines = [f"\n  {_line(one)}" for one in found if one.kind in off]
        raise AssertionError(f"the compiled program has {counts}{''.join(lines)}")
    return found


def find_collectives(program: Program) -> list[Collective]:
    """The collectives of a parsed program, in the text's order."""
    return [found for found, _, _ in placed_collectives(program)]


def placed_collectives(
    program: Program,
) -> list[tuple[Collective, Instruction, Instruction | None]]:
    """Each collective with its instruction, and with the fusion that it is in, if any."""
    inside = {name: one for one in program if one.opcode == "fusion" for _, name in one.called()}
    found, seen = [], set()
    for one in program:
        kind = one.opcode.removesuffix("-start")
        if kind not in KINDS:
            continue
        fusion = inside.get(one.computation)
        if fusion is not None:
            # A TPU's asynchronous one stands in each fusion between its start and its end.
            key = (fusion.computation, kind, one.attribute("channel_id"))
            if key in seen:
                continue
            seen.add(key)
        found.append((_collective(program, one, kind, fusion), one, fusion))
    return found


def results(one: Instruction, kind: str) -> Sequence[Array]:
    """The arrays that a collective makes, without what its asynchronous start returns beside."""
    if not one.opcode.endswith("-start") or kind not in ("all-gather", "collective-permute"):
        return one.arrays
    # These starts return their operands beside their results, then scalars of context.
    arrays = [array for array in one.arrays if (array.dtype, array.dims) != ("u32", ())]
    return arrays[len(arrays) // 2 :]


def group_text(one: Instruction) -> str:
    """Its device groups, or its pairs of devices, as XLA writes them."""
    # `mesh[...], device_ids=(...) {...}` has a comma of its own.
    _, found, after = one.attributes.partition("replica_groups=mesh[")
    if found:
        return f"mesh[{after[: after.index('}') + 1]}" if "}" in after else ""
    return one.attribute("replica_groups") or one.attribute("source_target_pairs")


def _collective(
    program: Program, one: Instruction, kind: str, fusion: Instruction | None
) -> Collective:
    arrays = results(one, kind)
    op_name, computation = one.op_name, one.computation
    if fusion is not None:
        op_name, computation = op_name or fusion.op_name, fusion.computation
        if kind == "all-reduce" and _scatters(one, fusion):
            kind, arrays = "reduce-scatter", fusion.arrays
    source = program.source(one) or (program.source(fusion) if fusion is not None else None)
    return Collective(
        kind=kind,
        shape=_shape(arrays),
        bytes=sum(array.bytes for array in arrays),
        computation=computation,
        op_name=op_name,
        instruction=one.name,
        where=f"{source.file.rpartition('/')[2]}:{source.line}" if source else "",
    )


def _shape(arrays: Sequence[Array]) -> str:
    runs = [(str(array), len(list(same))) for array, same in itertools.groupby(arrays)]
    return ", ".join(one if count == 1 else f"{count} x {one}" for one, count in runs)


def _scatters(one: Instruction, fusion: Instruction) -> bool:
    """Whether a fusion keeps its own part only of what is summed in it."""
    rows = groups(group_text(one))
    made = sum(array.elements for array in fusion.arrays)
    return rows is not None and made * rows.shape[1] == sum(a.elements for a in one.arrays)


def _collectives_of(program: Any, args: Any) -> list[Collective]:
    if hasattr(program, "exchanges"):  # a Report
        return [exchange.collective for exchange in program.exchanges]
    if args is not None:
        return collectives(_compile(program, args if isinstance(args, tuple | list) else (args,)))
    if hasattr(program, "compile"):  # a lowered function: its text is not yet partitioned
        return collectives(program.compile())
    if isinstance(program, str) or hasattr(program, "as_text"):
        return collectives(program)
    what = "a function without args=" if callable(program) else f"{type(program).__name__!r}"
    raise TypeError(
        f"expect_collectives: the program is {what}; give a compiled function, its HLO text, "
        "a Report, or a function with args="
    )


def _compile(fn: Callable, args: Sequence[Any]) -> Compiled:
    import jax

    jitted: Any = fn if hasattr(fn, "lower") else jax.jit(fn)
    return jitted.lower(*args).compile()


def _line(one: Collective) -> str:
    at = f" at {one.where}" if one.where else ""
    return f"{one.kind} {one.shape} ({one.bytes} bytes) in {one.computation}: {one.op_name}{at}"
