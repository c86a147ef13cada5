"""One mixture-of-experts block, ours and MaxText's, compiled for the same TPUs that are not there.

    tools/with_python bench_moe_tpu_maxtext.py [--topologies A,B] [--rows A,B] [--json FILE]

Prints a table for each topology; the last line is one JSON object. The block is the paper's: M
1024, 2048 tokens, one group and one expert per core, two experts per token, 2S/E slots, parameters
in float32 and activations in bfloat16; forward and backward, each with its own shardings on a mesh
with an expert axis. Both have gated experts of 2/3 of the paper's width 8192, so that they compute
the same; eight virtual CPU devices show that they do before anything is compared. `ours-full` has
what a trainer needs beside that: mask, coin, losses, statistics.

Nothing runs: milliseconds are estimates, floors both. The inspector's have the time on the
interconnect, the compiler's (its `optimal_seconds`) have not; both charge a gather with its bytes,
and only the compiler's charge scatters, of which MaxText has two, by the row. Custom kernels
(megablox, ragged_dot) are in neither: their rows tell memory and collectives, and no time.

MaxText has to be installed beside ours, with JAX of the same TPU compiler, and needs Python 3.12:

    uv venv --python 3.12 peers
    uv pip install --python peers/bin/python 'jax[tpu]==0.11.2' aqtp drjax grain huggingface_hub \
        jinja2 omegaconf orbax-checkpoint pathwaysutils pillow pydantic qwix tokamax transformers \
        -e packages/gshard-annotate -e packages/gshard-moe
    uv pip install --python peers/bin/python --no-deps maxtext==0.2.5
    PATH=$PWD/peers/bin:$PATH tools/with_python bench_moe_tpu_maxtext.py

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import pathlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx

import bench_moe_maxtext
import bench_moe_tpu
from bench_moe_layers import Point
from bench_moe_maxtext import module
from bench_moe_tpu import Block
from gshard_annotate import make_mesh, topology_devices
from gshard_moe import TopK

TOPOLOGIES = ("v3:4x4", "v3:8x8", "v5p:4x4x8")
WIDTH = 43 * 128  # nearest to 2/3 of the paper's 8192 that a TPU need not pad
TOLERANCE = 1e-5  # of the largest gradient of a tensor
_VIRTUAL = 8
_CHECKED = Block(tokens=12, embed=8, mlp=16, gated=True, dtype=jnp.float32, slots_per_token=8.0)

_SPARSE = {"sparse_matmul": True, "megablox": True, "capacity_factor": -1.0}
# MaxText's settings by row; none for ours.
_MAXTEXT: dict[str, dict[str, Any]] = {
    "maxtext": {},
    "maxtext-exchanged": {"moe_dispatch_no_expert_sharding": True},
    "maxtext-megablox": _SPARSE,
    "maxtext-megablox-limited": {**_SPARSE, "ragged_buffer_factor": 1.0},
    "maxtext-ragged_dot": {**_SPARSE, "megablox": False},
}
_OURS: dict[str, dict[str, Any]] = {
    "ours": {"router": TopK(2, "choose_then_softmax"), "bare": True, "masked": False},
    "ours-full": {},
    "ours-einsum": {"dispatch": "einsum"},
    "ours-sorted": {"dispatch": "sorted"},
}
_OURS["ours-einsum"] |= _OURS["ours"]
_OURS["ours-sorted"] |= _OURS["ours"]
ROWS = (*_OURS, *_MAXTEXT)


def main(arguments: list[str] | None = None) -> None:
    """Compares what was asked for, prints it, and closes with the JSON."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name, what in (("maxtext", "MaxText"), ("libtpu", "the TPU compiler")):
        if importlib.util.find_spec(name) is None:
            parser.error(f"{what} is not installed in this Python; see --help for the commands")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", _VIRTUAL)
    warnings.filterwarnings("ignore", "`with mesh:` context manager")  # MaxText's own way
    try:
        machines = {name: topology_devices(name) for name in options.topologies}
    except ValueError as error:
        parser.error(str(error))
    found: dict[str, Any] = {"difference": difference()}
    print(
        f"{_VIRTUAL} virtual CPU devices, float32: gradients differ by {found['difference']:.1g}"
        " of the largest of a tensor",
        flush=True,
    )
    if found["difference"] > TOLERANCE:
        parser.exit(1, f"they do not compute the same (allowed: {TOLERANCE:g})\n")
    for name, devices in machines.items():
        found[name] = _compare(name, devices, options.rows)
    text = json.dumps(found)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)


