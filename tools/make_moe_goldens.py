"""Writes what other implementations of MoE layers compute, for gshard-moe's tests to compare with.

Runs in an environment of its own, which shares nothing with this repository's:

    python3.11 -m venv /tmp/moe-goldens
    /tmp/moe-goldens/bin/pip install torch==2.13.0 transformers==4.46.3 fairscale==0.4.13 \
        mixture-of-experts==0.2.3
    /tmp/moe-goldens/bin/python tools/make_moe_goldens.py

torch is the CPU one; `transformers` is 4.46.3 since 5.24 routes NLLB-MoE wrongly. The four files
and ORIGIN.md, which names versions and hashes, go to packages/gshard-moe/tests/goldens. Weights and
inputs are drawn by seed: a run with the same versions writes the same numbers.
"""
# torch and what builds on it are not installed where the checks run.
# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import pathlib
import tempfile

import fairscale.nn.moe.moe_layer as fairscale_layer
import fairscale.nn.moe.top2gate as fairscale_gate
import mixture_of_experts
import numpy as np
import torch
from transformers.models.nllb_moe import modeling_nllb_moe as nllb
from transformers.models.switch_transformers import modeling_switch_transformers as switch

FOLDER = pathlib.Path(__file__).parents[1] / "packages" / "gshard-moe" / "tests" / "goldens"
VERSIONS = ("torch", "transformers", "fairscale", "mixture-of-experts")
EXPERTS, WIDTH, HIDDEN = 4, 6, 10
BATCH, LENGTH = 3, 8

