"""The sentences about exchanges that nobody asked for.

They stand behind `all-gather of 64 MiB at layers.py:88: `.
"""

from collections.abc import Sequence

from gshard_annotate.inspector.annotated_flow import AnnotatedFlow, called
from gshard_annotate.inspector.annotations import Annotation, uneven
from gshard_annotate.inspector.flow import Node
from gshard_annotate.inspector.hlo import Instruction
from gshard_annotate.inspector.moved import Crossing, Moved, part_elements
from gshard_annotate.inspector.shardings import Placement


def about(before: AnnotatedFlow, crossing: Crossing, moved: Moved) -> str:
    """The complaint about an exchange at an operation."""
    becomes, name = before.flow.placement(Node(moved.operation)), called(moved.operation)
    lies = before.flow.placement(moved.operand) if moved.operand else becomes
    used = (becomes.axes | lies.axes) & set(crossing.axes)
    if not used and not before.met([moved.operation], crossing.axes):
        return f"{spreads(name, crossing.axes)}, and puts it together again"
    if moved.operand is not None:
        return _operand(before, crossing, moved.operation, moved.operand)
    if crossing.gathers:
        return _gathered_result(before, crossing, moved.operation, becomes)
    if moved.result:
        return f"the compiler computes {name} in other parts, and moves them to make it {becomes}"
    return f"the compiler moves parts of something in {name}, which is {becomes}"


def spreads(name: str, axes: Sequence[str]) -> str:
    """That an operation is split over axes that no sharding brings to it."""
    over = f"over {quoted(axes)}, as no sharding asks" if axes else "as it likes"
    return f"the compiler spreads {name} {over}"


def gathered_first(annotation: Annotation, lies: Sequence[Placement], axes: Sequence[str]) -> str:
    """That a value is made whole for an annotation that asks for parts."""
    was = str(lies[0]) if lies else "split otherwise"
    return (
        f"{annotation.label} asks for {annotation.asked or annotation.compiled} of what is {was}; "
        f"it is gathered over {quoted(axes)} first instead of exchanging parts"
    )


def returned(before: AnnotatedFlow, name: str, maker: Node) -> str:
    """That a result does not keep the split that it has in the program."""
    lies = before.flow.placement(maker)
    sizes = uneven(maker.instruction.arrays[max(maker.number, 0)], lies)
    why = "".join(f"; {size} over {parts} does not divide" for size, parts in sizes)
    return f"{name} is {lies} in the program but returned replicated{why}"


def quoted(axes: Sequence[str]) -> str:
    """`'data'`, or `'data' and 'expert'`."""
    each = [f"'{axis}'" for axis in axes]
    return " and ".join([", ".join(each[:-1]), each[-1]] if len(each) > 1 else each)


def _operand(before: AnnotatedFlow, crossing: Crossing, operation: Instruction, operand) -> str:
    lies, becomes = before.flow.placement(operand), before.flow.placement(Node(operation))
    name, gathered = before.name(operand), crossing.gathers and lies.axes & set(crossing.axes)
    if gathered and crossing.elements >= part_elements(before, operand):
        rest = sorted(lies.axes - set(crossing.axes))
        used = f"used split on {quoted(rest)} only" if rest else "used replicated"
        return f"{name} is split on {quoted(sorted(lies.axes))} but {used}"
    if becomes == lies or crossing.gathers:
        return f"{called(operation)} moves parts of {name}, which is {lies}"
    return f"{name} is {lies} but {called(operation)} makes {becomes} of it"


def _gathered_result(
    before: AnnotatedFlow, crossing: Crossing, operation: Instruction, becomes: Placement
) -> str:
    whole = f"the result of {called(operation)} is gathered over {quoted(crossing.axes)}"
    after = before.annotated_after(Node(operation))
    if after is not None and after.asked.axes & set(crossing.axes):
        return f"{whole}, although {after.name} asks for {after.asked} of it"
    rest = sorted(becomes.axes - set(crossing.axes))
    return f"{whole} and used {f'split on {quoted(rest)} only' if rest else 'replicated'}"
