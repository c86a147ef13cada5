"""What bench_moe measures in JAX: a dense layer, experts alone, and every form of our layer.

Axes: G groups, S tokens per group, E experts, C slots per expert and group, M model width,
H hidden width.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from gshard_annotate import DEFAULT_RULES, make_mesh, rules_scope
from gshard_moe import MoELayer, capacity, combine_gather, dispatch_gather, top2
from gshard_moe.exchange import Dispatch, ExpertLoop
from gshard_moe.experts import Experts, batched, one_by_one

SLOTS_PER_TOKEN = 2.0  # the paper's capacity, 2S/E
PADDING = 1 / 16  # share of tokens that the mask leaves out


class Point(NamedTuple):
    """Sizes of a layer."""

    groups: int
    tokens: int
    experts: int
    embed: int
    mlp: int

    @property
    def slots(self) -> int:
        """C."""
        return capacity(self.tokens, self.experts, slots_per_token=SLOTS_PER_TOKEN)


# Few, many, and very many small experts.
POINTS = {
    "A": Point(2, 1024, 16, 512, 2048),
    "B": Point(8, 512, 64, 256, 1024),
    "C": Point(4, 1024, 128, 256, 512),
    "tiny": Point(2, 16, 4, 8, 12),
}


class Subject(NamedTuple):
    """A layer as a function of arrays: apply(params, x, *others) -> output, loss beside, rest."""

    apply: Callable[..., tuple[jax.Array, jax.Array | float, Any]]
    params: Any
    x: jax.Array
    others: tuple[Any, ...] = ()


class Program(NamedTuple):
    """A compiled subject."""

    run: Callable[[], object]
    compile_seconds: float
    temp_mb: float  # MiB


def subjects(point: Point, dtype: Any) -> dict[str, Subject]:
    """All subjects by name; `dense` and `experts only` are what the others are compared to."""
    found = {"dense": _dense(point, dtype), "experts only": _experts_only(point, dtype)}
    found |= {"layer": _layer(point, dtype), "bare": _bare(point, dtype)}
    for kind in get_args(Dispatch):
        if kind != "auto":
            found[f"dispatch={kind}"] = _layer(point, dtype, dispatch=kind)
    for loop in get_args(ExpertLoop):
        if loop != "auto":
            found[f"experts={loop}"] = _layer(point, dtype, experts=loop)
    return found


def compiled(subject: Subject) -> dict[str, Program]:
    """The programs `forward` and `forward_backward` of a subject."""

    def loss(params, x, *others):
        y, beside, rest = subject.apply(params, x, *others)
        return (y.astype(jnp.float32) ** 2).mean() + beside, rest

    functions = {
        "forward": subject.apply,
        "forward_backward": jax.value_and_grad(loss, argnums=(0, 1), has_aux=True),
    }
    return {name: _compile(function, subject) for name, function in functions.items()}


def _compile(function: Callable[..., Any], subject: Subject) -> Program:
    arguments = (subject.params, subject.x, *subject.others)
    lowered = jax.jit(function).lower(*arguments)
    began = time.perf_counter()
    program = lowered.compile()
    seconds = time.perf_counter() - began
    memory: Any = program.memory_analysis()
    run = lambda: jax.block_until_ready(program(*arguments))  # noqa: E731
    return Program(run, seconds, memory.temp_size_in_bytes / 2**20)


def _dense(point: Point, dtype: Any) -> Subject:
    """One feed-forward block over twice the tokens: as much work as two experts for each token."""
    G, S, _, M, H = point

    def apply(params, x):
        wi, wo = (params[name].astype(dtype) for name in ("wi", "wo"))
        return jax.nn.relu(x @ wi) @ wo, 0.0, ()

    params = {"wi": _normal(1, (M, H)), "wo": _normal(2, (H, M))}
    return Subject(apply, params, _tokens(2 * G * S, M, dtype=dtype))


def _experts_only(point: Point, dtype: Any) -> Subject:
    """The experts on slots that are all full, in one einsum per matrix."""
    G, _, E, M, H = point

    def apply(params, x):
        wi, wo = (params[name].astype(dtype) for name in ("wi", "wo"))
        hidden = jax.nn.relu(jnp.einsum("EAM,EMH->EAH", x, wi))
        return jnp.einsum("EAH,EHM->EAM", hidden, wo), 0.0, ()

    params = {"wi": _normal(1, (E, M, H)), "wo": _normal(2, (E, H, M))}
    return Subject(apply, params, _tokens(E, G * point.slots, M, dtype=dtype))


def _layer(point: Point, dtype: Any, **options: Any) -> Subject:
    """Our layer as it comes: mask, coin, both losses and all statistics."""
    G, S, E, M, H = point
    layer = MoELayer(E, M, H, dtype=dtype, rngs=nnx.Rngs(0), **options)
    graph, params = nnx.split(layer)

    def apply(params, x, mask, key):
        with _one_device():
            y, output = nnx.merge(graph, params)(x, mask, key=key)
        return y, 0.01 * output.balance_loss + 0.001 * output.z_loss, output

    mask = jax.random.uniform(jax.random.key(3), (G, S)) >= PADDING
    x = _tokens(G, S, M, dtype=dtype)
    return Subject(apply, params, x, (mask, jax.random.key(4)))


def _bare(point: Point, dtype: Any) -> Subject:
    """Gating, dispatch and experts without what a trainer needs beside them."""
    G, S, E, M, H = point
    compute = one_by_one if jax.default_backend() == "cpu" else batched

    def apply(params, x):
        logits = jnp.einsum(
            "GSM,ME->GSE", x.astype(jnp.float32), params["router"], precision="highest"
        )
        routing = top2(logits, capacity=point.slots, second="always")
        experts = Experts(params["wi"].astype(dtype), params["wo"].astype(dtype))
        y = compute(dispatch_gather(x, routing), experts, jax.nn.relu)
        return combine_gather(y, routing), 0.0, ()

    sizes = {"router": (M, E), "wi": (E, M, H), "wo": (E, H, M)}
    params = {name: _normal(1 + i, shape) for i, (name, shape) in enumerate(sizes.items())}
    return Subject(apply, params, _tokens(G, S, M, dtype=dtype))


def _one_device() -> contextlib.AbstractContextManager[Any]:
    """Where there are several devices a layer has to be told that it is on one."""
    if jax.device_count() == 1:
        return contextlib.nullcontext()
    mesh = make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])
    return rules_scope(DEFAULT_RULES, mesh)


def _tokens(*shape: int, dtype: Any) -> jax.Array:
    return jax.random.normal(jax.random.key(0), shape).astype(dtype)


def _normal(seed: int, shape: tuple[int, ...]) -> jax.Array:
    """A float32 matrix, or several, that keeps the size of what it multiplies."""
    return shape[-2] ** -0.5 * jax.random.normal(jax.random.key(seed), shape)
