"""Shardings as XLA writes them, read back as mesh axes per dimension.

XLA numbers the devices of a program in the order of the mesh, so that a sharding such as
`{devices=[2,1,4]<=[8] last_tile_dim_replicate}` is a list of positions in the mesh.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

_TILES = re.compile(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))?")
MESH_AXIS = re.compile(r"'([^']*)'=(\d+)")
SUB_AXIS = re.compile(r"[\"']([^\"']*)[\"'](?::\((\d+)\)(\d+))?")
_SDY = re.compile(r"<@(\w+), \[(.*?)\](?:, replicated=\{([^}]*)\})?(?:, unreduced=\{([^}]*)\})?>")
_SDY_MESH = re.compile(r"(\w+) = #?(?:sdy\.mesh)?<\[([^\]]*)\](?:, device_ids=\[[^\]]*\])?>")

Axes = Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Placement:
    """How an array lies on the mesh.

    Attributes:
      dims: The mesh axes that split each dimension, major to minor. A part of an axis reads
        `expert:(2)4`: four parts, below a part of 2.
      parts: Into how many parts each dimension falls.
      open: The dimensions that the compiler may split further (an annotation's only).
      unreduced: Mesh axes over which the devices hold partial sums.
      manual: Whether this is code for one device (inside shard_map).
      raw: XLA's text when it is no split over mesh axes; `dims` are empty then.
    """

    dims: tuple[tuple[str, ...], ...]
    parts: tuple[int, ...]
    open: tuple[int, ...] = ()
    unreduced: tuple[str, ...] = ()
    manual: bool = False
    raw: str = ""

    @property
    def axes(self) -> frozenset[str]:
        """The mesh axes that split it, whole or in part."""
        return frozenset(axis.partition(":")[0] for dim in self.dims for axis in dim)

    def __str__(self) -> str:
        if self.raw or self.manual:
            return self.raw or "manual"
        entries = [_entry(dim, i in self.open) for i, dim in enumerate(self.dims)]
        if self.unreduced:
            entries.append(f"unreduced={{{', '.join(map(repr, self.unreduced))}}}")
        elif not any(self.dims) and not self.open:
            return "P()"
        return f"P({', '.join(entries)})"

    def local(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one device's part, padding included."""
        parts = self.parts if len(self.parts) == len(shape) else (1,) * len(shape)
        return tuple(-(-size // n) for size, n in zip(shape, parts, strict=True))


def replicated(rank: int) -> Placement:
    """A full copy on every device."""
    return Placement(((),) * rank, (1,) * rank)


def from_spec(spec: Iterable, rank: int, axes: Axes) -> Placement:
    """The placement that a `PartitionSpec` asks for."""
    dims, open_dims = [], []
    for i, entry in enumerate(spec):
        if entry is None or isinstance(entry, str):
            dims.append((entry,) if entry else ())
        elif isinstance(entry, tuple):
            dims.append(entry)
        else:  # PartitionSpec.UNCONSTRAINED
            dims.append(())
            open_dims.append(i)
    dims += [()] * (rank - len(dims))
    unreduced = tuple(sorted(getattr(spec, "unreduced", ())))
    return Placement(tuple(dims), _parts(dims, axes), tuple(open_dims), unreduced)


def from_sdy(text: str, axes: Axes) -> Placement | None:
    """The placement of `<@mesh, [{"data"}, {?}]>`, as Shardy and StableHLO write it."""
    found = _SDY.search(text.replace("\\", ""))
    if not found:
        return None
    dims, open_dims = [], []
    for i, one in enumerate(re.findall(r"\{([^}]*)\}", found[2])):
        dims.append(tuple(_axis(*groups) for groups in SUB_AXIS.findall(one)))
        if "?" in one:
            open_dims.append(i)
    unreduced = tuple(name for name, *_ in SUB_AXIS.findall(found[4] or ""))
    return Placement(tuple(dims), _parts(dims, axes), tuple(open_dims), unreduced)


def sdy_meshes(text: str) -> list[dict[str, int]]:
    """Axis sizes of the meshes in `mesh = #sdy.mesh<["data"=2]>` or `sdy.mesh @mesh = <[...]>`."""
    text = text.replace("\\", "").replace('"', "'")
    found = [
        {name: int(size) for name, size in MESH_AXIS.findall(axes)}
        for _, axes in _SDY_MESH.findall(text)
    ]
    return [axes for axes in found if axes]


def from_hlo(text: str, rank: int, axes: Axes) -> Placement:
    """The placement of one array from `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`.

    Args:
      text: XLA's text, that of a single array.
      rank: The array's number of dimensions.
      axes: Size of each mesh axis, in the order of the mesh.
    """
    return _from_hlo(text.strip(), rank, tuple(axes.items()))


def split_tuple(text: str) -> list[str]:
    """The shardings of a tuple's arrays; one sharding stands for itself."""
    text = re.sub(r"/\*index=\d+\*/", "", text.strip())
    if not text.startswith("{{"):
        return [text]
    parts, depth = [""], 0
    for char in text[1:-1]:
        depth += (char == "{") - (char == "}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


@functools.lru_cache(maxsize=65536)
def _from_hlo(text: str, rank: int, axes: tuple[tuple[str, int], ...]) -> Placement:
    if "{manual}" in text:
        return dataclasses.replace(replicated(rank), manual=True)
    if "replicated}" in text and "devices" not in text:
        return replicated(rank)
    found = _TILES.search(text)
    if not found:
        return Placement((), (), raw=text)
    tiles = ints(found[1])
    ids = (
        np.array(ints(found[4])) if found[4] else iota(found[2] or str(math.prod(tiles)), found[3])
    )
    dims = _named(ids.reshape(tiles), rank, axes)
    unreduced = _subgroup(text, tiles, ids, "unreduced", rank, axes)
    if dims is None:
        return Placement((), tuple(tiles[:rank]), raw=text)
    return Placement(dims, tuple(tiles[:rank]), unreduced=unreduced)


def _subgroup(text, tiles, ids, kind, rank, axes) -> tuple[str, ...]:
    """The axes of the subgroup dimension of this kind (`last_tile_dims={manual, unreduced}`)."""
    kinds = re.search(r"last_tile_dims=\{([^}]*)\}", text)
    names = [name.strip() for name in kinds[1].split(",")] if kinds else []
    if kind not in names:
        return ()
    position = rank + names.index(kind)
    named = _named(np.moveaxis(ids.reshape(tiles), position, 0), 1, axes)
    return named[0] if named else ()


def _named(
    tiles: np.ndarray, rank: int, axes: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, ...], ...] | None:
    """Mesh axes per dimension of a tile assignment; None when it is no mixed-radix one."""
    count = tiles.size
    if count != math.prod(size for _, size in axes):
        return None
    place = np.empty(count, np.int64)
    dims = []
    for dim in range(rank):
        index = np.arange(tiles.shape[dim]).reshape(
            [-1 if i == dim else 1 for i in range(tiles.ndim)]
        )
        place[tiles.ravel()] = np.broadcast_to(index, tiles.shape).ravel()
        named = _axes_of(place, axes)
        if named is None:
            return None
        dims.append(named)
    return tuple(dims)


def _axes_of(place: np.ndarray, axes: tuple[tuple[str, int], ...]) -> tuple[str, ...] | None:
    """The axes, or parts of axes, whose coordinates make up `place`, a number per device."""
    digits = []  # stride in `place`, axis, factors above, factor
    rebuilt = np.zeros_like(place)
    below = place.size
    for name, size in axes:
        below //= size
        above = 1
        for factor in _primes(size):
            stride = below * (size // above // factor)
            step = int(place[stride])
            digits.append((step, name, above, factor, size))
            rebuilt += np.arange(place.size) // stride % factor * step
            above *= factor
    if (rebuilt != place).any():
        return None
    return _joined([digit for digit in sorted(digits, key=lambda d: -d[0]) if digit[0]])


def _joined(digits: list) -> tuple[str, ...]:
    """Digits of the same axis that follow each other, as one axis or one part of an axis."""
    runs: list[list] = []
    for _, name, above, factor, size in digits:
        if runs and runs[-1][0] == name and runs[-1][1] * runs[-1][2] == above:
            runs[-1][2] *= factor
        else:
            runs.append([name, above, factor, size])
    return tuple(
        name if factor == size else f"{name}:({above}){factor}"
        for name, above, factor, size in runs
    )


@functools.cache
def _primes(size: int) -> tuple[int, ...]:
    found, prime = [], 2
    while size > 1:
        while size % prime == 0:
            found.append(prime)
            size //= prime
        prime += 1
    return tuple(found)


def iota(reshape: str, transpose: str | None) -> np.ndarray:
    """The devices of `[4,2]<=[2,4]T(1,0)`, whose right side these two are, in one row."""
    shape = ints(reshape)
    ids = np.arange(math.prod(shape)).reshape(shape)
    return (ids.transpose(ints(transpose)) if transpose else ids).ravel()


def ints(text: str) -> list[int]:
    """The numbers of `1,2,3`."""
    return [int(number) for number in text.split(",") if number]


def _axis(name: str, above: str, part: str) -> str:
    return f"{name}:({above}){part}" if part else name


def _parts(dims: Iterable[Sequence[str]], axes: Axes) -> tuple[int, ...]:
    return tuple(math.prod(_axis_parts(axis, axes) for axis in dim) for dim in dims)


def _axis_parts(axis: str, axes: Axes) -> int:
    name, _, part = axis.partition(":")
    return int(part.rpartition(")")[2]) if part else axes.get(name, 1)


def _entry(dim: tuple[str, ...], is_open: bool) -> str:
    if is_open and not dim:
        return "UNCONSTRAINED"
    if not dim:
        return "None"
    return repr(dim[0]) if len(dim) == 1 else f"({', '.join(map(repr, dim))})"
