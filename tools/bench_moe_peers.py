"""Other mixture-of-experts layers in PyTorch, as far as they are installed beside ours.

Each adapter shows first, at sizes where nothing can be dropped, that its layer computes what ours
computes with the same matrices and `second_expert="always"`. Times are ratios to PyTorch's own
dense block, on the CPU. Of the layers in JAX MaxText has its own module; vmoe and flaxformer are on
no package registry, and praxis 1.4.0 does not import with this JAX.

Axes: G groups, S tokens per group, E experts, M model width, H hidden width.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

import bench_moe_rounds
from bench_moe_layers import Point
from gshard_moe import MoELayer

TOLERANCE = 1e-5  # of the largest output
_NLLB = "transformers.models.nllb_moe.modeling_nllb_moe"
# With two experts a token asks for both, and each has a slot for every token.
_CHECKED = Point(groups=2, tokens=12, experts=2, embed=6, mlp=10)


class Built(NamedTuple):
    """A peer's layer: from tokens [G,S,M] to outputs of that shape and its balance loss."""

    apply: Callable[[Any], tuple[Any, Any]]
    module: Any
    router: Any  # torch's weight, [E,M]
    experts: list[tuple[Any, Any]]  # torch's weights, [H,M] and [M,H]


class Peer(NamedTuple):
    """Another package's layer.

    Attributes:
      modules: What must be importable.
      build: The layer at a point.
      note: What it computes otherwise than ours.
      left_out: Points that it takes minutes for.
    """

    modules: tuple[str, ...]
    build: Callable[[Point], Built]
    note: str
    left_out: tuple[str, ...] = ()


def status(peer: Peer) -> str:
    """Why this peer cannot be measured, empty if it can."""
    try:
        for module in peer.modules:
            importlib.import_module(module)
    except ImportError as error:
        top = peer.modules[-1].partition(".")[0]
        return f"does not import: {error}" if importlib.util.find_spec(top) else "not installed"
    difference = _difference(peer)
    if difference > TOLERANCE:
        return f"computes something else: differs by {difference:.2g} of the largest output"
    return ""


def measure(
    peers: dict[str, Peer], point: Point, rounds: int, threads: int
) -> dict[str, dict[str, float]]:
    """Times over PyTorch's dense block, by peer: `forward` and `forward_backward`."""
    torch = _module("torch")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    programs = {"dense": _programs(_dense(point), torch.randn(2 * point.groups, *point[1:4:2]))}
    x = torch.randn(point.groups, point.tokens, point.embed)
    programs |= {name: _programs(peer.build(point), x) for name, peer in peers.items()}
    ratios: dict[str, dict[str, float]] = {name: {} for name in peers}
    for what in ("forward", "forward_backward"):
        timed = {name: both[what] for name, both in programs.items()}
        seconds = bench_moe_rounds.interleaved(timed, rounds)
        for name, found in ratios.items():
            found[what] = bench_moe_rounds.median_ratio(seconds[name], seconds["dense"])
    return ratios


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _difference(peer: Peer) -> float:
    """The largest difference from our layer, over its largest output."""
    torch = _module("torch")
    built = peer.build(_CHECKED)
    G, S, E, M, H = _CHECKED
    x_GSM = np.random.default_rng(0).normal(size=(G, S, M)).astype(np.float32)
    with torch.no_grad():
        theirs = built.apply(torch.tensor(x_GSM))[0].numpy()
    ours = MoELayer(E, M, H, second_expert="always", rngs=nnx.Rngs(0))
    ours.router[...] = _array(built.router)
    ours.wi[...] = jnp.stack([_array(wi) for wi, _ in built.experts])
    ours.wo[...] = jnp.stack([_array(wo) for _, wo in built.experts])
    expected, _ = ours(jnp.asarray(x_GSM))
    return float(np.abs(theirs - expected).max() / np.abs(expected).max())


def _array(weight: Any) -> Any:
    return jnp.asarray(weight.detach().numpy().T)


def _programs(built: Built, x: Any) -> dict[str, Callable[[], object]]:
    torch = _module("torch")

    def forward() -> None:
        with torch.no_grad():
            built.apply(x)

    def forward_backward() -> None:
        inputs = x.detach().requires_grad_()
        built.module.zero_grad(set_to_none=True)
        y, balance = built.apply(inputs)
        ((y**2).mean() + 0.01 * balance).backward()

    return {"forward": forward, "forward_backward": forward_backward}


