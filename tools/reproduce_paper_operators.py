"""Table 4 from compiled programs: how the work of single operators grows with the devices.

    python tools/reproduce_paper_operators.py 32,128,512,2048

Prints one line of JSON: {operator: {D: {flops, bytes, collectives, seconds}}}, all of one device.
A process of its own, since only one process at a time may use the TPU compiler.

Sizes letters stand for in the paper's table: dimensions that are split grow with the devices, the
others stay.
"""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gshard_annotate import make_mesh, split, topology_devices
from gshard_annotate.inspector import inspect_lowered

# Squares of chips, so that a torus's side is the root of half the devices.
TOPOLOGIES = {32: "v3:4x4", 128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}
_AXIS = "x"


class Operator(NamedTuple):
    """A function, the shapes of its arguments, and how they and the result are split.

    Each entry of `splits` belongs to an argument, the last one to the result: the dimension that
    is split, or None.
    """

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    splits: tuple[int | None, ...]


def operators(num_devices: int) -> dict[str, Operator]:
    """The rows of `paper_figures.OPERATORS` on so many devices."""
    wide = 1024 * num_devices
    some = 128 * num_devices
    tokens, slots = 2048, 2 * 2048 // num_devices
    groups = experts = num_devices
    return {
        "add, A split": Operator(jnp.add, ((wide, 1024), (wide, 1024)), (0, 0, 0)),
        "matmul AB,BC->AC, B split": Operator(
            jnp.matmul, ((1024, wide), (wide, 1024)), (1, 0, None)
        ),
        "matmul AB,BC->AC, A split": Operator(
            jnp.matmul, ((wide, 1024), (1024, 1024)), (0, None, 0)
        ),
        "matmul AB,BC->AC, A and B split": Operator(
            jnp.matmul, ((some, some), (some, 128)), (0, 0, 0)
        ),
        "matmul AB,BC->AC, A and C split": Operator(
            jnp.matmul, ((some, 1024), (1024, some)), (0, 1, 0)
        ),
        "reduce AB->A, A split": Operator(lambda x: x.sum(1), ((wide, 1024),), (0, 0)),
        "reduce AB->B, A split": Operator(lambda x: x.sum(0), ((wide, 1024),), (0, None)),
        "dispatch GSEC,GSM->EGCM, G to E": Operator(
            _dispatch, ((groups, tokens, experts, slots), (groups, tokens, 1024)), (0, 0, 0)
        ),
        "convolution, space split": Operator(
            _convolution, ((8, 32 * num_devices, 32, 128), (3, 3, 128, 128)), (1, None, 1)
        ),
    }


def figures(operator: Operator, mesh: Mesh) -> dict[str, Any]:
    """Work and exchanges of one device; bytes of each kind of collective, seconds by the torus."""
    *of_arguments, of_result = (_sharding(mesh, dim) for dim in operator.splits)
    arguments = [
        jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding)
        for shape, sharding in zip(operator.shapes, of_arguments, strict=True)
    ]
    with jax.set_mesh(mesh):
        traced = jax.jit(operator.function, out_shardings=of_result).trace(*arguments)
    _, report = inspect_lowered(traced.lower(lowering_platforms=("tpu",)), mesh=mesh)
    moved: dict[str, int] = collections.defaultdict(int)
    for one in report.exchanges:
        moved[one.collective.kind] += one.collective.bytes * one.times
    return {
        "flops": report.cost.flops,
        "bytes": report.cost.bytes_accessed,
        "collectives": dict(moved),
        "seconds": report.cost.collective_seconds,
    }


def _dispatch(mask_GSEC: jax.Array, x_GSM: jax.Array) -> jax.Array:
    x_EGCM = jnp.einsum("GSEC,GSM->EGCM", mask_GSEC, x_GSM)
    return split(split(x_EGCM, 1, mesh_axis=_AXIS), 0, mesh_axis=_AXIS)


def _convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _sharding(mesh: Mesh, dim: int | None) -> NamedSharding:
    spec = PartitionSpec() if dim is None else PartitionSpec(*[None] * dim, _AXIS)
    return NamedSharding(mesh, spec)


def main() -> None:
    """Compiles every operator on each number of devices asked for."""
    jax.config.update("jax_platforms", "cpu")
    found: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for number in map(int, sys.argv[1].split(",")):
        mesh = make_mesh({_AXIS: number}, devices=topology_devices(TOPOLOGIES[number]))
        for name, operator in operators(number).items():
            print(f"  {name} on {number:,} cores", file=sys.stderr, flush=True)
            found[name][str(number)] = figures(operator, mesh)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
