"""Eight virtual CPU devices, set before anything starts JAX's backend; shapes are checked.

Holds Algorithms 1 and 2 token by token, as a person would do them with a pencil.
"""

import os
import types

import jax
import numpy as np
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
# Compiling takes most of the time here; code for small arrays need not be fast. Without the newer
# emitters XLA compiles in two thirds of the time; what the caller has set goes before.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
jax.config.update("jax_disable_most_optimizations", True)

# Not the modules of pytrees: scan stacks their arrays, and jaxtyping would check them when rebuilt.
# Tests drop on purpose; `test_arguments` has the warning.
MEANT = "ignore:.*even a balanced router drops:UserWarning"


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", MEANT)


CHECKED = ["capacity", "choosing", "dispatch", "expert_choice", "gating", "grouping", "links"]
CHECKED += ["losses", "sorting"]
with install_import_hook([f"gshard_moe.{name}" for name in CHECKED], "beartype.beartype"):
    import gshard_moe  # noqa: F401


@pytest.fixture(scope="session")
def mesh():
    from gshard_annotate import make_mesh

    return make_mesh({"data": 2, "expert": 4})


@pytest.fixture(scope="session")
def one_device():
    from gshard_annotate import make_mesh

    return make_mesh({"data": 1, "expert": 1}, devices=jax.devices()[:1])


@pytest.fixture(scope="session")
def naive():
    return types.SimpleNamespace(route=naive_route, layer=naive_layer)


def naive_route(p, capacity, mask, uniforms, *, second, burn_slots=False):
    """Experts, slots (-1: none) and weights, each [G,S,2], of probabilities p [G,S,E]."""
    G, S, E = p.shape
    expert = np.zeros((G, S, 2), int)
    slot = np.full((G, S, 2), -1)
    weight = np.zeros((G, S, 2), np.float32)
    for g in range(G):
        count = [0] * E
        for s in range(S):
            order = sorted(range(E), key=lambda e: (-p[g, s, e], e))
            expert[g, s] = order[0], order[1] if E > 1 else 0
            if mask[g, s]:
                _place(slot, count, capacity, g, s, 0, expert)
        for s in range(S):
            gate = p[g, s, expert[g, s]] if E > 1 else np.array([p[g, s, 0], 0], np.float32)
            weight[g, s] = gate / gate.sum()
            wins = {"always": gate[1] > 0, "never": False}.get(second)
            wins = 2 * weight[g, s, 1] > uniforms[g, s] if wins is None else wins
            if mask[g, s] and wins:
                _place(slot, count, capacity, g, s, 1, expert)
            elif mask[g, s] and burn_slots:
                count[expert[g, s, 1]] += 1
    return expert, slot, np.where(slot >= 0, weight, 0)


def _place(slot, count, capacity, g, s, k, expert):
    """The next slot of the expert if it has one left; the count goes on in any case."""
    e = expert[g, s, k]
    if count[e] < capacity:
        slot[g, s, k] = count[e]
    count[e] += 1


def naive_layer(x, wi, wo, expert, slot, weight):
    """Each token's weighted sum of ReLU experts."""
    y = np.zeros_like(x)
    for g, s, k in np.ndindex(slot.shape):
        if slot[g, s, k] >= 0:
            e = expert[g, s, k]
            y[g, s] += weight[g, s, k] * (np.maximum(x[g, s] @ wi[e], 0) @ wo[e])
    return y
