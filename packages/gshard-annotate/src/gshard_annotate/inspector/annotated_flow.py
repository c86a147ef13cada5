"""The program before partitioning, with annotations: what a value is called, what is near it."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from gshard_annotate.inspector.annotations import Annotation, uneven
from gshard_annotate.inspector.flow import ELEMENTWISE, SAME_VALUE, Flow, Node
from gshard_annotate.inspector.frames import Call
from gshard_annotate.inspector.hlo import Instruction
from gshard_annotate.inspector.origins import Maker, Origins, names
from gshard_annotate.inspector.quantities import place
from gshard_annotate.inspector.shardings import Placement

# How far to look for the annotation that a value is but for a few operations.
_NEAR = 50


class Asked(NamedTuple):
    """What a value has to be.

    Attributes:
      name: The annotation or the result.
      asked: Its sharding.
      elements: How many numbers the value has on all devices together.
    """

    name: str
    asked: Placement
    elements: int


class AnnotatedFlow:
    """Data flow, annotations and results of a program.

    Args:
      flow: The program before partitioning, with shardings.
      annotations: Its annotations.
      results: Name of each result, with the sharding that was asked for it.
      open_arguments: The arguments that were left to the compiler.
    """

    def __init__(
        self,
        flow: Flow,
        annotations: Sequence[Annotation],
        results: Sequence[tuple[str, Placement | None]],
        open_arguments: Collection[str] = (),
    ):
        self.flow, self.results, self.origins = flow, results, Origins(flow)
        self._open = frozenset(open_arguments)
        self.annotations = {one.node.key: one for one in annotations}
        self._by_name: dict[str, list[Instruction]] = {}
        for one in flow.program:
            for name in names(one.op_name):
                self._by_name.setdefault(name, []).append(one)

    def operations(self, op_name: str, stack: Sequence[Call] = ()) -> list[Instruction]:
        """The operations of this name, those of the same calls if there are any."""
        named = [one for name in names(op_name) for one in self._by_name.get(name, ())]
        if not stack:
            return named
        program = self.flow.program
        exact = [one for one in named if program.stack(one) == stack]
        return exact or [one for one in named if program.stack(one)[:1] == stack[:1]] or named

    def argument_named(self, maker: Maker) -> Node | None:
        """The argument that is what was found in the compiled program."""
        for one in self.flow.program.entry.parameters.values() if maker.argument else ():
            if maker.same(*self.origins.named(Node(one))):
                return Node(one)
        return None

    def name(self, node: Node) -> str:
        """What a reader would call a value: an argument, an annotation, an operation's result."""
        through = (*SAME_VALUE, "dynamic-update-slice")
        for other in self.flow.walk(
            [node],
            self._same,
            lambda n: n.instruction.opcode in through and not self._known(n),
            limit=_NEAR,
        ):
            if self.flow.is_argument(other):
                return _argument(other)
            if annotation := self.annotations.get(other.key):
                argument = self.argument(other)
                return f"{argument} ({annotation})" if argument else str(annotation)
        at = place(self.flow.program.source(node.instruction))
        return f"the result of {called(node.instruction)}{f' at {at}' if at else ''}"

    def argument(self, node: Node) -> str:
        """The argument that a value is, annotated or not; empty when it was computed."""
        for other in self.flow.walk(
            [node], self._same, lambda n: n.instruction.opcode in SAME_VALUE, limit=_NEAR
        ):
            if self.flow.is_argument(other):
                return _argument(other)
        return ""

    def annotated_before(self, node: Node) -> str:
        """The annotation or argument that a value is but for elementwise operations."""
        for other in self.flow.walk(
            [node],
            self.flow.sources,
            lambda n: n.instruction.opcode in ELEMENTWISE and not self._known(n),
            limit=_NEAR,
        ):
            if self._known(other):
                return self._describe(other)
        return ""

    def uneven_before(self, node: Node) -> Annotation | None:
        """The annotation that splits unevenly what a value is but for elementwise operations."""
        for other in self.flow.walk(
            [node],
            self.flow.sources,
            lambda n: n.instruction.opcode in ELEMENTWISE and n.key not in self.annotations,
            limit=_NEAR,
        ):
            annotation = self.annotations.get(other.key)
            if annotation and uneven(annotation.array, annotation.compiled):
                return annotation
        return None

    def annotated_after(self, node: Node) -> Asked | None:
        """The annotation, or result of an asked sharding, that a value becomes elementwise."""

        def goes_on(other: Node) -> bool:
            elementwise = other.instruction.opcode in ELEMENTWISE and not self._known(other)
            return other.key == node.key or elementwise

        for other in self.flow.walk([node], self.flow.uses, goes_on, limit=_NEAR):
            elements = other.instruction.arrays[max(other.number, 0)].elements
            if annotation := self.annotations.get(other.key):
                asked = annotation.asked
                return None if asked is None else Asked(str(annotation), asked, elements)
            for number in self.flow.results(other):
                name, asked = self.results[number] if number < len(self.results) else ("", None)
                if asked is not None:
                    return Asked(f"{name} asked as {asked}", asked, elements)
        return None

    def met(
        self,
        operations: Sequence[Instruction],
        axes: Sequence[str],
        *,
        operand: Node | None = None,
        both: bool = False,
    ) -> str:
        """The annotations or arguments that bring these mesh axes to an operation.

        Args:
          operations: The operation, or several of the same name.
          axes: The mesh axes.
          operand: The operand to look behind; else all of them.
          both: Also where the result goes; else only when nothing comes before.
        """
        nodes = [Node(one) for one in operations]
        sources = [source for node in nodes for source in self.flow.sources(node)]
        before = self._nearest(sources if operand is None else [operand], axes, True)
        found = [before] if before else []
        if both or not found:
            after = self._nearest([u for node in nodes for u in self.flow.uses(node)], axes, False)
            found += [after] if after and after not in found else []
        return " -> ".join(found)

    def _same(self, node: Node) -> list[Node]:
        """What a value is a part or another form of; of a loop's stack what is put there."""
        one = node.instruction
        if one.opcode != "dynamic-update-slice":
            return self.flow.sources(node)
        known = self.flow.program.computations[one.computation].instructions
        return self.flow.origins(known[one.operands[1]])

    def _nearest(self, start: list[Node], axes: Sequence[str], backwards: bool) -> str:
        """The nearest one that is split over all of these axes, else over any of them."""
        wanted, second = set(axes), ""
        for node in self.flow.walk(
            start,
            self.flow.sources if backwards else self.flow.uses,
            lambda n: bool(self.flow.placement(n).axes & wanted) and not self._known(n),
        ):
            asked = self._known(node) and not self._is_open(node)
            have = self.flow.placement(node).axes & wanted if asked else frozenset()
            if wanted and have == wanted:
                return self._describe(node)
            second = second or (self._describe(node) if have else "")
        return second

    def _is_open(self, node: Node) -> bool:
        """Whether it is an argument whose sharding the compiler chose."""
        return self.flow.is_argument(node) and _argument(node) in self._open

    def _known(self, node: Node) -> bool:
        return node.key in self.annotations or self.flow.is_argument(node)

    def _describe(self, node: Node) -> str:
        if annotation := self.annotations.get(node.key):
            return str(annotation)
        return f"{_argument(node)} {self.flow.placement(node)}"


def called(one: Instruction) -> str:
    """An operation's name in the user's program; what XLA made up goes by its kind."""
    name = one.op_name.rpartition("/")[2]
    made_up = not name or name.rpartition(".")[2].isdigit()
    return one.opcode if made_up else name


def _argument(node: Node) -> str:
    return node.instruction.op_name or node.instruction.name