def difference() -> float:
    """The largest difference between gradients of the same block, over the largest of its tensor.

    In float32 on virtual CPU devices, each sharded as for a TPU. Every expert has a slot for every
    token, since the two do not drop the same ones: MaxText gives slots token by token, the paper
    to all first choices before all second ones.
    """
    mesh = make_mesh({"data": 1, "expert": -1})
    ours, shapes, x, mask, _ = bench_moe_tpu.layer_program(mesh, block=_CHECKED, **_OURS["ours"])
    params = {name: _draw(n, one) for n, (name, one) in enumerate(sorted(shapes.items()))}
    x, mask, key = _draw(len(params), x), jnp.ones(mask.shape, bool), jax.random.key(0)
    expected, _ = bench_moe_tpu.gradient(ours)(params, x, mask, key)
    settings = {"hardware": "cpu", "dtype": "float32", "capacity_factor": _VIRTUAL / 2}
    mesh, rules, theirs, _, _, rest = maxtext_program(jax.devices(), _CHECKED, **settings)
    rest = jax.tree.map(lambda one: _zeros(one, key), rest)
    with around(mesh, rules):
        found, _ = bench_moe_tpu.gradient(theirs)(params, x, rest)
    differences = jax.tree.map(lambda a, b: np.abs(a - b).max() / np.abs(a).max(), expected, found)
    return float(max(jax.tree.leaves(differences)))


def maxtext_program(devices: list[Any], block: Block, **settings: Any) -> tuple[Any, ...]:
    """MaxText's mesh and rules, the loss of its layer, and the arguments of that.

    Its parameters have our names, and shardings by its rules.
    """
    sizes = Point(len(devices), block.tokens, len(devices), block.embed, block.mlp)
    where = {"ici_expert_parallelism": len(devices), "ici_fsdp_parallelism": 1}
    where |= {"internal_compile": True, "internal_compile_num_devices": len(devices)}
    where |= {"per_device_batch_size": 1, "load_balance_loss_weight": 0.0}
    config = bench_moe_maxtext.config_of(sizes, block.mlp, **where, **settings)
    mesh = bench_moe_maxtext.mesh_of(config, devices)
    rules = config.logical_axis_rules

    def sharding(names: tuple[str | None, ...]) -> jax.NamedSharding:
        return module("maxtext.utils.sharding").create_sharding(mesh, names, rules=rules)

    with around(mesh, rules):
        shapes = nnx.eval_shape(lambda: bench_moe_maxtext.layer_of(config, mesh))
    graph, state, rest = nnx.split(shapes, nnx.Param, ...)
    given: dict[str, Any] = {"router": state["gate"]["kernel"], "gate": state["wi_0"]}
    given |= {"wi": state["wi_1"], "wo": state["wo"]}

    def loss(params: dict[str, jax.Array], x: jax.Array, rest: Any) -> tuple[jax.Array, Any]:
        named: dict[str, Any] = {"gate": {"kernel": params["router"]}, "wo": params["wo"]}
        named |= {"wi_0": params["gate"], "wi_1": params["wi"]}
        y, _, _ = nnx.merge(graph, named, rest)(x)
        return bench_moe_tpu.mean_square(y), ()

    shape = bench_moe_tpu.shape
    params = {
        name: shape(one.get_value().shape, config.weight_dtype, sharding(one.out_sharding))
        for name, one in given.items()
    }
    batch = sharding(("activation_batch", "activation_length", "activation_embed"))
    x = shape((len(devices), block.tokens, block.embed), block.dtype, batch)
    rest = jax.tree.map(lambda one: shape(one.shape, one.dtype, sharding(())), rest)
    return mesh, rules, loss, params, x, rest


@contextlib.contextmanager
def around(mesh: jax.sharding.Mesh, rules: Any) -> Iterator[None]:
    """What MaxText's own trainer enters around a step."""
    with jax.set_mesh(mesh), mesh, nn.logical_axis_rules(rules):
        yield


