"""Prints what the inspector finds for absent TPUs, as one line of JSON; see test_inspector_tpu."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import make_mesh, mesh_split, split
from gshard_annotate.inspector import inspect


def mesh_of(topology):
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    return make_mesh({"data": 2, "expert": 4}, devices=devices)


def placed(mesh, dtype, shape, *spec):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))


def summary(report):
    return {
        "platform": report.platform,
        "chip": report.chip,
        "mesh": report.mesh,
        "memory": vars(report.memory),
        "flops": report.cost.flops,
        "values": [
            {"role": v.role, "name": v.name, "compiled": v.compiled, "times": v.times,
             "note": v.note}
            for v in report.values
        ],
        "exchanges": [
            {"kind": e.collective.kind, "shape": e.collective.shape, "axes": e.mesh_axes,
             "group": e.group_size, "times": e.times, "seconds": e.seconds, "cause": e.cause,
             "surprise": e.surprise, "file": pathlib.Path(e.source.file).name if e.source else ""}
            for e in report.exchanges
        ],
    }  # fmt: skip


def scanned(mesh):
    """Layers whose hidden width is split, and the gradient of a loss."""

    def layer(x, w):
        return split(jax.nn.relu(x @ w["i"]) @ w["o"], 0, "data", mesh=mesh), ()

    def loss(params, x):
        return (jax.lax.scan(layer, x, params)[0] ** 2).sum()

    params = {
        "i": placed(mesh, jnp.float32, (6, 128, 512), None, None, "expert"),
        "o": placed(mesh, jnp.float32, (6, 512, 128), None, "expert"),
    }
    return inspect(jax.value_and_grad(loss), params, placed(mesh, jnp.float32, (256, 128), "data"))


def scattered(mesh):
    """A sum over a split dimension of which each device keeps its part."""

    def product(x, w):
        return split(x @ w, 0, "expert", mesh=mesh)

    x = placed(mesh, jnp.bfloat16, (1024, 2048), None, "expert")
    return inspect(product, x, placed(mesh, jnp.bfloat16, (2048, 1024), "expert"))


def gathered(mesh):
    """Layers whose weights are split over the data as well, gathered one by one."""

    def layer(x, w):
        hidden = mesh_split(jax.nn.relu(x @ w["i"]), [0, 1], ["data", "expert"], mesh=mesh)
        return mesh_split(x + hidden @ w["o"], [0, 1], ["data", "expert"], mesh=mesh), ()

    def loss(params, x):
        return (jax.lax.scan(layer, x, params)[0].astype(jnp.float32) ** 2).mean()

    params = {
        "i": placed(mesh, jnp.bfloat16, (6, 1024, 4096), None, "data", "expert"),
        "o": placed(mesh, jnp.bfloat16, (6, 4096, 1024), None, "expert", "data"),
    }
    x = placed(mesh, jnp.bfloat16, (2048, 1024), "data", "expert")
    return inspect(jax.value_and_grad(loss), params, x)


def too_large(mesh):
    """What is said of a product of all pairs of rows, sorted."""

    def pairs(x):
        return jnp.sort(split(x @ x.T, 0, "data", mesh=mesh), 0)

    try:
        inspect(pairs, jax.ShapeDtypeStruct((400_000, 8), jnp.float32), mesh=mesh)
    except MemoryError as error:
        return str(error)
    return ""


def main():
    v3 = mesh_of("v3:2x2")
    reports = {"scanned": scanned(v3), "scattered": scattered(v3)}
    reports |= {name: gathered(mesh_of(name)) for name in ("v5e:2x4", "v6e:2x4")}
    found: dict[str, object] = {name: summary(report) for name, report in reports.items()}
    found["chips"] = {
        "v3:2x2": reports["scanned"].chip,
        **{name: reports[name].chip for name in ("v5e:2x4", "v6e:2x4")},
    }
    found["too large"] = too_large(v3)
    print(json.dumps(found, default=np.ndarray.tolist))


if __name__ == "__main__":
    main()
