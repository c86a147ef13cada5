"""How a value is cut, dimension by dimension, read from its shape and its sharding's text."""

import ast
import dataclasses
import math
import re
from collections.abc import Mapping

from gshard_annotate.checks import axes_size, axes_tuple

_SHAPE = re.compile(r"\[([\d,]*)\]")


@dataclasses.dataclass(frozen=True)
class Cut:
    """One dimension of a value.

    Attributes:
      size: Its size.
      axes: The mesh axes that split it, major to minor; none when it is whole.
      parts: Into how many parts it falls.
    """

    size: int
    axes: tuple[str, ...]
    parts: int


def cuts(shape: str, sharding: str | None, mesh: Mapping[str, int]) -> list[Cut] | None:
    """How a value such as `f32[8,64]` is cut; None when the sharding is not one of mesh axes."""
    axes = axes_of_dims(sharding)
    dims = _SHAPE.search(shape)
    if axes is None or dims is None:
        return None
    sizes = [int(size) for size in dims[1].split(",") if size]
    parts = {axis: _parts(axis, mesh) for names in axes for axis in names}
    if len(axes) > len(sizes) or not all(parts.values()):
        return None
    axes += [()] * (len(sizes) - len(axes))
    return [
        Cut(size, names, axes_size(names, parts)) for size, names in zip(sizes, axes, strict=True)
    ]


def copies(found: list[Cut], mesh: Mapping[str, int]) -> int:
    """How many devices hold the same part."""
    return math.prod(mesh.values()) // math.prod(cut.parts for cut in found)


def axes_of_dims(sharding: str | None) -> list[tuple[str, ...]] | None:
    """The mesh axes of each dimension of `P('data', None)`, without whole ones at the end."""
    try:
        call = ast.parse(sharding or "", mode="eval").body
        if not isinstance(call, ast.Call) or call.keywords:
            return None
        axes = [axes_tuple(ast.literal_eval(argument)) for argument in call.args]
    except (SyntaxError, TypeError, ValueError):
        return None
    if not all(isinstance(axis, str) for names in axes for axis in names):
        return None
    while axes and not axes[-1]:
        axes.pop()
    return axes


def same(asked: str | None, compiled: str | None) -> bool:
    """Whether two shardings say the same; `P('x', None)` is `P('x')`."""
    if asked is None or compiled is None or asked == compiled:
        return asked is not None and asked == compiled
    axes = axes_of_dims(asked)
    return axes is not None and axes == axes_of_dims(compiled)


def brief(sharding: str, shape: str) -> str:
    """The sharding beside a shape: `[data,-]` for `P('data', None)`, `whole` for `P()`."""
    axes = axes_of_dims(sharding)
    if axes is None:
        return sharding
    rank = len(dims[1].split(",")) if (dims := _SHAPE.search(shape)) else 0
    axes += [()] * (rank - len(axes))
    return f"[{','.join('+'.join(names) or '-' for names in axes)}]" if any(axes) else "whole"


def _parts(axis: str, mesh: Mapping[str, int]) -> int:
    """The size of a mesh axis, or of a part of one, as 4 of `expert:(2)4`; 0 when unknown."""
    name, _, part = axis.partition(":")
    if name not in mesh:
        return 0
    return int(part.rpartition(")")[2] or 0) if part else mesh[name]
