"""Against a port of Mesh TensorFlow's layer, by GShard's authors: `mixture-of-experts` 0.2.3.

Its policy "random" with threshold 0.5 is the paper's coin; only winners take slots, and gates are
normalised before dropping. Nothing differs but the unit of capacity (int(1.25 S/E), at least 4).
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, top2

GOLDEN = np.load(pathlib.Path(__file__).parent / "goldens" / "mesh_tensorflow.npz")
CONFIGS = json.loads(str(GOLDEN["configs"]))
X, MASK = GOLDEN["x"], GOLDEN["importance"] > 0
G, S, M = X.shape
E, H = 4, 10
PARAMETERS = {"router": "gate.w_gating", "wi": "experts.w1", "wo": "experts.w2"}
SECOND = {"all": "always", "none": "never", "random": "random"}


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


@pytest.fixture(params=CONFIGS)
def case(request, monkeypatch):
    """The policy, with the numbers that theirs drew."""
    uniforms = jnp.asarray(GOLDEN[f"{request.param}/uniforms"])
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: uniforms)
    return request.param


def combine_weights(case, mask):
    logits = jnp.asarray(X @ GOLDEN["weights/gate.w_gating"])
    capacity = CONFIGS[case]["capacity"]

    @jax.jit
    def route(logits, mask):
        options = {"second": SECOND[case], "key": jax.random.key(0)}
        routing = top2(logits, capacity=capacity, mask_GS=mask, **options)
        expert = jax.nn.one_hot(routing.expert_GSK, E) * routing.weight_GSK[..., None]
        slot = jax.nn.one_hot(routing.slot_GSK, capacity)
        return jnp.einsum("GSKE,GSKC->GSEC", expert, slot)

    return np.asarray(route(logits, mask))


@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
def test_the_same_experts_slots_and_weights(case, mask):
    theirs = GOLDEN[f"{case}/combine" if mask is None else f"{case}/combine padded"]
    ours = combine_weights(case, mask)
    np.testing.assert_array_equal(ours > 0, theirs > 0)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_same_outputs_and_loss(case):
    capacity = CONFIGS[case]["capacity"]
    layer = MoELayer(
        E, M, H, second_expert=SECOND[case], slots_per_token=capacity * E / S, rngs=nnx.Rngs(0)
    )
    arrays = {name: GOLDEN[f"weights/{theirs}"] for name, theirs in PARAMETERS.items()}
    nnx.update(layer, jax.tree.map(jnp.asarray, arrays))
    y, output = nnx.jit(lambda layer, x: layer(x, key=jax.random.key(0)))(layer, X)
    np.testing.assert_allclose(y, GOLDEN[f"{case}/y"], atol=1e-5)
    np.testing.assert_allclose(output.balance_loss, GOLDEN[f"{case}/loss"], rtol=1e-6)
    assert output.statistics.dropped_K.sum() > 0
