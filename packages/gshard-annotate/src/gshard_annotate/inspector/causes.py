"""Why a program exchanges data, and which of its exchanges nobody asked for.

A collective carries the name of the operation for which XLA put it in. What it moves is followed
back in the compiled program to where it was made, and found again among the operands of that
operation in the program before partitioning, which shows how they lie and how they have to; from
there the data flow leads to the annotations and arguments whose shardings meet.

Asked for are: what an annotation, the boundary of a `shard_map`, or an asked sharding of a result
implies for a value and what is computed from it element by element; what is written inside a
`shard_map`; sums, maxima and the like over a dimension that a sharding splits; the edges that a
convolution or a window over a split dimension needs; what `Padded.unpad` gathers. Everything else
is a surprise, and so are an array that is gathered whole over mesh axes over which an annotation
splits it, an argument that is split in one way and used in another, and an exchange for an
annotation that moves more than what is annotated.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gshard_annotate.inspector.annotated_flow import AnnotatedFlow, called
from gshard_annotate.inspector.annotations import documented, label_of, scope_of
from gshard_annotate.inspector.complaints import about, gathered_first, quoted, returned, spreads
from gshard_annotate.inspector.flow import ELEMENTWISE, Flow, Node
from gshard_annotate.inspector.frames import Source
from gshard_annotate.inspector.hlo import Instruction
from gshard_annotate.inspector.moved import Crossing, Moved, find_moved
from gshard_annotate.inspector.origins import Origins
from gshard_annotate.inspector.quantities import place

# The last part of an operation's name when the user wrote the collective.
_WRITTEN = re.compile(
    r"/(p(sum|max|min|mean|permute|broadcast|swapaxes)\w*|all_gather\w*|all_to_all"
    r"|ragged_all_to_all|reduce_scatter|psum_scatter|unreduced_\w+)$"
)
_WINDOWS = ("convolution", "reduce-window", "select-and-scatter")
_CONTRACTIONS = ("dot", "convolution", "reduce")
# Of these the parts of a result are combined: candidates for a maximum, say.
_COMBINING = ("reduce", "sort", "custom-call", "topk")
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


class Causes:
    """Finds the cause of each collective of one program.

    Args:
      final: The data flow of the compiled program.
      before: The program before partitioning; None when it could not be seen.
    """

    def __init__(self, final: Flow, before: AnnotatedFlow | None):
        self._final, self._before = final, before
        self._origins = Origins(self._final)
        # The results whose exchange was found.
        self.returned: set[int] = set()

    def of(self, crossing: Crossing) -> Cause:
        """Why there is this collective."""
        one, op_name = crossing.outer, crossing.found.op_name
        if self._before is None:
            return _named(op_name, self._final.program.source(one)) or Cause(
                "", source=self._final.program.source(one)
            )
        if not op_name:
            if (number := self._result_of(one)) is not None:
                return self._at_result(self._before, number, crossing.axes)
            one = self._neighbour(self._before, one)
            op_name = one.op_name
        source, stack = self._final.program.source(one), self._final.program.stack(one)
        if label_of(op_name):
            return self._at_annotation(self._before, crossing, op_name, stack, source)
        return _named(op_name, source) or self._at_operation(
            self._before, crossing, op_name, stack, source
        )

    def _at_annotation(self, before: AnnotatedFlow, crossing, op_name, stack, source) -> Cause:
        annotations = [
            annotation
            for one in before.operations(op_name, stack)
            if (annotation := before.annotations.get(Node(one).key))
        ]
        if not annotations:
            label = label_of(op_name)
            return Cause(f"{label} at {place(source)}" if source else label, source=source)
        made = self._origins.moved_by(crossing.instruction)
        ours = [one.node.instruction for one in annotations]
        moved = find_moved(before, made, crossing, ours)
        annotation = before.annotations[Node(moved.operation).key]
        asked = annotation.asked or annotation.compiled
        if not crossing.gathers or not asked.axes & set(crossing.axes):
            return Cause(str(annotation), source=source)
        lies = [before.flow.placement(node) for node in before.flow.sources(annotation.node)]
        lies = [one for one in lies if one.axes & set(crossing.axes)]
        return Cause(str(annotation), gathered_first(annotation, lies, crossing.axes), source)

    def _at_result(self, before: AnnotatedFlow, number: int, axes: Sequence[str]) -> Cause:
        """For a collective behind the last operation: a result has to lie in another way."""
        if number >= len(before.results):
            return Cause("")
        name, asked = before.results[number]
        makers = before.flow.result(number)
        source = before.flow.program.source(makers[0].instruction) if makers else None
        if asked is not None:
            return Cause(f"{name} asked as {asked}", source=source)
        if not makers:
            return Cause(name, f"{name} is split on {quoted(axes)} but returned replicated")
        self.returned.add(number)
        if label := documented(makers[0].instruction.op_name):
            return Cause(f"{label} at {place(source)}", source=source)
        complaint = returned(before, name, makers[0])
        annotation = before.uneven_before(makers[0])
        return Cause(str(annotation or name), "" if annotation else complaint, source)

    def _at_operation(self, before: AnnotatedFlow, crossing, op_name, stack, source) -> Cause:
        operations = before.operations(op_name, stack)
        if not operations:
            return Cause("", source=source)
        source = source or before.flow.program.source(operations[0])
        if op_name.endswith("/shard_map"):
            return Cause(f"{scope_of(op_name) or 'shard_map'} at {place(source)}", source=source)
        if crossing.found.kind in _SUMS:
            return self._sum(before, crossing, operations, source)
        made = self._origins.moved_by(crossing.instruction)
        moved = find_moved(before, made, crossing, operations)
        if source is None and moved.operand is not None:
            source = before.flow.program.source(moved.operand.instruction)
        met = before.met([moved.operation], crossing.axes, operand=moved.operand, both=True)
        if moved.operation.opcode in _WINDOWS and crossing.found.kind == "collective-permute":
            return Cause(met or f"window of {called(moved.operation)}", source=source)
        if moved.result and crossing.gathers and moved.operation.opcode in _COMBINING and met:
            return Cause(met, source=source)
        if implied := _implied(before, crossing, moved):
            return Cause(implied, source=source)
        return Cause(met, about(before, crossing, moved), source)

    @staticmethod
    def _sum(before: AnnotatedFlow, crossing, operations, source) -> Cause:
        # The parts of a reduce-scatter go where its result is split.
        both = crossing.found.kind == "reduce-scatter"
        met = before.met(operations, crossing.axes, both=both)
        unasked = [axis for axis in crossing.axes if not before.met(operations, [axis])]
        if unasked and operations[0].opcode in _CONTRACTIONS:
            return Cause(met, spreads(called(operations[0]), unasked), source)
        return Cause(met, source=source)

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

    def _neighbour(self, before: AnnotatedFlow, one: Instruction) -> Instruction:
        """The nearest operation that has kept its name, for one that lost it; else that one."""
        for step in (self._final.uses, self._final.sources):
            for node in self._final.walk([Node(one)], step, lambda n: not self._has_name(n), 20):
                if before.operations(node.instruction.op_name):
                    return node.instruction
        return one

    def _has_name(self, node: Node) -> bool:
        name = node.instruction.op_name
        return bool(name) and (self._before is None or bool(self._before.operations(name)))


def _named(op_name: str, source: Source | None) -> Cause | None:
    """The cause that an operation's name tells by itself."""
    name = label_of(op_name) or documented(op_name)
    if not name and _WRITTEN.search(op_name):
        name = scope_of(op_name) or op_name.rpartition("/")[2]
    if not name:
        return None
    return Cause(f"{name} at {place(source)}" if source else name, source=source)


def _implied(before: AnnotatedFlow, crossing: Crossing, moved: Moved) -> str:
    """The annotations that imply the exchange although it stands elsewhere; or nothing."""
    after = before.annotated_after(Node(moved.operation))
    if after is None:
        return ""
    # What is computed element by element moves as the annotation says; of anything else a weight,
    # say, which is kept in one way and used in another, does not.
    itself = moved.operation.opcode in ELEMENTWISE
    if moved.operand is not None and not itself and before.argument(moved.operand):
        return ""
    if crossing.gathers:
        other = moved.operand is not None and not itself
        more = other and crossing.elements > after.elements
        return "" if more or after.asked.axes & set(crossing.axes) else after.name
    if moved.operand is None:
        becomes = before.flow.placement(Node(moved.operation))
        return after.name if moved.result and becomes.axes == after.asked.axes else ""
    if before.flow.placement(moved.operand) == after.asked:
        return ""
    came = before.annotated_before(moved.operand)
    return f"{came} -> {after.name}" if came else ""
