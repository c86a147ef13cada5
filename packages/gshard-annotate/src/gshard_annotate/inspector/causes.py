"""Why a program exchanges data, and which of its exchanges nobody asked for.

A collective carries the name of the operation for which XLA put it in. The program before
partitioning shows how that operation's operands lie and how they have to; from there the data flow
leads to the annotations and arguments whose shardings meet.

Asked for are: what an annotation, the boundary of a `shard_map`, or an asked sharding of a result
implies; what is written inside a `shard_map`; sums over a split dimension; the edges that a
convolution or a window over a split dimension needs. Everything else is a surprise, and so are an
array that is gathered whole over mesh axes over which an annotation splits it, and an argument that
is split in one way and used in another.
"""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from gshard_annotate.inspector.annotated_flow import AnnotatedFlow, called
from gshard_annotate.inspector.annotations import label_of
from gshard_annotate.inspector.collectives import Collective
from gshard_annotate.inspector.flow import Flow, Node
from gshard_annotate.inspector.hlo import Instruction, Program, Source
from gshard_annotate.inspector.quantities import place

# The last part of an operation's name when the user wrote the collective.
_WRITTEN = re.compile(
    r"/(p(sum|max|min|mean|permute|broadcast|swapaxes)\w*|all_gather\w*|all_to_all"
    r"|ragged_all_to_all|reduce_scatter|psum_scatter|unreduced_\w+)$"
)
_LABEL = re.compile(r"/(\w+\[[^/\]]*\])\)*/")
_WINDOWS = ("convolution", "reduce-window", "select-and-scatter")
_SUMS = ("all-reduce", "reduce-scatter")


class Cause(NamedTuple):
    """Why there is a collective.

    Attributes:
      text: The annotations or arguments that caused it, in words; empty when not known.
      surprise: The complaint when nobody asked for it, to be put behind `all-gather of 64 MiB at
        layers.py:88`; else empty.
      source: The line.
    """

    text: str
    surprise: str = ""
    source: Source | None = None


class Crossing(NamedTuple):
    """A collective of the compiled program.

    Attributes:
      found: The collective.
      instruction: The instruction, or the fusion that it is in.
      elements: How many numbers the collective makes on one device.
      axes: The mesh axes over which it goes, whole or in part.
      group: How many devices exchange.
    """

    found: Collective
    instruction: Instruction
    elements: int
    axes: tuple[str, ...]
    group: int