def _dense(point: Point) -> Built:
    block = _feed_forward(point)
    return Built(lambda x: (block(x), 0.0), block, None, [])


def _feed_forward(point: Point) -> Any:
    nn: Any = _module("torch.nn")
    _, _, _, M, H = point
    return nn.Sequential(nn.Linear(M, H, bias=False), nn.ReLU(), nn.Linear(H, M, bias=False))


def _fairscale(point: Point) -> Built:
    torch, moe = _module("torch"), _module("fairscale.nn.moe")
    if not torch.distributed.is_initialized():
        file = os.path.join(tempfile.mkdtemp(), "store")
        torch.distributed.init_process_group("gloo", f"file://{file}", rank=0, world_size=1)
    experts = torch.nn.ModuleList(_feed_forward(point) for _ in range(point.experts))
    layer = moe.MOELayer(moe.Top2Gate(point.embed, point.experts), experts)

    def one(x_SM: Any) -> tuple[Any, Any]:
        # Its first dimension has to be a multiple of the experts.
        y = layer(x_SM.reshape(point.experts, -1, point.embed))
        return y.reshape(x_SM.shape), layer.l_aux

    return Built(_by_group(one), layer, layer.gate.wg.weight, _weights(experts))


def _deepspeed(by_group: bool) -> Callable[[Point], Built]:
    def build(point: Point) -> Built:
        layer = _module("deepspeed.moe.layer").MoE(
            point.embed,
            _feed_forward(point),
            point.experts,
            k=2,
            capacity_factor=1.0,
            min_capacity=0,
            top2_2nd_expert_sampling=False,
        )

        def one(x: Any) -> tuple[Any, Any]:
            y, balance, _ = layer(x)
            return y, balance

        moe = layer.deepspeed_moe
        experts = _weights(moe.experts.deepspeed_experts)
        return Built(_by_group(one) if by_group else one, layer, moe.gate.wg.weight, experts)

    return build


def _transformers(point: Point) -> Built:
    config = _module("transformers").NllbMoeConfig(
        d_model=point.embed,
        num_experts=point.experts,
        expert_capacity=None,
        second_expert_policy="all",
        normalize_router_prob_before_dropping=True,
        activation_dropout=0.0,
        moe_token_dropout=0.0,
    )
    layer = _module(_NLLB).NllbMoeSparseMLP(config, point.mlp)
    experts = [layer.experts[f"expert_{i}"] for i in range(point.experts)]
    for expert in experts:
        for linear in (expert.fc1, expert.fc2):
            linear.bias.data.zero_()

    def apply(x_GSM: Any) -> tuple[Any, Any]:
        return layer(x_GSM, None)[0], 0.0

    weights = [(expert.fc1.weight, expert.fc2.weight) for expert in experts]
    return Built(apply, layer, layer.router.classifier.weight, weights)


def _by_group(one: Callable[[Any], tuple[Any, Any]]) -> Callable[[Any], tuple[Any, Any]]:
    """One call per group, since the layer takes what it is given as one group."""
    torch = _module("torch")

    def apply(x_GSM: Any) -> tuple[Any, Any]:
        outputs, balances = zip(*map(one, x_GSM), strict=True)
        return torch.stack(outputs), sum(balances) / len(balances)

    return apply


def _weights(experts: Any) -> list[tuple[Any, Any]]:
    return [(expert[0].weight, expert[2].weight) for expert in experts]


PEERS = {
    "fairscale": Peer(("torch", "fairscale.nn.moe"), _fairscale, "second expert with Gumbel noise"),
    "deepspeed": Peer(
        ("torch", "deepspeed.moe.layer"), _deepspeed(by_group=True), "no random second expert"
    ),
    "deepspeed-batch": Peer(
        ("torch", "deepspeed.moe.layer"),
        _deepspeed(by_group=False),
        "no random second expert; the whole batch is one group, which is its default",
    ),
    "transformers": Peer(
        ("torch", _NLLB),
        _transformers,
        "NLLB-MoE; no random second expert, no balance loss; the whole batch is one group",
        left_out=("B", "C"),
    ),
}
