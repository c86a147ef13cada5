"""A compiled training step in a file, and the step again on a machine like the one it is for.

The file is a zip archive: `header.json` says what was compiled by what for which devices, and
`executable` is JAX's own form of it. A step is taken from a file only where the run, traced anew,
is the very program that was compiled; tracing takes seconds where compiling takes minutes.

JAX's form is a pickle, so a file can run anything when it is loaded: take none from strangers.
"""

import dataclasses
import difflib
import hashlib
import importlib.metadata
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable
from jax.sharding import Mesh

from gshard_train.errors import UserError

FORMAT = "gshard-train compiled step 1"
_HEADER, _EXECUTABLE = "header.json", "executable"
_SHOWN_CHANGES = 8
_OF_NO_PROGRAM = ("MODEL_DIR", "MIXTURE_OR_TASK_NAME", "MIXTURE_OR_TASK_MODULE")
_AGAIN = "compile it again with gshard-precompile --save_program"


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of its program.

    Attributes:
      made_by: versions of jax, jaxlib and, for TPU, libtpu.
      device_kind: as JAX names it.
      mesh: size of each axis.
      devices: those of the mesh in its order, as `_places` tells them.
      program: a hash of the lowered program.
      metrics: names of what a step gives beside the state.
      config: the effective configuration.
    """

    made_by: dict[str, str]
    device_kind: str
    mesh: dict[str, int]
    devices: list[list[int]]
    program: str
    metrics: list[str]
    config: str


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
    header = Header(
        made_by=_versions(mesh),
        device_kind=mesh.devices.flat[0].device_kind,
        mesh=dict(mesh.shape),
        devices=_places(mesh),
        program=_hash(lowered),
        metrics=sorted(metrics),
        config=config,
    )
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
    header = _read_header(Path(path))
    if faults := [*_version_faults(header, mesh), *_device_faults(header, mesh)]:
        raise UserError(*(f"program={str(path)!r} {fault}" for fault in faults))


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
    if header.program != _hash(lowered):
        raise UserError("\n".join(_other_program(path, header, config)))
    in_tree = jax.tree.structure((arguments, {}))
    out_tree = jax.tree.structure((arguments[0], dict.fromkeys(header.metrics, 0)))
    devices = list(mesh.devices.flat)
    compiled = serialize_executable.deserialize_and_load(
        _read(path, _EXECUTABLE),
        in_tree,
        out_tree,
        backend=devices[0].client,
        execution_devices=devices,
    )
    return LoadedStep(compiled, lowered)


def _versions(mesh: Mesh) -> dict[str, str]:
    names = ["jax", "jaxlib"]
    if mesh.devices.flat[0].platform == "tpu":
        names.append("libtpu")
    return {name: _version(name) for name in names}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _places(mesh: Mesh) -> list[list[int]]:
    """Each device of the mesh: its id and, on TPU, its chip's place and its core."""
    return [
        [device.id, *getattr(device, "coords", ()), getattr(device, "core_on_chip", 0)]
        for device in mesh.devices.flat
    ]


def _hash(lowered: jax.stages.Lowered) -> str:
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


def _read_header(path: Path) -> Header:
    text = _read(path, _HEADER)
    try:
        form = json.loads(text)
        if form.pop("format", None) == FORMAT:
            return Header(**form)
    except (ValueError, TypeError):
        pass
    raise UserError(
        f"program={str(path)!r} is no compiled step that this gshard-train can read; {_AGAIN}"
    )


def _read(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except (zipfile.BadZipFile, KeyError, zlib.error, EOFError) as error:
        raise UserError(
            f"program={str(path)!r} is damaged or no compiled step ({error}); {_AGAIN}"
        ) from error
    except OSError as error:
        raise UserError(
            f"program={str(path)!r} cannot be read ({error.strerror or error}); give a file that "
            "gshard-precompile --save_program wrote, or None"
        ) from error


def _version_faults(header: Header, mesh: Mesh) -> Iterator[str]:
    for name, version in _versions(mesh).items():
        if (made := header.made_by.get(name, "none")) != version:
            yield f"was compiled by {name} {made} and here is {version}; {_AGAIN}"


def _device_faults(header: Header, mesh: Mesh) -> Iterator[str]:
    kind = mesh.devices.flat[0].device_kind
    count = len(header.devices)
    if (header.device_kind, count) != (kind, mesh.size):
        yield (
            f"was compiled for {count} {header.device_kind} devices and here are {mesh.size} "
            f"{kind}; {_AGAIN} for this machine"
        )
    elif header.mesh != dict(mesh.shape):
        yield f"was compiled for the mesh {header.mesh} and here is {dict(mesh.shape)}; {_AGAIN}"
    elif header.devices != (here := _places(mesh)):
        pairs = zip(header.devices, here, strict=True)
        index, there = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        yield (
            f"was compiled for other places of the mesh's devices: number {index} was {there[0]} "
            f"(id, place, core) and is {there[1]} here; {_AGAIN}, or set make_mesh.device_order"
        )


def _other_program(path: Path, header: Header, config: str) -> Iterator[str]:
    yield (
        f"program={str(path)!r} is the step of another run than this one: what was traced here is "
        f"not what was compiled; {_AGAIN}"
    )
    before, now = _settings(header.config), _settings(config)
    changes = [
        f"  {line[0]} {line[1:]}"
        for line in difflib.unified_diff(before, now, lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    yield from changes[:_SHOWN_CHANGES] if config else []


def _settings(config: str) -> list[str]:
    lines = [line.strip() for line in config.splitlines()]
    return [line for line in lines if line and line.partition(" ")[0] not in _OF_NO_PROGRAM]
