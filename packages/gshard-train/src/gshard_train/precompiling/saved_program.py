"""A compiled training step in a file, and the step again on a machine like the one it is for.

The file is a zip archive: `header.json` says what was compiled by what for which devices, and
`executable` is JAX's own form of it. A step is taken from a file only where the run, traced anew,
is the very program that was compiled; tracing takes seconds where compiling takes minutes.

JAX's form is a pickle, so a file can run anything when it is loaded: take none from strangers.
"""

import dataclasses
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable
from jax.sharding import Mesh

from gshard_train.errors import UserError
from gshard_train.precompiling.program_header import (
    AGAIN,
    Header,
    changes,
    faults,
    header_of,
    program_hash,
)

FORMAT = "gshard-train compiled step 1"
_HEADER, _EXECUTABLE = "header.json", "executable"


@dataclasses.dataclass(frozen=True)
class LoadedStep:
    """A step out of a file; see `step.Step`."""

    compiled: jax.stages.Compiled
    lowered: jax.stages.Lowered

    def __call__(self, state: Any, batch: Any, /) -> Any:
        """Makes the step."""
        return self.compiled(state, batch)

    def lower(self, state: Any, batch: Any, /) -> jax.stages.Lowered:
        """What was compiled."""
        return self.lowered


def save(
    path: str | Path,
    compiled: jax.stages.Compiled,
    lowered: jax.stages.Lowered,
    *,
    mesh: Mesh,
    config: str,
) -> None:
    """Writes a compiled step, whole or not at all.

    Args:
      path: of the file, which is replaced.
      compiled: the step.
      lowered: what it was compiled from.
      mesh: its devices.
      config: the effective configuration, to say later what is different.

    Raises:
      OSError: it cannot be written.
    """
    executable, _, out_tree = serialize_executable.serialize(compiled)
    _, metrics = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
    header = header_of(lowered, mesh=mesh, metrics=sorted(metrics), config=config)
    form = {"format": FORMAT, **dataclasses.asdict(header)}
    path = Path(path)
    beside = path.with_name(f".{path.name}.partial")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(_HEADER, json.dumps(form, indent=1))
            archive.writestr(_EXECUTABLE, executable)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check(path: str | Path, mesh: Mesh) -> None:
    """Whether a file's program is for these devices and this software; reads its header alone.

    Raises:
      UserError: with everything that is another.
    """
    if found := list(faults(_read_header(Path(path)), mesh)):
        raise UserError(*(f"program={str(path)!r} {fault}" for fault in found))


def load(
    path: str | Path,
    lowered: jax.stages.Lowered,
    arguments: tuple[Any, Any],
    *,
    mesh: Mesh,
    config: str = "",
) -> LoadedStep:
    """The step out of a file.

    Args:
      path: of the file.
      lowered: the run's own step.
      arguments: state and batch, or their shapes.
      mesh: the run's devices.
      config: its effective configuration, to say what is different.

    Raises:
      UserError: the file is none, is damaged, or holds the program of another run, machine or
        version.
    """
    path = Path(path)
    check(path, mesh)
    header = _read_header(path)
    if header.program != program_hash(lowered):
        first = (
            f"program={str(path)!r} is the step of another run than this one: what was traced here "
            f"is not what was compiled; {AGAIN}"
        )
        raise UserError("\n".join([first, *changes(header, config)]))
    in_tree = jax.tree.structure((arguments, {}))
    out_tree = jax.tree.structure((arguments[0], dict.fromkeys(header.metrics, 0)))
    devices = list(mesh.devices.flat)
    executable = _read(path, _EXECUTABLE)
    try:
        compiled = serialize_executable.deserialize_and_load(
            executable, in_tree, out_tree, backend=devices[0].client, execution_devices=devices
        )
    except Exception as error:  # JAX passes on whatever the runtime raises
        why = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"program={str(path)!r} is refused by the runtime here "
            f"({type(error).__name__}: {why}); {AGAIN}"
        ) from error
    return LoadedStep(compiled, lowered)


def _read_header(path: Path) -> Header:
    text = _read(path, _HEADER)
    try:
        form = json.loads(text)
        if form.pop("format", None) == FORMAT:
            return Header(**form)
    except (ValueError, TypeError):
        pass
    raise UserError(
        f"program={str(path)!r} is no compiled step that this gshard-train can read; {AGAIN}"
    )


def _read(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise UserError(
            f"program={str(path)!r} is damaged or no compiled step ({error}); {AGAIN}"
        ) from error
    except OSError as error:
        raise UserError(
            f"program={str(path)!r} cannot be read ({error.strerror or error}); give a file that "
            "gshard-precompile --save_program wrote, or None"
        ) from error
