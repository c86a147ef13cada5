"""Which numbers an instruction moves: followed back to where they were made.

Works on the compiled program, where a collective's operand is a slice, a copy or a fusion of
something, and on the one before partitioning, so that what moves there can be found here.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gshard_annotate.inspector.flow import Flow, Node
from gshard_annotate.inspector.frames import Call
from gshard_annotate.inspector.hlo import Instruction

_FIRST = """copy convert bitcast bitcast-convert reshape transpose slice dynamic-slice pad reverse
broadcast copy-start copy-done all-gather-start all-gather-done all-reduce-start all-reduce-done
collective-permute-start collective-permute-done"""
_ALL = """concatenate all-gather all-reduce all-to-all collective-permute collective-broadcast
ragged-all-to-all reduce-scatter"""
# The operands whose numbers an instruction passes on, by position.
_MOVED: dict[str, slice] = {
    **dict.fromkeys(_FIRST.split(), slice(1)),
    **dict.fromkeys(_ALL.split(), slice(None)),
    "dynamic-update-slice": slice(2),
    "select": slice(1, None),
}
_NOTHING = ("constant", "iota", "rng", "rng-bit-generator", "partition-id", "replica-id")


class Maker(NamedTuple):
    """What made a value, as both programs call it.

    Attributes:
      name: An argument's name, or an operation's.
      stack: The calls that led to the operation; empty when they are not known.
      argument: Whether it is an argument.
    """

    name: str
    stack: tuple[Call, ...]
    argument: bool

    def same(self, other: "Maker") -> bool:
        """Whether the two are one, as far as can be told."""
        stacks = self.stack == other.stack or not (self.stack and other.stack)
        return stacks and (self.name, self.argument) == (other.name, other.argument)


class Made(NamedTuple):
    """What made the numbers that move.

    Attributes:
      makers: Their makers, as far as these have names.
      ingredients: What those without a name were made from.
    """

    makers: list[Maker]
    ingredients: list[Maker]


class Origins:
    """Finds where the values of a program were made."""

    def __init__(self, flow: Flow):
        self._flow = flow
        self._makers: dict[tuple, list[Maker]] = {}

    def moved_by(self, one: Instruction) -> "Made":
        """What makes the numbers that an instruction moves."""
        ends = self._ends(self._operands(one, slice(None)))
        nameless = [node for node in ends if not self.named(node)]
        behind = self._ends([each for node in nameless for each in self._flow.sources(node)])
        return Made(
            [maker for node in ends for maker in self.named(node)],
            [maker for node in behind for maker in self.named(node)],
        )

    def makers(self, node: Node) -> list[Maker]:
        """A value's operation, and those of what it is a part or another form of."""
        if node.key not in self._makers:
            self._makers[node.key] = [
                maker for other in self._walk([node]) for maker in self.named(other)
            ]
        return self._makers[node.key]

    def named(self, node: Node) -> list[Maker]:
        """What makes a value."""
        one = node.instruction
        if self._flow.is_argument(node):
            return [Maker(one.op_name or one.literal, (), True)]
        stack = self._flow.program.stack(one)
        return [Maker(name, stack, False) for name in names(one.op_name)]

    def _ends(self, start: list[Node]) -> list[Node]:
        return [node for node in self._walk(start) if not self._behind(node)]

    def _walk(self, start: list[Node]) -> Iterator[Node]:
        for node in self._flow.walk(start, self._behind, lambda _: True, limit=200):
            if node.instruction.opcode not in _NOTHING:
                yield node

    def _behind(self, node: Node) -> list[Node]:
        """The values whose numbers a value has; none where they are made."""
        one = node.instruction
        if one.opcode == "fusion":
            inside = [name for role, name in one.called() if role == "calls"]
            roots = [self._flow.program.computations[name].root for name in inside]
            return [each for root in roots for each in self._flow.origins(root, node.number)]
        moved = _MOVED.get(one.opcode)
        return [] if moved is None else self._operands(one, moved)

    def _operands(self, one: Instruction, which: slice) -> list[Node]:
        known = self._flow.program.computations[one.computation].instructions
        return [
            node
            for name in one.operands[which]
            if name in known
            for node in self._flow.origins(known[name])
        ]


def names(op_name: str) -> list[str]:
    """The operations that an operation's name stands for: `f/(a:b);f/c` is f/a, f/b and f/c."""
    found = []
    for name in op_name.split(";"):
        head, several, tail = name.rpartition("/(")
        if several and tail.endswith(")") and ":" in tail:
            found += [f"{head}/{part}" for part in tail[:-1].split(":")]
        else:
            found.append(name)
    return [name for name in found if name]
