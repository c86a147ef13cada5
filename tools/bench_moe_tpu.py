"""One layer on TPUs that are not there: what their compiler makes of it, and what it estimates.

Sizes are the paper's: M 1024, H 8192, 2048 tokens, one group and one expert per TPU v3 core,
activations in bfloat16. Everything is compared to the same experts with the same four all-to-alls
and nothing else: no router, no dispatch.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any

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
from gshard_moe import MoELayer, capacity

TOPOLOGIES = {"v3-128": "v3:8x8", "v3-2048": "v3:32x32"}
TOKENS, EMBED, MLP = 2048, 1024, 8192

_NAMES = {
    "router": ("embed", "router"),
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
    compiled, report = inspect_lowered(lowered, mesh=mesh, chip="v3")
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
        "compile_seconds": report.compile_seconds,
    }


def layer_gradient(
    mesh: jax.sharding.Mesh,
    *,
    dispatch: str = "auto",
    bare: bool = False,
    masked: bool = True,
    remat: Callable[[Any], Any] = lambda function: function,
    rules: Any = DEFAULT_RULES,
) -> jax.stages.Lowered:
    """The lowered gradient of a layer with mask, coin, losses and statistics, or of a bare one.

    Args:
      mesh: For which machine.
      dispatch: That of the layer.
      bare: Without coin, and with losses and statistics thrown away.
      masked: Whether there is padding to leave out.
      remat: Wraps the layer, such as `jax.checkpoint`.
      rules: What logical names mean.
    """
    num_cores = mesh.size
    options: Any = {"dispatch": dispatch, "dtype": jnp.bfloat16}
    options["second_expert"] = "always" if bare else "random"
    if dispatch == "sorted":
        # As many rows as the others have slots: room for the worst case is E times that.
        options |= {"slots_per_token": 2.0, "expert_parts": num_cores}
    shapes = nnx.eval_shape(lambda: MoELayer(num_cores, EMBED, MLP, rngs=nnx.Rngs(0), **options))
    graph, state = nnx.split(shapes)
    params = nnx.to_pure_dict(state)

    def loss(params, x, mask, key):
        def layer(params, x):
            return nnx.merge(graph, params)(x, mask if masked else None, key=key)

        with rules_scope(rules, mesh):
            y, output = remat(layer)(params, x)
        beside = 0.0 if bare else 0.01 * output.balance_loss + 0.001 * output.z_loss
        return _loss(y) + beside, () if bare else output

    shardings = tree_shardings(_NAMES, params, DEFAULT_RULES, mesh)
    params = {name: _shape(p.shape, p.dtype, shardings[name]) for name, p in params.items()}
    here = jax.NamedSharding(mesh, jax.sharding.PartitionSpec())
    groups = jax.NamedSharding(mesh, rules.spec(("group",), mesh=mesh))
    x = _shape((num_cores, TOKENS, EMBED), jnp.bfloat16, groups)
    mask = _shape((num_cores, TOKENS), jnp.bool_, groups)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return _lower(loss, params, x, mask, _shape(key.shape, key.dtype, here))


def experts_only(mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    """The lowered gradient of the experts on full slots, exchanged there and back."""
    num_cores = mesh.size
    slots = capacity(TOKENS, num_cores)
    local = (None, "group", "capacity", "act_embed")
    remote = ("expert", "dispatched_group", "capacity", "act_embed")

    def loss(params, x):
        with rules_scope(DEFAULT_RULES, mesh):
            x = annotate(annotate(x, *local), *remote)
            wi, wo = (params[name].astype(jnp.bfloat16) for name in ("wi", "wo"))
            hidden = jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", x, wi))
            y = jnp.einsum("EGCH,EHM->EGCM", hidden, wo)
            y = annotate(annotate(y, *remote), *local)
        return _loss(y), ()

    shapes = {"wi": (num_cores, EMBED, MLP), "wo": (num_cores, MLP, EMBED)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    shardings = tree_shardings({name: _NAMES[name] for name in params}, params, DEFAULT_RULES, mesh)
    params = {name: _shape(p.shape, p.dtype, shardings[name]) for name, p in params.items()}
    groups = jax.NamedSharding(mesh, DEFAULT_RULES.spec(local, mesh=mesh))
    x = _shape((num_cores, num_cores, slots, EMBED), jnp.bfloat16, groups)
    return _lower(loss, params, x)


def _loss(y: jax.Array) -> jax.Array:
    return (y.astype(jnp.float32) ** 2).mean()


def _lower(loss: Callable[..., Any], *arguments: Any) -> jax.stages.Lowered:
    # Without the loss itself, whose sum over cores is none of the layer's business.
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    return gradient.trace(*arguments).lower(lowering_platforms=("tpu",))


def _shape(shape: Any, dtype: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


_ROWS: dict[str, Callable[[jax.sharding.Mesh], jax.stages.Lowered]] = {
    "experts only": experts_only,
    "layer": layer_gradient,
    "bare": functools.partial(layer_gradient, bare=True, masked=False),
    "einsum": functools.partial(layer_gradient, dispatch="einsum"),
    "gather": functools.partial(layer_gradient, dispatch="gather"),
    "sorted": functools.partial(layer_gradient, dispatch="sorted"),
}
