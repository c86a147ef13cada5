"""NaN in a router's logits: the layer is named, on several devices too, and others are spared."""

import re
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, TopK, raise_if_not_finite
from gshard_moe.output import MoEOutput

G, S, E, M, H = 8, 6, 4, 5, 7


def make(**options):
    return MoELayer(E, M, H, router=TopK(2), rngs=nnx.Rngs(0), **options)


def apply(layer, x, mesh):
    with rules_scope(DEFAULT_RULES, mesh):
        return layer(x, deterministic=True)


def tokens():
    return jax.random.normal(jax.random.key(1), (G, S, M))


def test_the_count_of_eight_devices_names_the_layers(mesh):
    layer, x = make(), tokens()
    _, good = apply(layer, x, mesh)
    bad = jax.device_put(x.at[1, 2, 0].set(jnp.nan).at[7, 0, 1].set(jnp.inf))
    _, wrong = jax.jit(lambda x: apply(layer, x, mesh))(bad)
    assert (good.non_finite, wrong.non_finite) == (0, 2 * E)
    raise_if_not_finite([good, good])
    message = (
        "first: layer 0: 8; third: layer 2: 8 router logits are NaN or infinite; look at what "
        "comes into this layer and at its router's weights"
    )
    with pytest.raises(FloatingPointError, match=f"^{re.escape(message)}$"):
        raise_if_not_finite([wrong, good, wrong], ["first", "second", "third"])
    stacked: MoEOutput = jax.tree.map(lambda *each: jnp.stack(each), good, wrong)
    with pytest.raises(FloatingPointError, match=r"^stack: layer 1: 8 router logits"):
        raise_if_not_finite(stacked, "stack")
    message = "raise_if_not_finite: 1 names for 2 outputs; give one name, or one for each"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        raise_if_not_finite([good, good], ["one"])


def test_stopping_the_program_is_refused_on_several_devices(mesh):
    message = (
        "experts: check_finite=True stops one device and the mesh has 8, whose others would wait "
        "for it; give check_finite=False, and the output of each step to raise_if_not_finite"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        apply(make(check_finite=True, name="experts"), tokens(), mesh)


PROGRAM = """
import jax, jax.numpy as jnp
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
from flax import nnx
from gshard_annotate import DEFAULT_RULES, make_mesh, rules_scope
from gshard_moe import MoELayer, TopK
from gshard_moe import raise_if_not_finite
layer = MoELayer(4, 5, 7, router=TopK(2), rngs=nnx.Rngs(0))
mesh = make_mesh({"data": 2, "expert": 4})

def loss(x):
    with rules_scope(DEFAULT_RULES, mesh):
        y, output = layer(x)
    return (y**2).sum(), output

x = jnp.ones((8, 6, 5)).at[3, 1, 0].set(jnp.nan)
groups = jax.NamedSharding(mesh, jax.P(("data", "expert")))
_, output = jax.jit(jax.grad(loss, has_aux=True))(jax.device_put(x, groups))
raise_if_not_finite(output, "experts")
"""


def test_a_program_on_eight_devices_ends_with_the_name_of_the_layer():
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1
    assert "FloatingPointError: experts: layer 0: 4 router logits are NaN" in run.stderr


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("dispatch", ["einsum", "gather", "sorted"])
def test_a_token_that_is_not_finite_reaches_others_only_by_einsums(dispatch, value, one_device):
    layer = make(dispatch=dispatch, slots_per_token=None)
    x = tokens()
    good, output = apply(layer, x, one_device)
    # The last: free slots and rows take their numbers from there.
    wrong, _ = apply(layer, x.at[0, S - 1].set(value), one_device)
    others = np.ones((G, S), bool)
    others[0, S - 1] = False
    same = np.array_equal(np.asarray(good)[others], np.asarray(wrong)[others])
    assert same == (dispatch != "einsum") == output.batch_independent


def test_jitter_depends_on_the_place_among_others(one_device):
    options = {"jitter": 0.1, "slots_per_token": None}
    layer = make(**options)
    with rules_scope(DEFAULT_RULES, one_device):
        _, trained = layer(tokens(), key=jax.random.key(0))
        _, evaluated = layer(tokens(), deterministic=True)
    assert not trained.batch_independent
    assert evaluated.batch_independent
