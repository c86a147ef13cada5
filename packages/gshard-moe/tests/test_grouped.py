"""Matmuls of blocks: what TPU and GPU run is what the CPU runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_moe.grouped import _block_by_block, _ragged, grouped_matmul

N, R, E, A, B = 6, 4, 5, 3, 7


@pytest.mark.parametrize("experts", [[0, 0, 1, 3, 3, 4], [2, 2, 2, 2, 2, 2], [0, 1, 2, 3, 4, 4]])
@pytest.mark.parametrize("used", [6, 4, 0])
def test_ragged_matmuls_are_those_of_one_block_after_the_other(experts, used):
    keys = jax.random.split(jax.random.key(0))
    used_N = jnp.arange(N) < used
    x_NRA = jax.random.normal(keys[0], (N, R, A)) * used_N[:, None, None]
    w_EAB = jax.random.normal(keys[1], (E, A, B))
    arguments = (x_NRA, w_EAB, jnp.array(experts), used_N)
    expected = np.einsum("nra,nab->nrb", x_NRA, np.asarray(w_EAB)[np.array(experts)])
    np.testing.assert_allclose(_block_by_block(*arguments), expected, atol=1e-5)
    np.testing.assert_allclose(_ragged(*arguments), expected, atol=1e-5)
    np.testing.assert_allclose(grouped_matmul(True, *arguments), expected, atol=1e-5)