def _compare(topology: str, devices: list[Any], rows: list[str]) -> dict[str, Any]:
    """Figures of each row, printed as they come; of one that does not compile what it said."""
    print(f"\n{topology}: {len(devices)} {devices[0].device_kind}, as many experts and groups")
    print(
        f"{'':25}{'GFLOP':>8}{'inspector ms':>14}{'/ours':>7}{'compiler ms':>13}{'/ours':>7}"
        f"{'temp MiB':>10}{'/ours':>7}{'CPU s':>7}  collectives, bytes on a core"
    )
    found: dict[str, Any] = {}
    for name in rows:
        try:
            found[name] = bench_moe_tpu.figures(*_lowered(name, devices))
        except Exception as error:  # whatever JAX, MaxText and the TPU compiler raise
            found[name] = {"refused": _reason(error)}
            print(f"{name:25} does not compile: {found[name]['refused']}", flush=True)
            continue
        print(_line(name, found[name], found.get("ours", {})), flush=True)
    return found


def _lowered(row: str, devices: list[Any]) -> tuple[jax.stages.Lowered, jax.sharding.Mesh]:
    block = Block(mlp=WIDTH, gated=True)
    if row in _OURS:
        mesh = make_mesh({"data": 1, "expert": -1}, devices=devices)
        return bench_moe_tpu.layer_gradient(mesh, block=block, **_OURS[row]), mesh
    settings = {"hardware": "tpu", "dtype": "bfloat16", **_MAXTEXT[row]}
    mesh, rules, *program = maxtext_program(devices, block, **settings)
    with around(mesh, rules):
        return bench_moe_tpu.lower(*program), mesh


def _line(name: str, row: dict[str, Any], ours: dict[str, Any]) -> str:
    cells = [f"{name:25}{row['gflop']:8.0f}"]
    scales = {"inspector_seconds": (1e3, 14), "optimal_seconds": (1e3, 13), "temp_mb": (1, 10)}
    for key, (scale, width) in scales.items():
        if row["opaque"] and key != "temp_mb":
            cells.append(f"{'-':>{width}}{'-':>7}")
            continue
        ratio = f"{row[key] / ours[key]:.2f}" if ours else ""
        cells.append(f"{scale * row[key]:{width}.2f}{ratio:>7}")
    moved = "; ".join(f"{kind} {_counted(sizes)}" for kind, sizes in row["collectives"].items())
    kernels = f" [{'; '.join(row['opaque'])}]" if row["opaque"] else ""
    return f"{''.join(cells)}{row['compile_cpu_seconds']:7.1f}  {moved}{kernels}"


def _counted(sizes: list[int]) -> str:
    """The larger exchanges; those of a few scalars say nothing."""
    large = [size for size in sizes if size >= 2**16]
    each = [f"{large.count(size)} x {size:,}" for size in sorted(set(large), reverse=True)]
    return ", ".join(each) or "small"


def _reason(error: Exception) -> str:
    """What is told of it: of the TPU compiler's long messages the part that says why."""
    words = " ".join(str(error).split())
    told = re.search(r"E\d{4}: \w+(: [\w ]+)?|Ran out of memory[^,;]{0,80}", words)
    return f"{type(error).__name__}: {told[0] if told else words[:160]}"


def _draw(seed: int, like: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), like.shape, like.dtype)


def _zeros(like: jax.ShapeDtypeStruct, key: jax.Array) -> jax.Array:
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    return key if is_key else jnp.zeros(like.shape, like.dtype)


def _names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        if unknown := [name for name in names if name not in allowed]:
            raise argparse.ArgumentTypeError(
                f"there is no {', '.join(unknown)}; give some of {', '.join(allowed)}"
            )
        return names

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench_moe_tpu_maxtext.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--topologies",
        type=lambda text: text.split(","),
        default=list(TOPOLOGIES),
        metavar="A,B",
        help=f"by default {','.join(TOPOLOGIES)}; also v3:32x32, v6e:8x16 and others",
    )
    add("--rows", type=_names(ROWS), default=list(ROWS), metavar="A,B", help="by default all")
    add("--json", type=pathlib.Path, metavar="FILE", help="writes the last line here as well")
    return parser


if __name__ == "__main__":
    main()
