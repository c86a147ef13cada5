"""What can be wrong with what `inspect` is given, and with a program that does not fit."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from jax.sharding import Mesh

from gshard_annotate.checks import describe_mesh, kind_of, raise_faults
from gshard_annotate.inspector.quantities import plural
from gshard_annotate.inspector.shardings import sdy_meshes
from gshard_annotate.inspector.too_large import TooLargeError, needed_and_limit

_NEEDED = re.compile(
    r"total memory required for (.+?) \(([\d.]+\w*)\) exceeds available (\w+) \(([\d.]+\w*)\)"
)


def check_mesh(who: str, mesh: Any) -> None:
    """Refuses as a mesh what is none."""
    if mesh is None or isinstance(mesh, Mesh):
        return
    made = f"make_mesh({mesh!r})" if isinstance(mesh, Mapping) else "make_mesh({'data': 2})"
    raise TypeError(f"{who}: mesh is {kind_of(mesh)}; give a jax.sharding.Mesh, as {made} returns")


def check_arguments(fn: Any, args: Sequence, kwargs: Mapping, static_argnums: Any) -> None:
    """Refuses what is no function, and arguments without a shape."""
    if not callable(fn):
        raise TypeError(
            f"inspect: {type(fn).__name__} is no function; give a function, a jitted function, "
            "or what its lower() returned"
        )
    # What a jitted function takes as static is known to it alone.
    if hasattr(fn, "trace"):
        return
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    named = [
        (str(i), arg) for i, arg in enumerate(args) if i not in {s % len(args) for s in static}
    ]
    faults = [
        f"argument {name}{jax.tree_util.keystr(path)} is {leaf!r:.60} ({type(leaf).__name__}), "
        "which has no shape; give an array, a number or jax.ShapeDtypeStruct, or name it in "
        "static_argnums"
        for name, arg in [*named, *kwargs.items()]
        for path, leaf in jax.tree_util.tree_flatten_with_path(arg)[0]
        if not isinstance(leaf, int | float | complex)
        and not (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
    ]
    if faults:
        try:
            raise_faults("inspect", faults)
        except ValueError as error:
            raise TypeError(str(error)) from None


def refuse_with_lowered(args: Sequence, kwargs: Mapping | None, options: Mapping) -> None:
    """Refuses arguments and options beside a lowered function."""
    if args or kwargs or options:
        raise ValueError(
            "inspect: a lowered function has its arguments and options already; give it alone"
        )


def check_program_mesh(lowered: jax.stages.Lowered, mesh: Mesh | None, title: str) -> None:
    """Refuses a mesh that is none of those which the program's shardings are over."""
    if mesh is None:
        return
    module: Any = lowered.compiler_ir()
    of_program = [
        axes
        for one in module.body.operations
        if one.operation.name == "sdy.mesh"
        for axes in sdy_meshes(str(one))
    ]
    if of_program and list(mesh.shape.items()) not in [list(axes.items()) for axes in of_program]:
        meshes = " and ".join(dict.fromkeys(map(describe_mesh, of_program)))
        raise ValueError(
            f"inspect: the mesh is {describe_mesh(dict(mesh.shape))}, but {title or 'the program'} "
            f"is annotated over {meshes}; give the mesh of its annotations, or annotate over this "
            "one"
        )


@contextmanager
def told_when_too_large(title: str, mesh: Mesh | None) -> Iterator[None]:
    """Makes of the compiler's failure for lack of memory one that says what was needed where.

    Raises:
      TooLargeError: The program does not fit on a device.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, TooLargeError) as error:
        first = str(error).partition("\n")[0]
        if not first.startswith("RESOURCE_EXHAUSTED"):
            raise
        needed, limit = needed_and_limit(first) or (None, None)
        raise TooLargeError(
            _too_large(title, mesh, first),
            needed=needed,
            limit=limit,
            pieces=getattr(error, "pieces", ()),
        ) from error


def _too_large(title: str, mesh: Mesh | None, said: str) -> str:
    where = "a device"
    if mesh is not None:
        devices = plural(mesh.size, f"{mesh.devices.flat[0].device_kind} device")
        where = f"a device of mesh {describe_mesh(dict(mesh.shape))} ({devices})"
    found = _NEEDED.search(said)
    why = (
        f"{found[1]} need {found[2]}, its {found[3]} has {found[4]}"
        if found
        else said.removeprefix("RESOURCE_EXHAUSTED: ")
    )
    return (
        f"inspect: {title or 'the program'} does not fit on {where}: {why}; split more of it, "
        "recompute with jax.checkpoint, or take more devices"
    )
