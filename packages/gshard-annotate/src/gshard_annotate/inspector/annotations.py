"""The annotations of a program: what each asked for, and what the compiler made of it.

Two texts of the same program are read. In the one before XLA propagates shardings an annotation is
a custom call `Sharding` with the sharding that was asked for; in the one after it is a copy with
the sharding that it got. The operation's name, line and shape tell which belongs to which.
"""

import dataclasses
import re
from collections.abc import Iterable

from gshard_annotate.inspector.flow import Flow, Node
from gshard_annotate.inspector.frames import Source
from gshard_annotate.inspector.hlo import Array, Instruction, Program
from gshard_annotate.inspector.quantities import place
from gshard_annotate.inspector.shardings import Axes, Placement, from_hlo, from_sdy

# How JAX calls the operation of an annotation.
_OPERATIONS = ("sharding_constraint", "reshard", "device_put")
_LABEL = re.compile(rf"(\w+\[[^/\]]*\])\)*/(?:{'|'.join(_OPERATIONS)})$")
_SCOPE = re.compile(r"/(?:\w+\()*(\w+\[[^/\]]*\])\)*(?=/)")
# What these do inside is documented to exchange data.
_DOCUMENTED = ("unpad[", "pad_to_split[", "halo_exchange[")
_NAMES = {"sharding_constraint": "with_sharding_constraint"}


@dataclasses.dataclass(frozen=True)
class Annotation:
    """One annotation in the program.

    Attributes:
      label: `annotate[batch,-,embed]`, or JAX's own function; `... (gradient)` for its cotangent.
      node: The value in the program with shardings.
      array: Its type and shape.
      asked: What was asked for; None when it cannot be told.
      compiled: What it got.
      source: The line.
    """

    label: str
    node: Node
    array: Array
    asked: Placement | None
    compiled: Placement
    source: Source | None

    def __str__(self) -> str:
        return f"{self.label} at {place(self.source)}" if self.source else self.label


def label_of(op_name: str) -> str:
    """The annotation that an operation's name belongs to; empty when it is another operation."""
    for name in reversed(op_name.split(";")):
        last = name.rpartition("/")[2]
        if last in _OPERATIONS:
            found = _LABEL.search(name)
            label = found[1] if found else _NAMES.get(last, last)
            backward = "transpose(" in name and "rematted_computation" not in name
            return f"{label} (gradient)" if backward else label
    return ""


def scope_of(op_name: str) -> str:
    """The label of the innermost of our functions in which an operation stands."""
    labels = _SCOPE.findall(op_name)
    return labels[-1] if labels else ""


def documented(op_name: str) -> str:
    """The label of the function around an operation if it is known to exchange data."""
    label = scope_of(op_name)
    return label if label.startswith(_DOCUMENTED) else ""


def read_annotations(before: Program | None, flow: Flow) -> list[Annotation]:
    """The annotations in the order of the program.

    Args:
      before: The program before propagation, with what was asked.
      flow: The program with the shardings that were found.
    """
    asked: dict[tuple, list[Placement | None]] = {}
    for one in _annotated(before or (), "custom-call"):
        asked.setdefault(_key(before, one), []).append(_asked(one, flow.axes))
    taken: dict[tuple, int] = {}
    # Code for one device has copies of the annotations around it.
    annotated = [
        one for one in _annotated(flow.program, "copy") if not flow.placement(Node(one)).manual
    ]
    found = []
    for one in annotated:
        key = _key(flow.program, one)
        number = taken[key] = taken.get(key, -1) + 1
        # A function that is called twice stands once in the text before.
        candidates = asked.get(key, [None])
        found.append(
            Annotation(
                label=label_of(one.op_name),
                node=Node(one),
                array=one.arrays[0],
                asked=candidates[min(number, len(candidates) - 1)],
                compiled=flow.placement(Node(one)),
                source=flow.program.source(one),
            )
        )
    return found


def uneven(array: Array, placement: Placement) -> list[tuple[int, int]]:
    """Size and parts of each dimension that does not divide."""
    if len(placement.parts) != len(array.dims):
        return []
    return [
        (size, parts)
        for size, parts in zip(array.dims, placement.parts, strict=True)
        if size % parts
    ]


def difference(
    array: Array, asked: Placement | None, compiled: Placement | None, axes: Axes
) -> str:
    """What is wrong with what the compiler made; empty when it did as asked.

    Dimensions that were left open may be split in any way; mesh axes of size 1 split nothing.
    """
    if compiled is None or asked is None or asked.raw or compiled.raw or compiled.manual:
        return ""
    if not _as_asked(asked, compiled, axes):
        sizes = uneven(array, asked)
        why = f"; {_sizes(sizes)} does not divide" if sizes else ""
        return f"asked {asked}, compiled {compiled}{why}"
    sizes = uneven(array, compiled)
    padded = [
        f"{size} over {parts}: padded to {-(-size // parts) * parts}" for size, parts in sizes
    ]
    return ", ".join(padded)


def _as_asked(asked: Placement, compiled: Placement, axes: Axes) -> bool:
    for dim, (wanted, got) in enumerate(zip(asked.dims, compiled.dims, strict=False)):
        wanted = tuple(axis for axis in wanted if axes.get(axis) != 1)
        got = tuple(axis for axis in got if axes.get(axis) != 1)
        if got != wanted and not (dim in asked.open and got[: len(wanted)] == wanted):
            return False
    return True


def _sizes(sizes: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{size} over {parts}" for size, parts in sizes)


def _annotated(program: Iterable[Instruction], opcode: str) -> Iterable[Instruction]:
    for one in program:
        asks = opcode == "copy" or one.attribute("custom_call_target") == '"Sharding"'
        if one.opcode == opcode and asks and label_of(one.op_name):
            yield one


def _key(program: Program | None, one: Instruction) -> tuple:
    source = program.source(one) if program is not None else None
    return label_of(one.op_name), source, one.arrays[0].dims


def _asked(one: Instruction, axes: Axes) -> Placement | None:
    named = from_sdy(one.attribute("frontend_attributes"), axes)
    if named is not None:
        return named
    text = one.attribute("sharding")
    return from_hlo(text, len(one.arrays[0].dims), axes) if text else None
