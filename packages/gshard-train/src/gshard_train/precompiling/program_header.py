"""What a file of a compiled step says of it, and whether that is true here."""

import dataclasses
import difflib
import hashlib
import importlib.metadata
from collections.abc import Iterator

import jax
from jax.sharding import Mesh

from gshard_train.precompiling.sources import compiler_flags

AGAIN = "compile it again with gshard-precompile --save_program"
_SHOWN_CHANGES = 8
_OF_NO_PROGRAM = ("MODEL_DIR", "MIXTURE_OR_TASK_NAME", "MIXTURE_OR_TASK_MODULE")


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file says of its program.

    Attributes:
      made_by: versions of jax, jaxlib and, for TPU, libtpu.
      flags: of the compiler, by the variable of the environment that sets them.
      device_kind: as JAX names it.
      mesh: size of each axis.
      devices: those of the mesh in its order, as `places` tells them.
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
    flags: dict[str, str] = dataclasses.field(default_factory=dict)


def header_of(
    lowered: jax.stages.Lowered, *, mesh: Mesh, metrics: list[str], config: str
) -> Header:
    """What is said of a step that is compiled here and now."""
    return Header(
        made_by=versions(mesh),
        device_kind=mesh.devices.flat[0].device_kind,
        mesh=dict(mesh.shape),
        devices=places(mesh),
        program=program_hash(lowered),
        metrics=metrics,
        config=config,
        flags=compiler_flags(),
    )


def faults(header: Header, mesh: Mesh) -> Iterator[str]:
    """What of the software and the devices is another here."""
    yield from _version_faults(header, mesh)
    yield from _device_faults(header, mesh)


def changes(header: Header, config: str) -> Iterator[str]:
    """The settings that are otherwise than in the header's configuration, as lines of a diff."""
    before, now = _settings(header.config), _settings(config)
    found = [
        f"  {line[0]} {line[1:]}"
        for line in difflib.unified_diff(before, now, lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    yield from found[:_SHOWN_CHANGES] if config else []


def versions(mesh: Mesh) -> dict[str, str]:
    """Of what compiles for the mesh's devices."""
    names = ["jax", "jaxlib"]
    if mesh.devices.flat[0].platform == "tpu":
        names.append("libtpu")
    return {name: _version(name) for name in names}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def places(mesh: Mesh) -> list[list[int]]:
    """Each device of the mesh: its id and, on TPU, its chip's place and its core."""
    return [
        [device.id, *getattr(device, "coords", ()), getattr(device, "core_on_chip", 0)]
        for device in mesh.devices.flat
    ]


def program_hash(lowered: jax.stages.Lowered) -> str:
    """Of what was traced."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


def _version_faults(header: Header, mesh: Mesh) -> Iterator[str]:
    for name, version in versions(mesh).items():
        if (made := header.made_by.get(name, "none")) != version:
            yield f"was compiled by {name} {made} and here is {version}; {AGAIN}"
    now = compiler_flags()
    for name in sorted({*header.flags, *now}):
        made, here = header.flags.get(name, ""), now.get(name, "")
        if made != here:
            yield f"was compiled with {name}={made!r} and here is {here!r}; set it so, or {AGAIN}"


def _device_faults(header: Header, mesh: Mesh) -> Iterator[str]:
    kind = mesh.devices.flat[0].device_kind
    count = len(header.devices)
    if (header.device_kind, count) != (kind, mesh.size):
        yield (
            f"was compiled for {count} {header.device_kind} devices and here are {mesh.size} "
            f"{kind}; {AGAIN} for this machine"
        )
    elif header.mesh != dict(mesh.shape):
        yield f"was compiled for the mesh {header.mesh} and here is {dict(mesh.shape)}; {AGAIN}"
    elif header.devices != (here := places(mesh)):
        pairs = zip(header.devices, here, strict=True)
        index, there = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        yield (
            f"was compiled for other places of the mesh's devices: number {index} was {there[0]} "
            f"(id, place, core) and is {there[1]} here; {AGAIN}, or set make_mesh.device_order"
        )


def _settings(config: str) -> list[str]:
    lines = [line.strip() for line in config.splitlines()]
    return [line for line in lines if line and line.partition(" ")[0] not in _OF_NO_PROGRAM]
