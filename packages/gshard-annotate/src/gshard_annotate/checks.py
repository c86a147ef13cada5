"""What can be known before tracing: rank, unknown mesh axes, axes used twice, divisibility.

A check returns its findings as sentences; `report_faults` turns all of them into one ValueError, or
into one warning under `checks("warn")`.
"""

import contextlib
import contextvars
import difflib
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import numpy as np

from gshard_annotate.source import stack_level

# What one dimension of an array is split over: no mesh axis, one, or several (major to minor).
MeshAxes = str | tuple[str, ...] | None

Mode = Literal["strict", "warn"]

_MODE: contextvars.ContextVar[Mode] = contextvars.ContextVar("mode", default="strict")

_SHORT_DTYPES = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


class AnnotationWarning(UserWarning):
    """A fault of an annotation that `checks("warn")` let pass."""


@contextlib.contextmanager
def checks(mode: Mode) -> Iterator[None]:
    """Makes faults warnings inside the `with` block ("warn"), or errors again ("strict").

    Of a faulty annotation what is right still counts: a dimension that cannot be split as asked
    stays whole, an annotation of the wrong rank does nothing. As with `rules_scope`, open it inside
    the function that is jitted.

    Raises:
      ValueError: Another mode.
    """
    if mode not in get_args(Mode):
        allowed = " or ".join(map(repr, get_args(Mode)))
        raise ValueError(f"checks: mode is {mode!r}; give {allowed}")
    token = _MODE.set(mode)
    try:
        yield
    finally:
        _MODE.reset(token)


def axes_tuple(axes: MeshAxes) -> tuple[str, ...]:
    """The mesh axes of one dimension, as a tuple."""
    if axes is None:
        return ()
    return tuple(axes) if isinstance(axes, tuple | list) else (axes,)


def axes_size(axes: MeshAxes, sizes: Mapping[str, int]) -> int:
    """Into how many parts a dimension falls that is split over `axes`."""
    return math.prod(sizes[axis] for axis in axes_tuple(axes))


def describe(x: Any) -> str:
    """An array's type and shape as `f32[6,16,8]`."""
    dtype = str(x.dtype)
    letters = dtype.rstrip("0123456789")
    short = _SHORT_DTYPES.get(letters, letters) + dtype[len(letters) :]
    return f"{short}[{','.join(map(str, x.shape))}]"


