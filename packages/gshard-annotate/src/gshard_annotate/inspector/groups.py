"""Which devices exchange with each other, and along which mesh axes.

XLA numbers the devices of a program in the order of the mesh, so that groups such as
`[4,2]<=[2,4]T(1,0)` are lists of positions in the mesh.
"""

import functools
import math
import re

import numpy as np

from gshard_annotate.inspector.shardings import MESH_AXIS, SUB_AXIS, Axes, ints, iota

_IOTA = re.compile(r"^\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?$")
_MESH_GROUPS = re.compile(
    r"^mesh\[([^\]]*)\](?:, device_ids=\(([^)]*(?:\([\d,]*\))?[^)]*)\))? \{(.*)\}$"
)


@functools.lru_cache(maxsize=4096)
def groups(text: str) -> np.ndarray | None:
    """Device groups as rows of positions, from any of XLA's ways to write `replica_groups`."""
    text = text.strip()
    if found := _IOTA.match(text):
        return iota(found[2], found[3]).reshape(ints(found[1]))
    if found := _MESH_GROUPS.match(text):
        return _mesh_groups(*found.groups())
    rows = [ints(row) for row in re.findall(r"\{([\d,]+)\}", text)]
    if not rows or len({len(row) for row in rows}) > 1:
        return None
    return np.array(rows)


def group_axes(rows: np.ndarray | None, axes: Axes) -> tuple[str, ...]:
    """The mesh axes along which every group runs; empty when they are not those of the mesh."""
    touched = touched_axes(rows, axes)
    # As many members as these axes have places: with the others fixed, all of them.
    whole = rows is not None and rows.shape[1] == math.prod(axes[axis] for axis in touched)
    return touched if whole else ()


def touched_axes(rows: np.ndarray | None, axes: Axes) -> tuple[str, ...]:
    """The mesh axes along which the members of a group differ, if only over a part of them."""
    sizes = tuple(axes.values())
    if rows is None or rows.size != math.prod(sizes) or not sizes:
        return ()
    coords = np.stack(np.unravel_index(rows, sizes))  # axis, group, member
    varies = (coords != coords[:, :, :1]).any(axis=(1, 2))
    return tuple(name for name, one in zip(axes, varies, strict=True) if one)


def pair_axes(text: str, axes: Axes) -> tuple[str, ...]:
    """The mesh axes that the pairs of a collective-permute cross."""
    sizes, pairs = tuple(axes.values()), pair_rows(text)
    if not pairs.size or not sizes or pairs.max() >= math.prod(sizes):
        return ()
    coords = np.stack(np.unravel_index(pairs, sizes))
    crossed = (coords[:, :, 0] != coords[:, :, 1]).any(axis=1)
    return tuple(name for name, one in zip(axes, crossed, strict=True) if one)


def pair_rows(text: str) -> np.ndarray:
    """Sender and receiver of each pair of a collective-permute, as positions."""
    return np.array([ints(pair) for pair in re.findall(r"\{(\d+,\d+)\}", text)])


def _mesh_groups(axes: str, ids: str | None, chosen: str) -> np.ndarray | None:
    sizes = {name: int(size) for name, size in MESH_AXIS.findall(axes)}
    count = math.prod(sizes.values())
    devices = _device_list(ids, count)
    # Each axis in as many factors as its parts need.
    shape, names, wanted = [], [], []
    parts = [
        (name, int(above or 1), int(part or 0)) for name, above, part in SUB_AXIS.findall(chosen)
    ]
    for name, size in sizes.items():
        cuts = {1, size}
        for axis, above, part in parts:
            if axis == name and part:
                cuts |= {above, above * part}
        for low, high in zip(sorted(cuts), sorted(cuts)[1:], strict=False):
            shape.append(high // low)
            names.append((name, low))
    for axis, above, part in parts:
        end = above * (part or sizes[axis])
        wanted += [i for i, (name, low) in enumerate(names) if name == axis and above <= low < end]
    rest = [i for i in range(len(shape)) if i not in wanted]
    return (
        devices.reshape(shape)
        .transpose(rest + wanted)
        .reshape(-1, math.prod(shape[i] for i in wanted))
    )


def _device_list(ids: str | None, count: int) -> np.ndarray:
    if not ids:
        return np.arange(count)
    if found := re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\))?$", ids):
        return iota(found[1], found[2])
    return np.array(ints(ids))
