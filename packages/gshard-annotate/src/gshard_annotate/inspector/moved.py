"""What a collective moves: which operand of which operation, or its result."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from gshard_annotate.inspector.annotated_flow import AnnotatedFlow
from gshard_annotate.inspector.collectives import Collective, results
from gshard_annotate.inspector.flow import Node
from gshard_annotate.inspector.hlo import Instruction
from gshard_annotate.inspector.origins import Made, Maker


class Crossing(NamedTuple):
    """A collective of the compiled program.

    Attributes:
      found: The collective.
      instruction: Its instruction.
      outer: The fusion that it is in; else the instruction.
      axes: The mesh axes over which it goes, whole or in part.
      group: How many devices exchange.
    """

    found: Collective
    instruction: Instruction
    outer: Instruction
    axes: tuple[str, ...]
    group: int

    @property
    def elements(self) -> int:
        """How many numbers it makes on one device."""
        return sum(array.elements for array in results(self.instruction, self.found.kind))

    @property
    def gathers(self) -> bool:
        """Whether it puts parts together."""
        return self.found.kind == "all-gather"


class Moved(NamedTuple):
    """What a collective moves.

    Attributes:
      operation: The operation for which it is there.
      operand: The operand that it moves; None when that is no operand or not known.
      result: Whether it moves what the operation has made.
    """

    operation: Instruction
    operand: Node | None
    result: bool = False


def find_moved(
    before: AnnotatedFlow,
    made: Made,
    crossing: Crossing,
    operations: Sequence[Instruction],
) -> Moved:
    """The operand that was made by the same, else the result, else the operand that fits.

    Args:
      before: The program before partitioning.
      made: What made the numbers that move, in the compiled program.
      crossing: The collective.
      operations: The operations that it may be there for, in the program before partitioning.
    """
    themselves = set(operations)
    candidates = [
        (operation, operand)
        for operation in operations
        for operand in before.flow.sources(Node(operation))
        if not before.flow.is_constant(operand) and operand.instruction not in themselves
    ]
    same = [one for one in candidates if _any_same(made.makers, before.origins.makers(one[1]))]
    if same:
        return Moved(*max(same, key=lambda one: _fit(before, crossing, *one)))
    if made_here := [one for one in operations if _makes(before, one, made)]:
        # Of one name with what adds or compares two of its elements.
        return Moved(max(made_here, key=lambda one: one.bytes), None, result=True)
    for maker in made.makers:
        if argument := before.argument_named(maker):
            return Moved(operations[0], argument)
    fitting = [one for one in candidates if _fit(before, crossing, *one)]
    if not fitting:
        return Moved(operations[0], None)
    return Moved(*max(fitting, key=lambda one: _fit(before, crossing, *one)))


def part_elements(before: AnnotatedFlow, node: Node) -> int:
    """How many numbers of a value one device holds."""
    array = node.instruction.arrays[max(node.number, 0)]
    return math.prod(before.flow.placement(node).local(array.dims))


def _makes(before: AnnotatedFlow, operation: Instruction, made: Made) -> bool:
    """Whether what moves is an operation's result: by its name, else by what it was made from."""
    if made.makers:
        return _any_same(made.makers, before.origins.named(Node(operation)))
    taken = [
        maker
        for source in before.flow.sources(Node(operation))
        for maker in before.origins.makers(source)
    ]
    return bool(made.ingredients) and all(_any_same([one], taken) for one in made.ingredients)


def _any_same(some: Sequence[Maker], others: Sequence[Maker]) -> bool:
    return any(one.same(other) for one in some for other in others)


def _fit(before: AnnotatedFlow, crossing: Crossing, operation: Instruction, operand: Node) -> int:
    """How well an operand fits what moves; 0 when it cannot be that."""
    lies = before.flow.placement(operand)
    parts = crossing.elements // (crossing.group if crossing.gathers else 1)
    has = part_elements(before, operand)
    if has < parts or not lies.axes & set(crossing.axes):
        return 0
    differs = before.flow.placement(Node(operation)).axes != lies.axes
    return 1 + 2 * differs + 4 * (has == parts)
