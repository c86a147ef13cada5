"""MaxText's mixture-of-experts layer, where it is installed beside ours: the one peer in JAX.

MaxText 0.2.5 needs Python 3.12 and JAX 0.11, which ours take too; `pip install maxtext` brings the
package alone, and what its layer imports has to be installed beside it: aqtp, drjax, grain,
huggingface_hub, jinja2, omegaconf, orbax-checkpoint, pathwaysutils, pillow, pydantic, qwix,
tokamax, transformers. The path measured is that with a capacity (`sparse_matmul=False`), one-hot
einsums in groups of a sequence. Its paths without a capacity are kernels for accelerators, or
`lax.ragged_dot`, which takes seconds on a CPU where this takes a fraction of one: for TPUs those
are compiled by `bench_moe_tpu_maxtext.py`.

Axes: G groups, S tokens per group, E experts, M model width, H hidden width.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import pathlib
import tempfile
from typing import Any

import jax
import numpy as np
from flax import nnx

from bench_moe_layers import Point, Subject
from gshard_moe import MoELayer, TopK

NOTE = "gated experts of 2/3 the width, for equal work; no mask, no coin, no statistics"
TOLERANCE = 1e-5  # of the largest output
# With two experts a token asks for both, and each has a slot for every token.
_CHECKED = Point(groups=2, tokens=12, experts=2, embed=8, mlp=12)


def status() -> str:
    """Why it cannot be measured, empty if it can."""
    if importlib.util.find_spec("maxtext") is None:
        return "not installed"
    try:
        difference = _difference()
    except ImportError as error:
        return f"does not import: {error}"
    if difference > TOLERANCE:
        return f"computes something else: differs by {difference:.2g} of the largest output"
    return ""


def subject(point: Point) -> Subject:
    """Its layer as it comes with a capacity of 2S/E and its load-balance loss."""
    G, S, _, M, _ = point
    layer = _layer(point)
    graph, params, rest = nnx.split(layer, nnx.Param, ...)

    def apply(params, x, rest):
        y, balance, _ = nnx.merge(graph, params, rest)(x)
        return y, balance, ()

    return Subject(apply, params, jax.random.normal(jax.random.key(0), (G, S, M)), (rest,))


def _difference() -> float:
    """The largest difference from our layer with its matrices, over its largest output."""
    layer, (G, S, E, M, _) = _layer(_CHECKED), _CHECKED
    x = jax.random.normal(jax.random.key(0), (G, S, M))
    theirs, _, _ = layer(x)
    wi, gate, wo = layer.wi_1[...], layer.wi_0[...], layer.wo[...]
    router = TopK(2, "choose_then_softmax")
    ours = MoELayer(E, M, wi.shape[-1], gated=True, router=router, rngs=nnx.Rngs(0))
    nnx.update(ours, {"wi": wi, "gate": gate, "wo": wo, "router": layer.gate.kernel[...]})
    expected, _ = ours(x)
    return float(np.abs(theirs - expected).max() / np.abs(expected).max())


def _layer(point: Point) -> Any:
    config = config_of(point, round(2 * point.mlp / 3))
    return layer_of(config, mesh_of(config))


def layer_of(config: Any, mesh: jax.sharding.Mesh) -> Any:
    """Its layer as its own models make it."""
    init = module("maxtext.layers.initializers").nd_dense_init
    return module("maxtext.layers.moe").RoutedMoE(
        config,
        config.num_experts,
        config.num_experts_per_tok,
        mesh,
        init(1.0, "fan_in", "truncated_normal"),
        ("embed", None),
        nnx.Rngs(0),
        intermediate_dim=config.moe_mlp_dim,
        weight_dtype=config.weight_dtype,
        dtype=config.dtype,
    )


def mesh_of(config: Any, devices: list[Any] | None = None) -> jax.sharding.Mesh:
    """The mesh that it makes of the devices, by default of all."""
    with contextlib.redirect_stdout(io.StringIO()):
        found = module("maxtext.utils.maxtext_utils").create_device_mesh(config, devices)
    return jax.sharding.Mesh(found, config.mesh_axes)


def module(name: str) -> Any:
    """One of its modules, imported when it is needed: they take long."""
    return importlib.import_module(name)


def config_of(point: Point, width: int, **others: Any) -> Any:
    """Its configuration: capacity 2S/E, experts of this width with a gate, `others` beside."""
    settings: dict[str, Any] = {
        "base_emb_dim": point.embed,
        "base_mlp_dim": width,
        "base_moe_mlp_dim": width,
        "num_experts": point.experts,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "mlp_activations": ["relu", "linear"],
        "sparse_matmul": False,
        "megablox": False,
        "capacity_factor": 1.0,
        "load_balance_loss_weight": 0.01,
        "float32_gate_logits": True,
        "max_target_length": point.tokens,
        "per_device_batch_size": point.groups,
        "dtype": "float32",
        "weight_dtype": "float32",
        "hardware": "cpu",
        "run_name": "bench",
        "base_output_directory": tempfile.gettempdir(),
        "enable_checkpointing": False,
        "skip_jax_distributed_system": True,
        "jax_cache_dir": "",  # what was compiled before would not be inspected
    }
    base = pathlib.Path(module("maxtext").__file__).parent / "configs" / "base.yml"
    with contextlib.redirect_stdout(io.StringIO()):
        return module("maxtext.configs.pyconfig").initialize(["", str(base)], **settings | others)
