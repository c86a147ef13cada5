"""Matmuls of blocks of rows, each with the matrix of its own expert.

Axes: N blocks, R rows of a block, E experts, A width in, B width out.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def grouped_matmul(
    ascending: bool,
    x_NRA: Float[Array, "N R A"],
    w_EAB: Float[Array, "E A B"],
    expert_N: Int[Array, " N"],
    used_N: Bool[Array, " N"],
) -> Float[Array, "N R B"]:
    """x[n] @ w[expert[n]], for blocks whose rows are 0 where they are not used.

    Blocks one after the other: `ragged_dot` multiplies every row by every expert on CPU. A block
    that is not used costs nothing, which is why a buffer may be larger than what is in it. On TPU
    and GPU forward is `ragged_dot` where the blocks are in ascending order of their experts; it
    has no rule for several such orders side by side.
    """
    if not ascending:
        return _block_by_block(x_NRA, w_EAB, expert_N, used_N)
    return jax.lax.platform_dependent(
        x_NRA, w_EAB, expert_N, used_N, cpu=_block_by_block, default=_ragged
    )


def _block_by_block(x_NRA: Array, w_EAB: Array, expert_N: Array, used_N: Array) -> Array:
    def one(block):
        x_RA, expert, used = block
        zeros = jnp.zeros((x_RA.shape[0], w_EAB.shape[2]), x_RA.dtype)
        return jax.lax.cond(used, lambda: x_RA @ w_EAB[expert], lambda: zeros)

    return jax.lax.map(one, (x_NRA, expert_N, used_N))


def _ragged(x_NRA: Array, w_EAB: Array, expert_N: Array, used_N: Array) -> Array:
    N, R, A = x_NRA.shape
    del used_N  # their rows are 0, and whose matrix they meet does not matter
    rows_E = R * (expert_N == jnp.arange(w_EAB.shape[0])[:, None]).sum(-1, dtype=jnp.int32)
    return jax.lax.ragged_dot(x_NRA.reshape(N * R, A), w_EAB, rows_E).reshape(N, R, -1)


def _forward(
    ascending: bool, x_NRA: Array, w_EAB: Array, expert_N: Array, used_N: Array
) -> tuple[Any, tuple[Array, Array, Array, Array]]:
    y_NRB = grouped_matmul(ascending, x_NRA, w_EAB, expert_N, used_N)
    return y_NRB, (x_NRA, w_EAB, expert_N, used_N)


def _backward(
    _: bool, saved: tuple[Array, Array, Array, Array], d_NRB: Array
) -> tuple[Array, Array, None, None]:
    x_NRA, w_EAB, expert_N, used_N = saved

    def one(dw_EAB, block):
        x_RA, d_RB, expert, used = block

        def both():
            dw_AB = jnp.einsum("RA,RB->AB", x_RA, d_RB, preferred_element_type=dw_EAB.dtype)
            return dw_EAB.at[expert].add(dw_AB), d_RB @ w_EAB[expert].T

        return jax.lax.cond(used, both, lambda: (dw_EAB, jnp.zeros_like(x_RA)))

    # A matrix meets many blocks: their sum is kept in float32 whatever the blocks are.
    zeros_EAB = jnp.zeros(w_EAB.shape, jnp.promote_types(w_EAB.dtype, jnp.float32))
    dw_EAB, dx_NRA = jax.lax.scan(one, zeros_EAB, (x_NRA, d_NRB, expert_N, used_N))
    return dx_NRA, dw_EAB.astype(w_EAB.dtype), None, None


grouped_matmul.defvjp(_forward, _backward)