class Causes:
    """Finds the cause of each collective of one program.

    Args:
      final: The compiled program.
      before: The program before partitioning; None when it could not be seen.
    """

    def __init__(self, final: Program, before: AnnotatedFlow | None):
        self._final, self._before = Flow(final, {}), before

    def of(self, crossing: Crossing) -> Cause:
        """Why there is this collective."""
        op_name = crossing.found.op_name
        source = self._final.program.source(crossing.instruction)
        if self._before is None:
            return _named(op_name, source) or Cause("", source=source)
        if not op_name:
            if (number := self._result_of(crossing.instruction)) is not None:
                return self._at_result(self._before, number, crossing.axes)
            op_name, source = self._neighbour(self._before, crossing.instruction)
        if label_of(op_name):
            return self._at_annotation(self._before, crossing, op_name, source)
        return _named(op_name, source) or self._at_operation(
            self._before, crossing, op_name, source
        )

    def _at_annotation(self, before: AnnotatedFlow, crossing, op_name, source) -> Cause:
        annotations = [
            annotation
            for one in before.operations(op_name, source)
            if (annotation := before.annotations.get(Node(one).key))
        ]
        if not annotations:
            label = label_of(op_name)
            return Cause(f"{label} at {place(source)}" if source else label, source=source)
        annotation = annotations[0]
        asked = annotation.asked or annotation.compiled
        if crossing.found.kind != "all-gather" or not asked.axes & set(crossing.axes):
            return Cause(str(annotation), source=source)
        lies = [before.flow.placement(node) for node in before.flow.sources(annotation.node)]
        lies = [str(one) for one in lies if one.axes & set(crossing.axes)] or ["split otherwise"]
        complaint = (
            f"{annotation.label} asks for {asked} of what is {lies[0]}; it is gathered over "
            f"{_axes(crossing.axes)} first instead of exchanging parts"
        )
        return Cause(str(annotation), complaint, source)

    def _at_result(self, before: AnnotatedFlow, number: int, axes: Sequence[str]) -> Cause:
        """For a collective behind the last operation: a result has to lie in another way."""
        if number >= len(before.results):
            return Cause("")
        name, asked = before.results[number]
        makers = before.flow.result(number)
        source = before.flow.program.source(makers[0].instruction) if makers else None
        if asked is not None:
            return Cause(f"{name} asked as {asked}", source=source)
        annotation = before.annotations.get(makers[0].key) if makers else None
        lies = str(before.flow.placement(makers[0])) if makers else f"split on {_axes(axes)}"
        complaint = f"{name} is {lies} in the program but returned replicated"
        return Cause(str(annotation or name), complaint, source)

    def _at_operation(self, before: AnnotatedFlow, crossing, op_name, source) -> Cause:
        operations = before.operations(op_name, source)
        if not operations:
            return Cause("", source=source)
        source = source or before.flow.program.source(operations[0])
        if op_name.endswith("/shard_map"):
            return Cause(f"shard_map at {place(source)}", source=source)
        if crossing.found.kind in _SUMS:
            # The parts of a reduce-scatter go where its result is split.
            both = crossing.found.kind == "reduce-scatter"
            return Cause(before.met(operations, crossing.axes, both=both), source=source)
        operation, operand = self._moved(before, crossing, operations)
        if source is None and operand is not None:
            source = before.flow.program.source(operand.instruction)
        met = before.met([operation], crossing.axes, operand=operand, both=True)
        if operation.opcode in _WINDOWS and crossing.found.kind == "collective-permute":
            return Cause(met or f"window of {called(operation)}", source=source)
        if implied := _implied(before, crossing, operation, operand):
            return Cause(implied, source=source)
        return Cause(met, _complaint(before, crossing, operation, operand), source)

    def _moved(
        self, before: AnnotatedFlow, crossing: Crossing, operations: Sequence[Instruction]
    ) -> tuple[Instruction, Node | None]:
        """The operation, and the operand that lies otherwise than it has to, that fit best."""
        best, choice = -1, (operations[0], None)
        for operation in operations:
            for operand in before.flow.sources(Node(operation)):
                score = self._score(before, crossing, operation, operand)
                if score > best:
                    best, choice = score, (operation, operand)
        return choice

    @staticmethod
    def _score(before: AnnotatedFlow, crossing, operation, operand: Node) -> int:
        lies = before.flow.placement(operand)
        if not lies.axes & set(crossing.axes) or before.flow.is_constant(operand):
            return -1
        array = operand.instruction.arrays[max(operand.number, 0)]
        gathered = crossing.group if crossing.found.kind == "all-gather" else 1
        fits = math.prod(lies.local(array.dims)) * gathered == crossing.elements
        differs = before.flow.placement(Node(operation)).axes != lies.axes
        return 1 + 2 * differs + 4 * fits

    def _result_of(self, one: Instruction) -> int | None:
        """The number of the result that a nameless collective makes."""
        reached = self._final.walk(
            [Node(one)],
            self._final.uses,
            lambda node: node.instruction is one or not self._has_name(node),
            limit=50,
        )
        for node in reached:
            if numbers := self._final.results(node):
                return numbers[0]
        return None

    def _neighbour(self, before: AnnotatedFlow, one: Instruction) -> tuple[str, Source | None]:
        """Name and line of the nearest operation around one that lost its own."""
        for step in (self._final.uses, self._final.sources):
            for node in self._final.walk([Node(one)], step, lambda n: not self._has_name(n), 20):
                if before.operations(node.instruction.op_name):
                    return node.instruction.op_name, self._final.program.source(node.instruction)
        return "", None

    def _has_name(self, node: Node) -> bool:
        name = node.instruction.op_name
        return bool(name) and (self._before is None or bool(self._before.operations(name)))


def _named(op_name: str, source: Source | None) -> Cause | None:
    """The cause that an operation's name tells by itself."""
    name = label_of(op_name)
    if not name and _WRITTEN.search(op_name):
        labels = _LABEL.findall(op_name)
        name = labels[-1] if labels else op_name.rpartition("/")[2]
    if not name:
        return None
    return Cause(f"{name} at {place(source)}" if source else name, source=source)


def _implied(before: AnnotatedFlow, crossing, operation: Instruction, operand: Node | None) -> str:
    """The annotations that imply the exchange although it stands elsewhere; or nothing."""
    after = before.annotated_after(Node(operation))
    name, asked = after if after is not None else ("", None)
    if asked is None:
        return ""
    if crossing.found.kind == "all-gather":
        return "" if asked.axes & set(crossing.axes) else name
    if operand is None or before.flow.placement(operand) == asked:
        return ""
    if before.argument(operand):  # a weight, say, that is kept in one way and used in another
        return ""
    came = before.annotated_before(operand)
    return f"{came} -> {name}" if came else ""


def _complaint(before: AnnotatedFlow, crossing, operation, operand: Node | None) -> str:
    becomes = before.flow.placement(Node(operation))
    if operand is None and not becomes.axes & set(crossing.axes):
        over = (
            f"over {_axes(crossing.axes)}, as no sharding asks" if crossing.axes else "as it likes"
        )
        return f"the compiler spreads {called(operation)} {over}, and puts it together again"
    if operand is None:
        return f"{called(operation)} has to be {becomes} but is not made so"
    lies, name = before.flow.placement(operand), before.name(operand)
    if crossing.found.kind == "all-gather":
        rest = sorted(lies.axes - set(crossing.axes))
        used = f"used split on {_axes(rest)} only" if rest else "used replicated"
        return f"{name} is split on {_axes(sorted(lies.axes))} but {used}"
    if becomes == lies:
        return f"{called(operation)} moves parts of {name}, which is {lies}"
    return f"{name} is {lies} but {called(operation)} makes {becomes} of it"


def _axes(axes: Sequence[str]) -> str:
    quoted = [f"'{axis}'" for axis in axes]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
