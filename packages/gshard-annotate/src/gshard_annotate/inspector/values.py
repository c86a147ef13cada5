"""The rows of a report about arguments, results and annotated values."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding

from gshard_annotate.checks import describe
from gshard_annotate.inspector.annotations import Annotation, difference, documented, uneven
from gshard_annotate.inspector.flow import Flow
from gshard_annotate.inspector.hlo import Array, Program
from gshard_annotate.inspector.report import Value
from gshard_annotate.inspector.shardings import (
    Axes,
    Placement,
    from_hlo,
    from_sdy,
    from_spec,
    replicated,
)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array among the arguments or results.

    Attributes:
      name: Its path.
      shape: Its logical type and shape.
      array: What it is in memory.
      asked: The sharding that was asked for; None when it was left open.
      compiled: The one that it has; None when the program does without it.
    """

    name: str
    shape: str
    array: Array
    asked: Placement | None
    compiled: Placement | None


def arguments(compiled: Any, final: Program, before: Program | None, axes: Axes) -> list[Leaf]:
    """The arguments of a compiled function, with those that the program does without."""
    infos = jax.tree_util.tree_flatten_with_path(compiled.args_info)[0]
    shardings = jax.tree.leaves(compiled.input_shardings, is_leaf=lambda one: one is None)
    used = [i for i, sharding in enumerate(shardings) if sharding is not None]
    parameters = (before or final).entry.parameters
    # JAX leaves out unused arguments; the parameters are the others, in order.
    matched = (
        dict(zip(used, sorted(parameters), strict=False)) if len(used) >= len(parameters) else {}
    )
    leaves = []
    for i, (path, info) in enumerate(infos):
        parameter = parameters.get(matched.get(i, -1))
        name = parameter.op_name if parameter is not None else ""
        array = parameter.arrays[0] if before and parameter is not None else _array(info)
        asked = _asked(parameter.attributes, array, axes) if before and parameter else None
        leaves.append(
            Leaf(
                name=name or f"argument{jax.tree_util.keystr(path[1:])}",
                shape=describe(info),
                array=array,
                asked=asked,
                compiled=placement(shardings[i], array, axes) if i < len(shardings) else None,
            )
        )
    return leaves


def results(compiled: Any, before: Program | None, axes: Axes) -> list[Leaf]:
    """The results of a compiled function."""
    infos = jax.tree_util.tree_flatten_with_path(compiled.out_info)[0]
    shardings = jax.tree.leaves(compiled.output_shardings, is_leaf=lambda one: one is None)
    asked = _asked_results(before, len(infos), axes)
    leaves = []
    for i, (path, info) in enumerate(infos):
        array = _array(info)
        leaves.append(
            Leaf(
                name=f"result{jax.tree_util.keystr(path)}",
                shape=describe(info),
                array=array,
                asked=asked[i],
                compiled=placement(shardings[i], array, axes) if i < len(shardings) else None,
            )
        )
    return leaves


def placement(sharding: Any, array: Array, axes: Axes) -> Placement | None:
    """The placement that one of JAX's sharding objects stands for."""
    if sharding is None:
        return None
    rank = len(array.dims)
    if isinstance(sharding, NamedSharding):
        return from_spec(sharding.spec, rank, dict(sharding.mesh.shape))
    if sharding.is_fully_replicated:
        return replicated(rank)
    found = re.search(r"\{.*\}", str(sharding))
    return from_hlo(found[0], rank, axes) if found else Placement((), (), raw=str(sharding))


def leaf_value(role: str, leaf: Leaf, axes: Axes, flow: Flow | None, number: int) -> Value:
    """The row of an argument or result."""
    note = difference(leaf.array, leaf.asked, leaf.compiled, axes)
    if role == "result" and not note and flow is not None and leaf.asked is None:
        note = _dropped(leaf, flow, number)
    return Value(
        role=role,
        name=leaf.name,
        shape=leaf.shape,
        asked=None if leaf.asked is None else str(leaf.asked),
        compiled=None if leaf.compiled is None else str(leaf.compiled),
        bytes=leaf.array.bytes,
        bytes_per_device=_local_bytes(leaf.array, leaf.compiled),
        note=note,
    )


def annotation_values(
    annotations: Sequence[Annotation], counts: Mapping[str, int], axes: Axes
) -> list[Value]:
    """The rows of the annotations; those of the same line that fared the same are one."""
    rows: dict[Value, int] = {}
    for one in annotations:
        value = Value(
            role="annotation",
            name=one.label,
            shape=str(one.array),
            asked=None if one.asked is None else str(one.asked),
            compiled=str(one.compiled),
            bytes=one.array.bytes,
            bytes_per_device=_local_bytes(one.array, one.compiled),
            source=one.source,
            note=difference(one.array, one.asked, one.compiled, axes),
        )
        times = counts.get(one.node.instruction.computation, 1)
        rows[value] = rows.get(value, 0) + times
    return [dataclasses.replace(value, times=times) for value, times in rows.items()]


def _dropped(leaf: Leaf, flow: Flow, number: int) -> str:
    """For a result that the program splits unevenly and JAX returns replicated."""
    makers = flow.result(number)
    if not makers or leaf.compiled is None:
        return ""
    if documented(makers[0].instruction.op_name):
        return ""
    inside = flow.placement(makers[0])
    sizes = uneven(leaf.array, inside)
    if not sizes or inside.dims == leaf.compiled.dims:
        return ""
    said = ", ".join(f"{size} over {parts}" for size, parts in sizes)
    return f"{inside} in the program, {leaf.compiled} as a result: {said} does not divide"


def _asked_results(before: Program | None, count: int, axes: Axes) -> list[Placement | None]:
    if before is None:
        return [None] * count
    flow, asked = Flow(before, axes), []
    for number in range(count):
        makers = [node.instruction for node in flow.result(number)]
        texts = [
            one.attribute("frontend_attributes")
            for one in makers
            if one.attribute("custom_call_target") == '"xla.sdy.FuncResultSharding"'
        ]
        asked.append(from_sdy(texts[0], axes) if texts else None)
    return asked


def _asked(attributes: str, array: Array, axes: Axes) -> Placement | None:
    if (named := from_sdy(attributes, axes)) is not None:
        return named
    found = re.search(r" sharding=(\{.*?\})(?:,|$)", attributes)
    return from_hlo(found[1], len(array.dims), axes) if found else None


def _array(info: Any) -> Array:
    """An array of JAX as XLA sees it; keys and other extended types by their size alone."""
    short = describe(info).partition("[")[0]
    short = {"bool": "pred"}.get(short, re.sub(r"^([iu])(\d)", _integer, short))
    if "<" in short:  # key<fry>: two words
        return Array("u32", (*info.shape, 2), 0)
    return Array(short, tuple(info.shape), 0)


def _integer(found: re.Match[str]) -> str:
    return ("s" if found[1] == "i" else "u") + found[2]


def _local_bytes(array: Array, compiled: Placement | None) -> int:
    if compiled is None:
        return 0
    return Array(array.dtype, compiled.local(array.dims), 0).bytes