def describe_mesh(sizes: Mapping[str, int]) -> str:
    """A mesh's axes as `data=2, expert=4`."""
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items()) or "no axes"


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest allowed word, or nothing when none is near."""
    near = difflib.get_close_matches(word, list(allowed), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def kind_of(value: Any) -> str:
    """What a value is, as `'heads' (str)`."""
    return f"{value!r:.60} ({type(value).__name__})"


def raise_faults(who: str, faults: Sequence[str]) -> None:
    """Raises one ValueError with all faults, or does nothing when there are none."""
    if faults:
        raise ValueError(_in_one(who, faults))


def report_faults(who: str, faults: Sequence[str]) -> None:
    """As `raise_faults`; under `checks("warn")` one warning instead."""
    if not faults:
        return
    if _MODE.get() == "strict":
        raise_faults(who, faults)
    warnings.warn(_in_one(who, faults), AnnotationWarning, stacklevel=stack_level())


def _in_one(who: str, faults: Sequence[str]) -> str:
    if len(faults) == 1:
        return f"{who}: {faults[0]}"
    return f"{who}: {len(faults)} faults:\n  " + "\n  ".join(faults)


def dim_faults(x: jax.Array | jax.ShapeDtypeStruct, dims: Sequence[int]) -> list[str]:
    """What is wrong with these as different dimensions of `x`."""
    if wrong := [dim for dim in dims if not isinstance(dim, int | np.integer)]:
        return [f"dimension {kind_of(dim)} is no integer" for dim in wrong]
    if x.ndim == 0 and dims:
        return [f"x {describe(x)} is a scalar and has no dimension {dims[0]}"]
    faults = [
        f"x {describe(x)} has no dimension {dim}; give one of {-x.ndim} to {x.ndim - 1}"
        for dim in dims
        if not -x.ndim <= dim < x.ndim
    ]
    if not faults and len({dim % x.ndim for dim in dims}) < len(dims):
        faults.append(f"dims {list(dims)} name a dimension of x {describe(x)} twice")
    return faults


def spec_faults(
    what: str, shape: Sequence[int], spec: Sequence[MeshAxes], sizes: Mapping[str, int]
) -> list[str]:
    """Everything that is wrong with splitting `shape` as `spec` on a mesh of these axis sizes.

    Args:
      what: The array, as the messages shall call it: `x f32[6,16,8]`.
      shape: Its shape.
      spec: The mesh axes of each dimension; no longer than the shape.
      sizes: Size of each mesh axis.
    """
    return _faults_and_usable(what, shape, spec, sizes)[0]


def usable_axes(
    shape: Sequence[int], spec: Sequence[MeshAxes], sizes: Mapping[str, int]
) -> list[MeshAxes]:
    """`spec` without what is wrong with it: a dimension that has a fault stays whole."""
    return _faults_and_usable("", shape, spec, sizes)[1]


def _faults_and_usable(
    what: str, shape: Sequence[int], spec: Sequence[MeshAxes], sizes: Mapping[str, int]
) -> tuple[list[str], list[MeshAxes]]:
    faults, usable, used = [], [], {}
    for dim, axes in enumerate(spec):
        before = len(faults)
        known = True
        for axis in axes_tuple(axes):
            if not isinstance(axis, str):
                known = False
                faults.append(f"mesh axis {kind_of(axis)} of dimension {dim} of {what} is no name")
            elif axis not in sizes:
                known = False
                faults.append(_unknown_axis(what, dim, axis, sizes))
            elif axis in used:
                faults.append(_used_twice(what, axis, used[axis], dim))
            used.setdefault(axis, dim)
        if known and (parts := axes_size(axes, sizes)) and shape[dim] % parts:
            faults.append(_indivisible(what, dim, shape[dim], axes, parts))
        usable.append(axes if len(faults) == before else None)
    return faults, usable


def _unknown_axis(what: str, dim: int, axis: str, sizes: Mapping[str, int]) -> str:
    return (
        f"dimension {dim} of {what} cannot be split over mesh axis '{axis}': "
        f"the mesh has {describe_mesh(sizes)}{did_you_mean(axis, sizes)}"
    )


def _used_twice(what: str, axis: str, first: int, second: int) -> str:
    if first == second:
        return f"mesh axis '{axis}' stands twice for dimension {first} of {what}; name it once"
    return (
        f"mesh axis '{axis}' splits dimensions {first} and {second} of {what}; "
        "a mesh axis can split one dimension only, replicate the other"
    )


def _indivisible(what: str, dim: int, size: int, axes: MeshAxes, parts: int) -> str:
    names = axes_tuple(axes)
    over = f"mesh axis '{names[0]}'" if len(names) == 1 else f"mesh axes {names}"
    return (
        f"dimension {dim} of {what} cannot be split over {over} of size {parts} "
        f"({size} % {parts} = {size % parts}); pad it to {-(-size // parts) * parts} "
        f"or use an axis of size {_one_of(_divisors(size))}"
    )


def _divisors(size: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(size) + 1) if size % n == 0]
    return small + [size // n for n in reversed(small) if n * n < size]


def _one_of(numbers: Sequence[int]) -> str:
    if len(numbers) > 8:
        return ", ".join(map(str, numbers[:7])) + f", ... or {numbers[-1]}"
    head = ", ".join(map(str, numbers[:-1]))
    return f"{head} or {numbers[-1]}" if head else str(numbers[-1])


def mesh_sizes(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> dict[str, int]:
    """Size of each mesh axis by name."""
    return dict(mesh.shape)
