"""One layer on TPUs that are not there: what their compiler makes of it, and what it estimates.

Sizes are the paper's: M 1024, H 8192, 2048 tokens, one group and one expert per core, activations
in bfloat16. `bench_moe.py` compares everything to the same experts with the same four all-to-alls
and nothing else (no router, no dispatch), `bench_moe_tpu_maxtext.py` to MaxText's layer.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from gshard_annotate import (
    DEFAULT_RULES,
    annotate,
    make_mesh,
    rules_scope,
    topology_devices,
    tree_shardings,
)
from gshard_annotate.inspector import inspect_lowered
from gshard_moe import MoELayer, Router, capacity

TOPOLOGIES = {"v3-128": "v3:8x8", "v3-2048": "v3:32x32"}


class Block(NamedTuple):
    """Sizes of a layer with one group and one expert per core."""

    tokens: int = 2048
    embed: int = 1024
    mlp: int = 8192
    gated: bool = False
    dtype: Any = jnp.bfloat16
    slots_per_token: float = 2.0  # the paper's capacity, 2S/E


PAPER = Block()

_NAMES = {
    "router": ("embed", "router"),
    "gate": ("expert", "embed", "mlp"),
    "wi": ("expert", "embed", "mlp"),
    "wo": ("expert", "mlp", "embed"),
}


def mesh_of(topology: str) -> jax.sharding.Mesh:
    """One expert and one group per core."""
    return make_mesh({"data": 1, "expert": -1}, devices=topology_devices(topology))


def measure(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row's name and figures: experts only, the layer as it comes, bare, and other kinds."""
    mesh = mesh_of(TOPOLOGIES[name])
    reference: dict[str, Any] = {}
    for row, lower in _ROWS.items():
        found = figures(lower(mesh), mesh)
        reference = reference or found
        found["ratio"] = found["optimal_seconds"] / reference["optimal_seconds"]
        found["inspector_ratio"] = found["inspector_seconds"] / reference["inspector_seconds"]
        yield row, found


def figures(lowered: jax.stages.Lowered, mesh: jax.sharding.Mesh) -> dict[str, Any]:
    """Estimated seconds, MB of temporaries and collectives of one core.

    optimal_seconds is the compiler's: it leaves out the time on the interconnect, charges gathers
    for their bytes only, and counts the body of a loop once, so that it says nothing of `sorted`.
    inspector_seconds is gshard_annotate's: it has the interconnect, and every run of a loop.
    """
    began = time.process_time()
    compiled, report = inspect_lowered(lowered, mesh=mesh)
    cpu_seconds = time.process_time() - began
    cost: Any = compiled.cost_analysis()
    moved = collections.defaultdict(list)
    for one in report.exchanges:
        moved[one.collective.kind].append(one.collective.bytes)
    return {
        "optimal_seconds": cost["optimal_seconds"],
        "inspector_seconds": report.cost.step_seconds,
        "gflop": report.cost.flops / 1e9,
        "temp_mb": report.memory.temporaries / 2**20,
        "collectives": {kind: sorted(sizes) for kind, sizes in sorted(moved.items())},
        "surprises": report.surprises,
        "opaque": [note for note in report.notes if "custom kernel" in note],
        "compile_seconds": report.compile_seconds,
        "compile_cpu_seconds": cpu_seconds,
    }


def layer_gradient(mesh: jax.sharding.Mesh, **options: Any) -> jax.stages.Lowered:
    """The lowered gradient of `layer_program`."""
    return lower(*layer_program(mesh, **options))


