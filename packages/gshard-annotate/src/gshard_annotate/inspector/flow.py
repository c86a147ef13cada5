"""Where the values of a program come from and where they go, through tuples, loops and calls.

A node is an instruction that makes arrays, with the number of the array if it makes several.
Tuples, loops, calls and branches are seen through: a value that goes around a loop has the loop's
start and the last line of its body as sources.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gshard_annotate.inspector.hlo import Instruction, Program
from gshard_annotate.inspector.shardings import Axes, Placement, from_hlo, replicated, split_tuple

_SAME = "copy convert bitcast bitcast-convert reshape transpose slice dynamic-slice"
_ELEMENTWISE = """abs add and atan2 cbrt ceil clamp compare cosine divide erf exponential
exponential-minus-one floor imag is-finite log log-plus-one logistic maximum minimum multiply negate
not or power real remainder round-nearest-afz round-nearest-even rsqrt select shift-left
shift-right-arithmetic shift-right-logical sign sine sqrt subtract tan tanh xor"""
_PLUMBING = """get-tuple-element tuple while call conditional parameter opt-barrier async-start
async-done"""

# Make the same numbers in another layout, shape or type, or a part of them.
SAME_VALUE = frozenset(_SAME.split())
# Work on each element by itself.
ELEMENTWISE = SAME_VALUE | frozenset(_ELEMENTWISE.split())
# Only pass values on.
_PASSING = frozenset(_PLUMBING.split())
# Sources of data that say nothing about where it should lie.
_CONSTANT = ("constant", "iota", "broadcast", "rng", "rng-bit-generator", "partition-id")


class Node(NamedTuple):
    """An array of the program: what an instruction makes (`number` -1), or one of several."""

    instruction: Instruction
    number: int = -1

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from all others."""
        return self.instruction.computation, self.instruction.name, self.number


