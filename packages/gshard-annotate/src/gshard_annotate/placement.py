"""From "these mesh axes split these dimensions" to JAX's operation for the kind of mesh at hand.

An annotation is checked once per shape, mesh axes and mesh; the answer is kept. The operation
carries a label (`split[0:expert]`) in its name, so that profiles and compiled programs show which
annotation a copy or a collective belongs to.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.source_info_util
import numpy as np
from jax.core import Tracer
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from gshard_annotate.checks import (
    MeshAxes,
    axes_tuple,
    describe,
    kind_of,
    mesh_sizes,
    report_faults,
    spec_faults,
    usable_axes,
)
from gshard_annotate.scope import current_scope

AnyMesh = Mesh | AbstractMesh

_ARRAYS = (jax.Array, np.ndarray, np.generic)


Placing = NamedSharding | PartitionSpec


class Target(NamedTuple):
    """An annotation that was checked: what to hand to JAX, and what was wrong with it.

    Inside `jax.set_mesh` and `shard_map` JAX knows the mesh, and a PartitionSpec is enough.

    Attributes:
      label: What the operation is called in profiles and compiled programs.
      explicit: What splits each dimension over Explicit axes; None on a mesh without.
      auto: The same over Auto axes; None on a mesh without.
      moved: The same over all axes, for arrays outside of jit; None where the mesh's devices are
        not known.
      faults: What was wrong, in sentences; `explicit` and `auto` hold what was right.
    """

    label: str
    explicit: Placing | None
    auto: Placing | None
    moved: NamedSharding | None
    faults: tuple[str, ...]


def need_array(who: str, x: Any) -> None:
    """Raises a TypeError unless `x` is an array of JAX or numpy."""
    if not isinstance(x, _ARRAYS):
        article = "an" if type(x).__name__[0] in "aeiou" else "a"
        way_out = "" if hasattr(x, "unpad") else " (for a tree of them: annotate_tree)"
        raise TypeError(f"{who}: x is {article} {type(x).__name__}; give a jax.Array{way_out}")


def find_mesh(who: str, mesh: AnyMesh | None, *, needed: bool = True) -> AnyMesh | None:
    """The mesh to use; None when there is none and one device does not need any.

    The argument, else that of the innermost `rules_scope`, else that of `jax.set_mesh`. Inside
    `shard_map` it is the same mesh with some axes Manual.

    Raises:
      ValueError: None at all, several devices, and it is needed; a warning under
        `checks("warn")`.
    """
    scope = current_scope()
    if mesh is None:
        mesh = scope.mesh if scope else None
    elif not isinstance(mesh, AnyMesh):
        raise TypeError(f"{who}: mesh is {kind_of(mesh)}; give a Mesh, as make_mesh makes one")
    around = jax.sharding.get_abstract_mesh()
    if mesh is None and around.empty:
        if needed and (count := jax.device_count()) > 1:
            report_faults(
                who,
                [
                    f"no mesh, and {count} devices; "
                    "pass mesh=, or enter `rules_scope(rules, mesh)` or `jax.set_mesh(mesh)`"
                ],
            )
        return None
    if AxisType.Manual in around.axis_types:
        return around
    return mesh or _with_devices(around)


def place(who: str, label: str, x: jax.Array, axes: Sequence[MeshAxes], mesh: AnyMesh) -> jax.Array:
    """`x` with each dimension split over its mesh axes, by whatever operation the mesh asks for.

    Raises:
      ValueError: Everything that is wrong with the axes, at once.
    """
    return place_at(who, x, find_target(label, x.shape, x.dtype, tuple(axes), mesh), mesh)


def place_at(who: str, x: jax.Array, target: Target, mesh: AnyMesh) -> jax.Array:
    """`x` at a target that was found before for its shape."""
    if target.faults:
        report_faults(who, target.faults)
    if target.explicit is not None:
        need_set_mesh(who, x, mesh)
    with jax.extend.source_info_util.extend_name_stack(target.label):
        if target.moved is not None and not isinstance(x, Tracer) and not _is_partial(x):
            return jax.device_put(x, target.moved)  # also from other devices
        if target.explicit is not None:
            x = jax.sharding.reshard(x, target.explicit)
        if target.auto is not None:
            x = jax.lax.with_sharding_constraint(x, target.auto)
    return x


@functools.lru_cache(maxsize=8192)
def find_target(
    label: str, shape: tuple[int, ...], dtype: Any, axes: tuple[MeshAxes, ...], mesh: AnyMesh
) -> Target:
    """What to hand to JAX for an array of this type; found once, then kept."""
    what = f"x {describe(jax.ShapeDtypeStruct(shape, dtype))}"
    sizes, types = mesh_sizes(mesh), dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    faults = _kind_faults(what, axes, types)
    usable = axes
    if faults:  # of a part, which size it has is not the point
        manual = {axis for axis, kind in types.items() if kind == AxisType.Manual}
        usable = [None if manual.intersection(axes_tuple(each)) else each for each in axes]
    faults += spec_faults(what, shape, usable, sizes)
    usable = usable_axes(shape, usable, sizes)
    explicit, auto = (
        _of_kinds({kind}, usable, types, mesh) if kind in mesh.axis_types else None
        for kind in (AxisType.Explicit, AxisType.Auto)
    )
    moved = _of_kinds({AxisType.Explicit, AxisType.Auto}, usable, types, mesh)
    return Target(
        label, explicit, auto, moved if isinstance(moved, NamedSharding) else None, tuple(faults)
    )


def _is_partial(x: jax.Array) -> bool:
    return bool(getattr(getattr(getattr(x, "sharding", None), "spec", None), "unreduced", None))


def _of_kinds(
    kinds: set[AxisType], axes: Sequence[MeshAxes], types: dict[str, AxisType], mesh: AnyMesh
) -> Placing:
    kept = [tuple(a for a in axes_tuple(each) if types[a] in kinds) for each in axes]
    spec = PartitionSpec(*(each[0] if len(each) == 1 else each or None for each in kept))
    return NamedSharding(mesh, spec) if isinstance(mesh, Mesh) else spec


def _kind_faults(what: str, axes: Sequence[MeshAxes], types: dict[str, AxisType]) -> list[str]:
    """What axes of their kind cannot say."""
    faults = []
    for dim, each in enumerate(axes):
        names = axes_tuple(each)
        kinds = [types[axis] for axis in names if axis in types]
        faults += [
            _manual_axis(f"dimension {dim} of {what}", axis, types)
            for axis in names
            if types.get(axis) == AxisType.Manual
        ]
        if "AE" in "".join(kind.name[0] for kind in kinds):
            faults.append(
                f"dimension {dim} of {what} is split over {names}, an Auto axis before an Explicit "
                "one; name the Explicit ones first"
            )
    return faults


def _manual_axis(what: str, axis: str, types: dict[str, AxisType]) -> str:
    others = [f"'{other}'" for other, kind in types.items() if kind != AxisType.Manual]
    over = f"over {' or '.join(others)}, or " if others else ""
    return (
        f"{what} cannot be split over mesh axis '{axis}', which is manual here: inside shard_map "
        f"x is already one device's part; annotate {over}outside of it"
    )


def need_set_mesh(who: str, x: jax.Array, mesh: AnyMesh) -> None:
    """Inside jit, JAX learns of a mesh with Explicit axes from around jit or from an argument."""
    if (
        isinstance(x, Tracer)
        and jax.sharding.get_abstract_mesh().empty
        and jax.typeof(x).sharding.mesh.empty
    ):
        explicit = tuple(
            axis
            for axis, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
            if kind == AxisType.Explicit
        )
        raise ValueError(
            f"{who}: mesh axes {explicit} are Explicit, and jit does not know their mesh; call the "
            "jitted function under `with jax.set_mesh(mesh):`, or build the mesh with "
            "gshard_annotate.make_mesh, whose axes are Auto"
        )


def _with_devices(around: AbstractMesh) -> AnyMesh:
    """The mesh of `jax.set_mesh`; inside jit JAX gives out its abstract form only."""
    try:
        return jax.sharding.get_mesh()
    except ValueError:
        return around