NLLB = {
    "evaluation": {},
    "gelu": {"activation_function": "gelu", "moe_token_dropout": 0.0},
    "padding routed": {"router_ignore_padding_tokens": True},
    "evaluation drops": {
        "moe_eval_capacity_token_fraction": 0.25,
        "normalize_router_prob_before_dropping": True,
    },
    "evaluation drops, then normalizes": {"moe_eval_capacity_token_fraction": 0.25},
    "evaluation drops by priority": {
        "moe_eval_capacity_token_fraction": 0.25,
        "normalize_router_prob_before_dropping": True,
        "batch_prioritized_routing": True,
    },
    "random": {
        "second_expert_policy": "random",
        "normalize_router_prob_before_dropping": True,
    },
    "sampling": {"second_expert_policy": "sampling"},
    "training": {
        "expert_capacity": 5,
        "normalize_router_prob_before_dropping": True,
        "moe_token_dropout": 0.0,
    },
    "training after evaluation": {
        "expert_capacity": 5,
        "normalize_router_prob_before_dropping": True,
        "moe_token_dropout": 0.0,
    },
    "training without a capacity": {
        "expert_capacity": None,
        "normalize_router_prob_before_dropping": True,
        "moe_token_dropout": 0.0,
    },
}
SWITCH = {
    "evaluation": {"expert_capacity": 8},
    "gelu_new": {"expert_capacity": 8, "dense_act_fn": "gelu_new"},
    "evaluation drops": {"expert_capacity": 2},
    "training": {"expert_capacity": 8, "router_jitter_noise": 0.0, "dropout_rate": 0.0},
    "training with jitter": {
        "expert_capacity": 8,
        "router_jitter_noise": 0.3,
        "dropout_rate": 0.0,
    },
}
MESH = {
    "all": {"second_policy_train": "all"},
    "none": {"second_policy_train": "none"},
    "random": {"second_policy_train": "random", "second_threshold_train": 0.5},
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    write("nllb_moe", *nllb_cases())
    write("switch_transformers", *switch_cases())
    write("fairscale", *fairscale_cases())
    write("mesh_tensorflow", *mesh_cases())
    (FOLDER / "ORIGIN.md").write_text(origin(), encoding="utf-8")


def write(name: str, arrays: dict[str, torch.Tensor], configs: dict[str, dict]) -> None:
    values = {key: tensor.detach().numpy() for key, tensor in arrays.items()}
    path = FOLDER / f"{name}.npz"
    np.savez_compressed(path, configs=json.dumps(configs), **values)
    print(f"{path.name}: {len(configs)} cases, {path.stat().st_size} bytes")


def origin() -> str:
    installed = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    files = sorted(FOLDER.glob("*.npz"))
    hashes = [f"- `{f.name}` sha256 {hashlib.sha256(f.read_bytes()).hexdigest()}" for f in files]
    return (
        "# Where these numbers come from\n\n"
        f"Written by `tools/make_moe_goldens.py` with {installed}. Weights and inputs are drawn by "
        "seed, outputs are what those packages compute on CPU in float32. "
        "`mesh_tensorflow.npz` is from `mixture-of-experts`, a port of Mesh TensorFlow's layer.\n\n"
        + "\n".join(hashes)
        + "\n"
    )


def spread(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Draws weights that make experts and choices differ; the state dict."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens that prefer some experts, so that these overflow, and where padding is."""
    torch.manual_seed(1)
    x = torch.randn(BATCH, LENGTH, WIDTH) + 0.4
    padding = torch.arange(LENGTH) >= torch.tensor([8, 6, 3])[:, None]
    return x, padding


def nllb_cases() -> tuple[dict[str, torch.Tensor], dict[str, dict]]:
    x, padding = inputs()
    arrays, configs = {"x": x, "padding": padding}, {}
    for case, options in NLLB.items():
        config = nllb.NllbMoeConfig(
            d_model=WIDTH, num_experts=EXPERTS, encoder_ffn_dim=HIDDEN, **options
        )
        block = nllb.NllbMoeSparseMLP(config, HIDDEN)
        weights = spread(block)
        arrays |= {f"weights/{name}": tensor for name, tensor in weights.items()}
        if case == "training after evaluation":
            block.eval()(x.clone(), padding.reshape(-1))
        block.train(case.startswith("training"))
        # 21 tokens do not divide by 4 experts: there the two capacities differ.
        length = 7 if case == "training without a capacity" else LENGTH
        torch.manual_seed(2)
        y, (probabilities, _) = block(x[:, :length].clone(), padding[:, :length].reshape(-1))
        tokens = BATCH * length
        torch.manual_seed(2)
        if case == "random":
            arrays[f"{case}/uniforms"] = torch.rand_like(torch.zeros(tokens))
        if case == "sampling":
            gumbel = torch.distributions.gumbel.Gumbel(0, 1).rsample
            arrays[f"{case}/gumbel"] = gumbel((tokens, EXPERTS))
        arrays |= {f"{case}/y": y, f"{case}/weights": probabilities}
        configs[case] = config.to_dict() | {"capacity": block.router.expert_capacity}
    return arrays, configs


def switch_cases() -> tuple[dict[str, torch.Tensor], dict[str, dict]]:
    x, _ = inputs()
    arrays, configs = {"x": x}, {}
    for case, options in SWITCH.items():
        config = switch.SwitchTransformersConfig(
            d_model=WIDTH, num_experts=EXPERTS, d_ff=HIDDEN, **options
        )
        block = switch.SwitchTransformersSparseMLP(config)
        arrays |= {f"weights/{name}": tensor for name, tensor in spread(block).items()}
        block.train(case.startswith("training"))
        torch.manual_seed(2)
        given = x.clone()
        y, (logits, expert) = block(given)
        # The router jitters its input in place: this is what the experts saw.
        arrays |= {f"{case}/x_after": given, f"{case}/y": y}
        arrays |= {f"{case}/logits": logits, f"{case}/expert": expert}
        configs[case] = config.to_dict()
    return arrays, configs


def fairscale_cases() -> tuple[dict[str, torch.Tensor], dict[str, dict]]:
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "store"
        torch.distributed.init_process_group(
            "gloo", init_method=store.as_uri(), rank=0, world_size=1
        )
        cases = _fairscale_cases()
        torch.distributed.destroy_process_group()
    return cases


def _fairscale_cases() -> tuple[dict[str, torch.Tensor], dict[str, dict]]:
    x, _ = inputs()
    arrays, configs = {"x": x.reshape(4, 6, WIDTH)}, {}
    # With two experts the second choice is the other one, whatever noise it is drawn with.
    for case, experts, noise in [("noise", 4, True), ("no noise", 4, False), ("two", 2, True)]:
        gate = fairscale_gate.Top2Gate(WIDTH, experts)
        networks = [
            torch.nn.Sequential(
                torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, WIDTH)
            )
            for _ in range(experts)
        ]
        layer = fairscale_layer.MOELayer(gate, torch.nn.ModuleList(networks))
        arrays |= {f"{case}/weights/{name}": value for name, value in spread(layer).items()}
        fairscale_gate.gumbel_map.clear()
        if not noise:
            device = torch.device("cpu")
            fairscale_gate.gumbel_map[device] = lambda shape: torch.zeros(shape)
        torch.manual_seed(2)
        arrays[f"{case}/y"] = layer(arrays["x"])
        arrays[f"{case}/loss"] = layer.l_aux
        torch.manual_seed(2)
        logits = gate.wg(x.reshape(-1, WIDTH))
        _, arrays[f"{case}/combine"], _ = fairscale_gate.top2gating(logits)
        configs[case] = {"experts": experts, "noise": noise}
    return arrays, configs


def mesh_cases() -> tuple[dict[str, torch.Tensor], dict[str, dict]]:
    torch.manual_seed(3)
    x = torch.randn(2, 24, WIDTH) + 0.4
    importance = (torch.arange(24) < torch.tensor([24, 17])[:, None]).float()
    arrays, configs = {"x": x, "importance": importance}, {}
    for case, options in MESH.items():
        layer = mixture_of_experts.MoE(
            WIDTH, num_experts=EXPERTS, hidden_dim=HIDDEN, loss_coef=1.0, **options
        )
        arrays |= {f"weights/{name}": tensor for name, tensor in spread(layer).items()}
        torch.manual_seed(2)
        arrays[f"{case}/uniforms"] = torch.zeros(x.shape[:2]).uniform_(0.0, 1.0)
        torch.manual_seed(2)
        arrays[f"{case}/y"], arrays[f"{case}/loss"] = layer(x)
        torch.manual_seed(2)
        _, arrays[f"{case}/combine"], _ = layer.gate(x)
        torch.manual_seed(2)
        _, arrays[f"{case}/combine padded"], _ = layer.gate(x, importance=importance)
        configs[case] = {"capacity": int(24 * 1.25 / EXPERTS)} | options
    return arrays, configs


if __name__ == "__main__":
    main()
