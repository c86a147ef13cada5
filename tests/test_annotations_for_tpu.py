"""Annotations compiled by the TPU compiler for machines that are not there.

In a process of its own: the compiler wants its environment set before JAX starts, and two processes
cannot use it at once.
"""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import json
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from gshard_annotate import (
    Rules, annotate, collectives, make_mesh, partial, replicate, rules_scope, shard, split,
    topology_devices,
)

jax.config.update("jax_platforms", "cpu")
devices = topology_devices("v3:4x4")
found = {"devices": len(devices), "kind": devices[0].device_kind}


def kinds(function, *shapes, mesh):
    # Arguments are placed, or the compiler would place them as suits it best.
    here = NamedSharding(mesh, PartitionSpec())
    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=here) for s in shapes]
    lowered = jax.jit(function).trace(*shapes).lower(lowering_platforms=("tpu",))
    return sorted(one.kind for one in collectives(lowered.compile()))


def product(a, b, over):
    a, b = split(a, 1, over), split(b, 0, over)
    return jnp.einsum("ab,bc->ac", a, b, out_sharding=PartitionSpec(None, None, unreduced={over}))


explicit = Mesh(
    make_mesh({"data": 8, "expert": 4}, devices=devices).devices,
    ("data", "expert"),
    axis_types=(AxisType.Explicit,) * 2,
)
with jax.set_mesh(explicit):
    sizes = ((512, 1024), (1024, 256))
    found["partial then replicate"] = kinds(
        lambda a, b: replicate(product(a, b, "expert")), *sizes, mesh=explicit
    )
    found["partial then split"] = kinds(
        lambda a, b: split(product(a, b, "expert"), 0, "expert"), *sizes, mesh=explicit
    )

mesh = make_mesh({"data": 8, "expert": 4}, devices=devices)
rules = Rules((("group", ("data", "expert")), ("expert", "expert"), ("rest", "data")))


def exchange(x):
    with rules_scope(rules, mesh):
        x = annotate(x, None, "group", None)
        return annotate(x, "expert", "rest", None)


found["groups to experts"] = kinds(exchange, (8, 64, 1024), mesh=mesh)
ids = [[[device.id for device in row] for row in mesh.devices]]
found["shard"] = str(
    jax.jit(lambda x: shard(x, ids, mesh=mesh))
    .trace(jax.ShapeDtypeStruct((3, 16, 64), jnp.float32))
    .lower(lowering_platforms=("tpu",)).compile().output_shardings.spec
)
two = topology_devices("v5e:4x4", num_slices=2)
across = make_mesh({"data": 4, "expert": -1}, devices=two, slices={"data": 2})
found["slices"] = [sorted({device.slice_index for device in row}) for row in across.devices]
v4 = topology_devices("v4:2x2x1")
found["v4"] = [len(v4), max(device.core_on_chip for device in v4)]
try:
    make_mesh({"data": 4, "expert": -1}, devices=two)
except ValueError as error:
    found["no slices"] = str(error)
for name in ("v9:4x4", "v3:32x64", "v3:3x5", "v3-2048", "v4:4x4"):
    try:
        topology_devices(name)
    except ValueError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("devices", 32),
        ("kind", "TPU v3"),
        ("partial then replicate", ["all-reduce"]),
        ("partial then split", ["reduce-scatter"]),
        ("groups to experts", ["all-to-all"]),
        ("shard", "P(None, 'data', 'expert')"),
        ("slices", [[0], [0], [1], [1]]),
        ("v4", [4, 0]),
        (
            "no slices",
            "make_mesh: the devices lie on 2 slices, and no axis is said to go over them; give "
            "slices, as {'data': 2}: the part of an axis that goes from slice to slice",
        ),
    ],
)
def test_for_tpu(found, what, expected):
    assert found[what] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("v9:4x4", "there is no kind 'v9' (known: v2:16x16, v3:32x32, "),
        ("v3:32x64", "it has 2,048 chips, and the largest v3 machine has 1,024 (32x32); take a"),
        ("v3:3x5", "since a host has 2x2 chips; near it: v3:2x4 or v3:4x6"),
        ("v3-2048", "machines are named by their sides in chips; did you mean v3:32x32?"),
        ("v4:4x4", "a v4 machine has 3 sides, this has 2: v4:2x2x1, "),
    ],
)
def test_unknown_topologies_are_refused_with_near_ones(found, name, why):
    assert found[name].startswith(f"topology_devices: no TPU topology '{name}': ")
    assert why in found[name]
