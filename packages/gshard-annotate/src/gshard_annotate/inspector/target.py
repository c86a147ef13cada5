"""What a command line names: a function, its arguments and a mesh."""

import importlib
import inspect
import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from gshard_annotate.checks import did_you_mean
from gshard_annotate.inspector.quantities import plural

MOST_CPU_DEVICES = 4096
_SHAPE = re.compile(r"(\w+)\[([\d,\s]*)\]")
_DTYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"s{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (4, 8, 16, 32, 64)},
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "pred": "bool",
}


class WrongInputError(Exception):
    """What is wrong with the command line, as one sentence."""


def parse_mesh(text: str) -> dict[str, int]:
    """The axes of `data=2,expert=4`."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(-1|\d+)\s*", part)
        if not found:
            raise WrongInputError(
                f"--mesh {text}: '{part}' is no axis; write it as data=2,expert=4"
            )
        if found[1] in axes:
            raise WrongInputError(f"--mesh {text}: axis '{found[1]}' is there twice; name it once")
        axes[found[1]] = int(found[2])
    return axes


def parse_shapes(text: str) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The arrays of `f32[8,16] bf16[3,4]`, which only have a shape."""
    rest = _SHAPE.sub("", text)
    found = _SHAPE.findall(text)
    if rest.strip(" ,") or not found:
        raise WrongInputError(
            f"--shapes '{text}' is no list of shapes; write it as 'f32[8,16] bf16[3,4]'"
        )
    unknown = [dtype for dtype, _ in found if dtype not in _DTYPES]
    if unknown:
        known = did_you_mean(unknown[0], _DTYPES) or f"; known are {', '.join(_DTYPES)}"
        raise WrongInputError(f"--shapes '{text}': no type is called '{unknown[0]}'{known}")
    return tuple(
        jax.ShapeDtypeStruct(
            tuple(int(size) for size in dims.split(",") if size.strip()),
            jnp.dtype(_DTYPES[dtype]),
        )
        for dtype, dims in found
    )


def load(name: str, option: str = "") -> Any:
    """What `module:attribute.attribute` names; the current folder is looked into first.

    Args:
      name: The name.
      option: The option that gave it, for messages.
    """
    given = f"{option} {name}".strip()
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise WrongInputError(f"{given}: write it as module:function, as in model:forward")
    found = _import(module_name, given)
    for position, attribute in enumerate(path.split(".")):
        owner = ".".join([module_name, *path.split(".")[:position]])
        if not hasattr(found, attribute):
            near = did_you_mean(attribute, [one for one in dir(found) if one[0] != "_"])
            raise WrongInputError(f"{given}: {owner} has no '{attribute}'{near}")
        found = getattr(found, attribute)
    return found


def load_function(name: str) -> Callable:
    """The function that is to be looked at."""
    found = load(name)
    if not callable(found):
        raise WrongInputError(f"{name} is of type {type(found).__name__}; name a function")
    return found


def load_arguments(name: str, module: str, mesh: Mesh) -> tuple:
    """The tuple that `name` is or returns; what is not a tuple is the one argument.

    Args:
      name: `module:name`, or a name in `module`.
      module: Where the function is.
      mesh: What a function with a parameter is called with.
    """
    found = load(name if ":" in name else f"{module}:{name}", "--args")
    if callable(found):
        try:
            found = found(mesh) if _parameters(found) else found()
        except Exception as error:
            raise WrongInputError(f"--args {name} raised {said(error)}") from error
    return found if isinstance(found, tuple) else (found,)


def check_arguments(name: str, function: Callable, arguments: tuple) -> None:
    """Refuses arguments that the function does not take."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        how = "" if arguments else "; give --shapes 'f32[8,16] ...' or --args NAME"
        raise WrongInputError(
            f"{name}{signature} with {plural(len(arguments), 'argument')}: {error}{how}"
        ) from None


def check_chip(name: str) -> None:
    """Refuses a chip without figures."""
    from gshard_annotate.inspector.chips import find_chip

    try:
        find_chip(name)
    except ValueError as error:
        message = str(error).removeprefix("inspect: ").partition("; or give a Chip")[0]
        raise WrongInputError(f"--chip: {message}") from error


def cpu_mesh(axes: dict[str, int]) -> Mesh:
    """A mesh of as many virtual CPU devices as it needs."""
    from gshard_annotate.mesh import make_mesh

    count = math.prod(axes.values())
    if not 1 <= count <= MOST_CPU_DEVICES or -1 in axes.values():
        raise WrongInputError(
            f"--mesh {_spelt(axes)} on virtual CPU devices: give every axis a size of 1 or more, "
            f"{MOST_CPU_DEVICES:,} devices at most in all, or a machine with --topology"
        )
    return _made(axes, lambda: make_mesh(axes, cpu_devices=count))


def topology_mesh(axes: dict[str, int], topology: str) -> Mesh:
    """A mesh over the devices of a TPU that is not there."""
    from gshard_annotate.mesh import make_mesh, topology_devices

    # What surrounds the program (constants, say) stays off any accelerator that is present.
    jax.config.update("jax_platforms", "cpu")
    try:
        devices = topology_devices(topology)
    except ValueError as error:
        message = " ".join(str(error).removeprefix("topology_devices: ").split())
        raise WrongInputError(f"--topology: {message}") from error
    sizes = list(axes.values())
    product = math.prod(size for size in sizes if size != -1)
    left = len(devices) % product if product and sizes.count(-1) == 1 else len(devices) - product
    if left or sizes.count(-1) > 1:
        raise WrongInputError(
            f"--mesh {_spelt(axes)}: {topology} has {len(devices):,} devices; "
            "the sizes must multiply to that, and one may be -1: what is left"
        )
    return _made(axes, lambda: make_mesh(axes, devices=devices))


def said(error: BaseException, most: int = 600) -> str:
    """An exception as one line."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _import(module_name: str, given: str) -> Any:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise WrongInputError(
                f"{given}: there is no module '{error.name}'; the current folder and installed "
                "packages are looked into"
            ) from None
        raise WrongInputError(f"{given}: importing {module_name} raised {said(error)}") from error
    except (Exception, SystemExit) as error:
        raise WrongInputError(f"{given}: importing {module_name} raised {said(error)}") from error


def _parameters(function: Callable) -> int:
    try:
        return len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 0


def _made(axes: dict[str, int], make: Callable[[], Mesh]) -> Mesh:
    try:
        return make()
    except (RuntimeError, ValueError) as error:
        message = str(error).removeprefix("make_mesh: ")
        raise WrongInputError(f"--mesh {_spelt(axes)}: {' '.join(message.split())}") from error


def _spelt(axes: dict[str, int]) -> str:
    return ",".join(f"{axis}={size}" for axis, size in axes.items())
