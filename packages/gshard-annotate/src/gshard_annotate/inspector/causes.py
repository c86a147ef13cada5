"""Why a program exchanges data, and which of its exchanges nobody asked for.

A collective carries the name of the operation for which XLA put it in. The program before
partitioning shows how that operation's operands lie and how they have to; from there the data flow
leads to the annotations and arguments whose shardings meet.

Asked for are: what an annotation, the boundary of a `shard_map`, or an asked sharding of a result
implies; what is written inside a `shard_map`; sums over a split dimension; the edges that a
convolution or a window over a split dimension needs. Everything else is a surprise, and so is an
array that is gathered whole over mesh axes over which an annotation splits it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gshard_annotate.inspector.annotations import Annotation, label_of
from gshard_annotate.inspector.collectives import Collective
from gshard_annotate.inspector.flow import ELEMENTWISE, SAME_VALUE, Flow, Node
from gshard_annotate.inspector.hlo import Instruction, Program, Source
from gshard_annotate.inspector.quantities import place
from gshard_annotate.inspector.shardings import Placement

# The last part of an operation's name when the user wrote the collective.
_WRITTEN = re.compile(
    r"/(p(sum|max|min|mean|permute|broadcast|swapaxes)\w*|all_gather\w*|all_to_all"
    r"|ragged_all_to_all|reduce_scatter|psum_scatter|unreduced_\w+)$"
)
_ANY_LABEL = re.compile(r"/(\w+\[[^/\]]*\])\)*/")
_WINDOWS = ("convolution", "reduce-window", "select-and-scatter")
_SUMS = ("all-reduce", "reduce-scatter")


class Cause(NamedTuple):
    """Why there is a collective.

    Attributes:
      text: The annotations or arguments that caused it, in words; empty when not known.
      surprise: The complaint when nobody asked for it, to be put behind `all-gather of 64 MiB at
        layers.py:88`; else empty.
      source: The line, where the collective itself has none.
    """

    text: str
    surprise: str = ""
    source: Source | None = None


class Causes:
    """Finds the cause of each collective of one program.

    Args:
      final: The compiled program.
      flow: The program before partitioning, with shardings; None when it could not be seen.
      annotations: Its annotations.
      results: Name of each result, with the sharding that was asked for it.
    """

    def __init__(
        self,
        final: Program,
        flow: Flow | None,
        annotations: Sequence[Annotation],
        results: Sequence[tuple[str, Placement | None]],
    ):
        self.final, self.flow, self.results = final, flow, results
        self.annotations = {one.node.key: one for one in annotations}
        self._final_flow = Flow(final, flow.axes if flow else {})
        self._by_name: dict[str, list[Instruction]] = {}
        for one in flow.program if flow else ():
            for name in _names(one.op_name):
                self._by_name.setdefault(name, []).append(one)

    def of(self, found: Collective, one: Instruction, axes: tuple[str, ...], group: int) -> Cause:
        """The cause of a collective over these mesh axes, in groups of this size."""
        op_name, source = found.op_name, self.final.source(one)
        if not op_name:
            op_name, source = self._neighbour(one)
        if label := label_of(op_name):
            return self._at_annotation(found, op_name, label, source, axes)
        if _WRITTEN.search(op_name):
            labels = _ANY_LABEL.findall(op_name)
            name = labels[-1] if labels else op_name.rpartition("/")[2]
            return Cause(f"{name} at {place(source)}" if source else name, source=source)
        if self.flow is None:
            return Cause("", source=source)
        if not op_name:
            return self._at_result(one, axes)
        operations = self._operations(op_name, source)
        if not operations:
            return Cause("", source=source)
        source = source or self.flow.program.source(operations[0])
        if op_name.endswith("/shard_map"):
            return Cause(f"shard_map at {place(source)}", source=source)
        if found.kind in _SUMS:
            return Cause(self._met(operations, axes, down=False), source=source)
        return self._elsewhere(found, operations, source, axes, group)

    def _at_annotation(self, found, op_name, label, source, axes) -> Cause:
        annotations = [
            self.annotations[Node(one).key]
            for one in self._operations(op_name, source)
            if Node(one).key in self.annotations
        ]
        if not annotations:
            return Cause(f"{label} at {place(source)}" if source else label, source=source)
        annotation = annotations[0]
        asked = annotation.asked or annotation.compiled
        if found.kind != "all-gather" or not asked.axes & set(axes) or self.flow is None:
            return Cause(str(annotation), source=source)
        before = [self.flow.placement(node) for node in self.flow.sources(annotation.node)]
        come = next((str(one) for one in before if one.axes & set(axes)), "split otherwise")
        complaint = (
            f"{annotation.label} asks for {asked} of what is {come}; "
            f"it is gathered over {_axes(axes)} first instead of exchanging parts"
        )
        return Cause(str(annotation), complaint, source)

    def _at_result(self, one: Instruction, axes: tuple[str, ...]) -> Cause:
        """For a collective behind the last operation: how a result has to lie."""
        reached = self._final_flow.walk([Node(one)], self._final_flow.uses, lambda node: True)
        for node in reached:
            for number in self._final_flow.results(node):
                if number < len(self.results):
                    return self._result_cause(number, axes)
        return Cause("")

    def _result_cause(self, number: int, axes: tuple[str, ...]) -> Cause:
        name, asked = self.results[number]
        if asked is not None:
            return Cause(f"{name} asked as {asked}")
        makers = self.flow.result(number)
        inside = self.flow.placement(makers[0]) if makers else None
        annotation = self.annotations.get(makers[0].key) if makers else None
        split = f"is {inside} in the program" if inside else f"is split on {_axes(axes)}"
        return Cause(str(annotation or name), f"{name} {split} but returned replicated")

    def _elsewhere(self, found, operations, source, axes, group) -> Cause:
        operation, operand = self._reshard(found, operations, axes, group)
        if source is None and operand is not None:
            source = self.flow.program.source(operand.instruction)
        met = self._met([operation], axes, down=True)
        if operation.opcode in _WINDOWS and found.kind == "collective-permute":
            return Cause(met or f"window of {_called(operation)}", source=source)
        if asked := self._asked_behind(operation, operand, axes, found.kind):
            return Cause(asked, source=source)
        return Cause(met, self._complaint(found, operation, operand, axes), source)

    def _reshard(self, found, operations, axes, group) -> tuple[Instruction, Node | None]:
        """The operation, and the operand that comes split over these axes, that fit best."""
        best, choice = -1, (operations[0], None)
        for operation in operations:
            for operand in self.flow.sources(Node(operation)):
                score = self._score(found, operation, operand, axes, group)
                if score > best:
                    best, choice = score, (operation, operand)
        return choice

    def _score(self, found, operation, operand, axes, group) -> int:
        lies = self.flow.placement(operand)
        if not lies.axes & set(axes) or self.flow.is_constant(operand):
            return -1
        array = operand.instruction.arrays[max(operand.index, 0)]
        local = 1
        for size in lies.local(array.dims):
            local *= size
        moved = sum(
            one.elements for one in self._array_sizes(found)
        ) // (group if found.kind == "all-gather" else 1)
        same = 4 if local == moved else 0
        leaves = 2 if self.flow.placement(Node(operation)).axes != lies.axes else 0
        return 1 + same + leaves

    def _array_sizes(self, found: Collective):
        computation = self.final.computations.get(found.computation)
        one = computation.instructions.get(found.instruction) if computation else None
        return one.arrays if one is not None else ()

    def _asked_behind(self, operation, operand, axes, kind) -> str:
        """The annotations that imply the exchange although it stands elsewhere; or nothing."""
        after = self._annotated_after(Node(operation))
        if kind == "all-gather":
            if after is None:
                return ""
            name, asked = after
            return name if asked is not None and not asked.axes & set(axes) else ""
        before = self._annotated_before(operand) if operand else None
        return f"{before} -> {after[0]}" if before and after else ""

    def _annotated_after(self, node: Node) -> tuple[str, Placement | None] | None:
        """The annotation, or the result of an asked sharding, that a value goes to as it is."""
        for other in self.flow.walk(
            [node],
            self.flow.uses,
            lambda n: n.key == node.key or n.instruction.opcode in ELEMENTWISE and not self._known(n),
            limit=50,
        ):
            if annotation := self.annotations.get(other.key):
                return str(annotation), annotation.asked
            for number in self.flow.results(other):
                if number < len(self.results) and self.results[number][1] is not None:
                    name, asked = self.results[number]
                    return f"{name} asked as {asked}", asked
        return None

    def _annotated_before(self, node: Node) -> str:
        """The annotation, or the argument, that a value is but for elementwise operations."""
        for other in self.flow.walk(
            [node],
            self.flow.sources,
            lambda n: n.instruction.opcode in ELEMENTWISE and not self._known(n),
            limit=50,
        ):
            if self._known(other):
                return self._describe(other)
        return ""

    def _known(self, node: Node) -> bool:
        return node.key in self.annotations or self.flow.is_argument(node)

    def _describe(self, node: Node) -> str:
        if annotation := self.annotations.get(node.key):
            return str(annotation)
        return f"{_argument(node)} {self.flow.placement(node)}"

    def _met(self, operations: Sequence[Instruction], axes: tuple[str, ...], down: bool) -> str:
        """The annotations or arguments that brought these axes, and those that the result meets."""
        nodes = [Node(one) for one in operations]
        up = self._nearest([s for node in nodes for s in self.flow.sources(node)], axes, True)
        met = [up] if up else []
        after = self._nearest([u for node in nodes for u in self.flow.uses(node)], axes, False)
        if after and after not in met and (down or not met):
            met.append(after)
        return " -> ".join(met)

    def _nearest(self, start: list[Node], axes: tuple[str, ...], up: bool) -> str:
        """The nearest annotation or argument that is split over all of these axes, else over any."""
        wanted, second = set(axes), ""
        step = self.flow.sources if up else self.flow.uses
        for node in self.flow.walk(
            start, step, lambda n: bool(self.flow.placement(n).axes & wanted) and not self._known(n)
        ):
            have = self.flow.placement(node).axes & wanted if self._known(node) else frozenset()
            if have == wanted:
                return self._describe(node)
            second = second or (self._describe(node) if have else "")
        return second

    def _complaint(self, found, operation, operand, axes) -> str:
        if operand is None:
            lies = self.flow.placement(Node(operation))
            return f"{_called(operation)} has to be {lies} but is not made so"
        lies = self.flow.placement(operand)
        if found.kind != "all-gather":
            to = self.flow.placement(Node(operation))
            return f"{self._name(operand)} is {lies} but {_called(operation)} makes {to} of it"
        rest = sorted(lies.axes - set(axes))
        used = f"used split on {_axes(rest)} only" if rest else "used replicated"
        return f"{self._name(operand)} is split on {_axes(sorted(lies.axes))} but {used}"

    def _name(self, node: Node) -> str:
        """What a reader would call a value."""
        for other in self.flow.walk(
            [node],
            self.flow.sources,
            lambda n: n.instruction.opcode in SAME_VALUE and not self._known(n),
            limit=50,
        ):
            if self.flow.is_argument(other):
                return _argument(other)
            if annotation := self.annotations.get(other.key):
                return str(annotation)
        at = place(self.flow.program.source(node.instruction))
        return f"the result of {_called(node.instruction)}{f' at {at}' if at else ''}"

    def _operations(self, op_name: str, source: Source | None = None) -> list[Instruction]:
        """The operations of this name before partitioning, those of the same line if there are."""
        named = [one for name in _names(op_name) for one in self._by_name.get(name, ())]
        if source is None or self.flow is None:
            return named
        return [one for one in named if self.flow.program.source(one) == source] or named

    def _neighbour(self, one: Instruction) -> tuple[str, Source | None]:
        """Name and line of the nearest operation around one that lost its own."""
        flow = self._final_flow
        for step in (flow.uses, flow.sources):
            for node in flow.walk([Node(one)], step, lambda n: not n.instruction.op_name, limit=20):
                name = node.instruction.op_name
                if self._operations(name):
                    return name, self.final.source(node.instruction)
        return "", None


def _names(op_name: str) -> list[str]:
    """The operations that an operation's name stands for: `f/(a:b);f/c` is f/a, f/b and f/c."""
    names = []
    for name in op_name.split(";"):
        head, found, tail = name.rpartition("/(")
        if found and tail.endswith(")") and ":" in tail:
            names += [f"{head}/{part}" for part in tail[:-1].split(":")]
        else:
            names.append(name)
    return [name for name in names if name]


def _argument(node: Node) -> str:
    return node.instruction.op_name or node.instruction.name


def _called(one: Instruction) -> str:
    """Its name in the user's program; what XLA made up by itself goes by its kind."""
    name = one.op_name.rpartition("/")[2]
    return one.opcode if not name or re.search(r"\.\d+$", name) else name


def _axes(axes: Sequence[str]) -> str:
    quoted = [f"'{axis}'" for axis in axes]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