class Flow:
    """The data flow of a program, with the sharding of each value where the text has one."""

    def __init__(self, program: Program, axes: Axes):
        self.program, self.axes = program, axes
        self._callers: dict[str, list[tuple[str, Instruction]]] = {}
        for one in program:
            for role, name in one.called():
                self._callers.setdefault(name, []).append((role, one))
        self._uses: dict[tuple, list[Node]] | None = None
        self._results: dict[tuple, list[int]] = {}
        self._sources: dict[tuple, list[Node]] = {}
        self._placements: dict[tuple, Placement] = {}

    def sources(self, node: Node) -> list[Node]:
        """The values that an instruction works on."""
        one = node.instruction
        key = (one.computation, one.name)
        if key not in self._sources:
            known = self.program.computations[one.computation].instructions
            self._sources[key] = [
                origin
                for name in one.operands
                if name in known
                for origin in self.origins(known[name])
            ]
        return self._sources[key]

    def uses(self, node: Node) -> list[Node]:
        """The instructions that work on a value."""
        return self._all_uses().get(node.key, [])

    def results(self, node: Node) -> list[int]:
        """The numbers of the program's results that a value is."""
        self._all_uses()
        return self._results.get(node.key, [])

    def result(self, number: int) -> list[Node]:
        """The values that a result of the program may be."""
        root = self.program.entry.root
        return self.origins(root, number if root.shape.startswith("(") else -1)

    def origins(self, one: Instruction, index: int = -1) -> list[Node]:
        """The values that an array really is, seen through tuples, loops and calls."""
        if one.opcode not in _PASSING:
            return [Node(one, index)]
        found: dict[tuple, Node] = {}
        waiting, seen = [(one, index)], set()
        while waiting:
            one, index = waiting.pop()
            if (one.computation, one.name, index) in seen:
                continue
            seen.add((one.computation, one.name, index))
            behind = self._behind(one, index)
            if behind is None:
                node = Node(one, index)
                found[node.key] = node
            else:
                waiting += behind
        return list(found.values())

    def placement(self, node: Node) -> Placement:
        """How a value lies on the mesh; replicated where the text has no sharding."""
        if node.key not in self._placements:
            self._placements[node.key] = self._placement(node)
        return self._placements[node.key]

    def walk(
        self,
        start: list[Node],
        step: Callable[[Node], list[Node]],
        through: Callable[[Node], bool],
        limit: int = 2000,
    ) -> Iterator[Node]:
        """Values from `start` on, nearest first, going on behind those that `through` lets pass."""
        waiting, seen = deque(start), {node.key for node in start}
        while waiting and limit:
            limit -= 1
            node = waiting.popleft()
            yield node
            if not through(node):
                continue
            for other in step(node):
                if other.key not in seen:
                    seen.add(other.key)
                    waiting.append(other)

    def is_argument(self, node: Node) -> bool:
        """Whether it is an argument of the program."""
        one = node.instruction
        return one.opcode == "parameter" and one.computation == self.program.entry.name

    def is_constant(self, node: Node) -> bool:
        """Whether it comes from nowhere: a constant, a counter, random bits."""
        return node.instruction.opcode in _CONSTANT

    def _placement(self, node: Node) -> Placement:
        one = node.instruction
        text = one.attribute("sharding")
        arrays = one.arrays
        number = max(node.number, 0)
        rank = len(arrays[number].dims) if number < len(arrays) else 0
        if not text:
            return replicated(rank)
        parts = split_tuple(text)
        return from_hlo(parts[number] if number < len(parts) else parts[0], rank, self.axes)

    def _all_uses(self) -> dict[tuple, list[Node]]:
        if self._uses is None:
            self._uses = {}
            for one in self.program:
                if self._behind(one, -1) is None:
                    for source in self.sources(Node(one)):
                        self._uses.setdefault(source.key, []).append(Node(one))
            root = self.program.entry.root
            count = len(root.operands) if root.opcode == "tuple" else 1
            for number in range(count):
                for node in self.result(number):
                    self._results.setdefault(node.key, []).append(number)
        return self._uses

    def _behind(self, one: Instruction, index: int) -> list[tuple[Instruction, int]] | None:
        """What stands behind an instruction that only passes values on; None when it is real."""
        if one.opcode not in _PASSING:
            return None
        known = self.program.computations[one.computation].instructions
        match one.opcode:
            case "get-tuple-element":
                return [(known[one.operands[0]], int(one.attribute("index")))]
            case "tuple":
                names = one.operands if index < 0 else one.operands[index : index + 1]
                return [(known[name], -1) for name in names]
            case "while":
                return [(known[one.operands[0]], index), *self._roots(one, index, "body")]
            case "call" | "conditional" | "async-start":
                return self._roots(one, index) or None
            case "opt-barrier" | "async-done":
                return [(known[one.operands[0]], index)]
            case "parameter" if one.computation != self.program.entry.name:
                return self._passed(one, index)
        return None

    def _roots(self, one: Instruction, index: int, role: str = "") -> list[tuple[Instruction, int]]:
        return [
            (self.program.computations[name].root, index)
            for each, name in one.called()
            if each == role or (not role and each != "condition")
        ]

    def _passed(self, one: Instruction, index: int) -> list[tuple[Instruction, int]] | None:
        """What the callers of a computation pass for its parameter."""
        passed = []
        for role, caller in self._callers.get(one.computation, ()):
            known = self.program.computations[caller.computation].instructions
            number = int(one.literal)
            if caller.opcode == "while":
                passed += [(known[caller.operands[0]], index), *self._roots(caller, index, "body")]
            elif caller.opcode == "conditional":
                branches = [name for _, name in caller.called()]
                passed.append((known[caller.operands[1 + branches.index(one.computation)]], index))
            elif role in ("to_apply", "calls") and number < len(caller.operands):
                passed.append((known[caller.operands[number]], index))
        return passed or None
