"""The block of `bench_moe_tpu_maxtext.py` as ours and as MaxText's, for absent TPUs.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
from gshard_annotate import make_mesh
from gshard_moe import TopK

WIDTH = 43 * 128  # nearest to 2/3 of the paper's 8192 that a TPU need not pad
TOLERANCE = 1e-5  # of the largest gradient of a tensor
VIRTUAL = 8
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
    settings = {"hardware": "cpu", "dtype": "float32", "capacity_factor": VIRTUAL / 2}
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


def lowered(row: str, devices: list[Any]) -> tuple[jax.stages.Lowered, jax.sharding.Mesh]:
    """The program of a row, forward and backward, and its mesh."""
    block = Block(mlp=WIDTH, gated=True)
    if row in _OURS:
        mesh = make_mesh({"data": 1, "expert": -1}, devices=devices)
        return bench_moe_tpu.layer_gradient(mesh, block=block, **_OURS[row]), mesh
    settings = {"hardware": "tpu", "dtype": "bfloat16", **_MAXTEXT[row]}
    mesh, rules, *program = maxtext_program(devices, block, **settings)
    with around(mesh, rules):
        return bench_moe_tpu.lower(*program), mesh


def _draw(seed: int, like: jax.ShapeDtypeStruct) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), like.shape, like.dtype)


def _zeros(like: jax.ShapeDtypeStruct, key: jax.Array) -> jax.Array:
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    return key if is_key else jnp.zeros(like.shape, like.dtype)