def layer_program(
    mesh: jax.sharding.Mesh,
    *,
    block: Block = PAPER,
    dispatch: str = "auto",
    router: Router | None = None,
    bare: bool = False,
    masked: bool = True,
    remat: Callable[[Any], Any] = lambda function: function,
    rules: Any = DEFAULT_RULES,
) -> tuple[Any, ...]:
    """The loss of a layer with mask, coin, losses and statistics, or of a bare one; its arguments.

    Args:
      mesh: For which machine.
      block: Sizes.
      dispatch: That of the layer.
      router: That of the layer; by default the paper's.
      bare: Without coin, and with losses and statistics thrown away.
      masked: Whether there is padding to leave out.
      remat: Wraps the layer, such as `jax.checkpoint`.
      rules: What logical names mean.
    """
    num_cores = mesh.size
    options: Any = {"dispatch": dispatch, "dtype": block.dtype, "gated": block.gated}
    options["slots_per_token"] = block.slots_per_token
    if router is None:
        options["second_expert"] = "always" if bare else "random"
    else:
        options["router"] = router
    if dispatch == "sorted":
        # As many rows as the others have slots: room for the worst case is E times that.
        options["expert_parts"] = num_cores
    shapes = nnx.eval_shape(
        lambda: MoELayer(num_cores, block.embed, block.mlp, rngs=nnx.Rngs(0), **options)
    )
    graph, state = nnx.split(shapes)
    params = nnx.to_pure_dict(state)

    def loss(params, x, mask, key):
        def layer(params, x):
            return nnx.merge(graph, params)(x, mask if masked else None, key=key)

        with rules_scope(rules, mesh):
            y, output = remat(layer)(params, x)
        beside = 0.0 if bare else 0.01 * output.balance_loss + 0.001 * output.z_loss
        return mean_square(y) + beside, () if bare else output

    names = {name: _NAMES[name] for name in params}
    shardings = tree_shardings(names, params, DEFAULT_RULES, mesh)
    params = {name: shape(p.shape, p.dtype, shardings[name]) for name, p in params.items()}
    here = jax.NamedSharding(mesh, jax.sharding.PartitionSpec())
    groups = jax.NamedSharding(mesh, rules.spec(("group",), mesh=mesh))
    x = shape((num_cores, block.tokens, block.embed), block.dtype, groups)
    mask = shape((num_cores, block.tokens), jnp.bool_, groups)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return loss, params, x, mask, shape(key.shape, key.dtype, here)


def experts_only(mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    """The lowered gradient of the experts on full slots, exchanged there and back."""
    num_cores = mesh.size
    slots = capacity(PAPER.tokens, num_cores)
    local = (None, "group", "capacity", "act_embed")
    remote = ("expert", "dispatched_group", "capacity", "act_embed")

    def loss(params, x):
        with rules_scope(DEFAULT_RULES, mesh):
            x = annotate(annotate(x, *local), *remote)
            wi, wo = (params[name].astype(jnp.bfloat16) for name in ("wi", "wo"))
            hidden = jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", x, wi))
            y = jnp.einsum("EGCH,EHM->EGCM", hidden, wo)
            y = annotate(annotate(y, *remote), *local)
        return mean_square(y), ()

    sizes = {"wi": (num_cores, PAPER.embed, PAPER.mlp), "wo": (num_cores, PAPER.mlp, PAPER.embed)}
    params = {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()}
    shardings = tree_shardings({name: _NAMES[name] for name in params}, params, DEFAULT_RULES, mesh)
    params = {name: shape(p.shape, p.dtype, shardings[name]) for name, p in params.items()}
    groups = jax.NamedSharding(mesh, DEFAULT_RULES.spec(local, mesh=mesh))
    x = shape((num_cores, num_cores, slots, PAPER.embed), jnp.bfloat16, groups)
    return lower(loss, params, x)


def mean_square(y: jax.Array) -> jax.Array:
    """The loss of an output [G,S,M]."""
    return (y.astype(jnp.float32) ** 2).mean()


def gradient(loss: Callable[..., Any]) -> Any:
    """The jitted gradient by the first two arguments.

    Without the loss itself, whose sum over cores is none of the layer's business.
    """
    return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))


def lower(loss: Callable[..., Any], *arguments: Any) -> jax.stages.Lowered:
    """The gradient of a loss lowered for TPUs, for arguments of these shapes and shardings."""
    return gradient(loss).trace(*arguments).lower(lowering_platforms=("tpu",))


def shape(sizes: Any, dtype: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """An argument that need not be there."""
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)


_ROWS: dict[str, Callable[[jax.sharding.Mesh], jax.stages.Lowered]] = {
    "experts only": experts_only,
    "layer": layer_gradient,
    "bare": functools.partial(layer_gradient, bare=True, masked=False),
    "einsum": functools.partial(layer_gradient, dispatch="einsum"),
    "gather": functools.partial(layer_gradient, dispatch="gather"),
    "sorted": functools.partial(layer_gradient, dispatch="sorted"),
}
