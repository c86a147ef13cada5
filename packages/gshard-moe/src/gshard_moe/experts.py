"""The experts' feed-forward networks on tokens in slots or rows, in the lowerings that are fast.

Axes: E experts, A slots of an expert over all groups, M model width, H hidden width; G groups,
C slots per expert and group; X parts of experts, D units, N blocks, R rows of a block.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.grouped import grouped_matmul

Activation = Callable[[Array], Array]


class Experts(NamedTuple):
    """What experts compute with: activation(x wi + bi) wo + bo.

    With a gate (GeGLU, SwiGLU) activation(x gate + bg) * (x wi + bi) is the hidden layer.
    """

    wi_EMH: Float[Array, "E M H"]
    wo_EHM: Float[Array, "E H M"]
    gate_EMH: Float[Array, "E M H"] | None = None
    bi_EH: Float[Array, "E H"] | None = None
    bo_EM: Float[Array, "E M"] | None = None
    bg_EH: Float[Array, "E H"] | None = None


def batched(
    x_EGCM: Float[Array, "E G C M"],
    experts: Experts,
    activation: Activation,
    annotate_hidden: Callable[[Array], Array] = lambda h_EGCH: h_EGCH,
) -> Float[Array, "E G C M"]:
    """All experts in one einsum, which the compiler splits over devices."""

    def into_hidden(w_EMH: Array, b_EH: Array | None) -> Array:
        a_EGCH = annotate_hidden(jnp.einsum("EGCM,EMH->EGCH", x_EGCM, w_EMH))
        return a_EGCH if b_EH is None else a_EGCH + b_EH[:, None, None]

    a_EGCH = into_hidden(experts.wi_EMH, experts.bi_EH)
    gate = None if experts.gate_EMH is None else into_hidden(experts.gate_EMH, experts.bg_EH)
    y_EGCM = jnp.einsum("EGCH,EHM->EGCM", _hidden(activation, a_EGCH, gate), experts.wo_EHM)
    return y_EGCM if experts.bo_EM is None else y_EGCM + experts.bo_EM[:, None, None]


def one_by_one(
    x_EGCM: Float[Array, "E G C M"], experts: Experts, activation: Activation
) -> Float[Array, "E G C M"]:
    """One expert after the other, whose hidden layer then stays in the cache; for one device."""
    E, G, C, M = x_EGCM.shape
    y_EAM: Array = _one_by_one(activation, x_EGCM.reshape(E, G * C, M), experts)
    return y_EAM.reshape(E, G, C, M)


def by_blocks(
    x_XDNRM: Float[Array, "X D N R M"],
    experts: Experts,
    activation: Activation,
    expert_XDN: Int[Array, "X D N"],
    used_XDN: Bool[Array, "X D N"],
    *,
    ascending: bool,
) -> Float[Array, "X D N R M"]:
    """Each block of rows through its own expert; ascending: whether experts are, in each unit."""
    X, D = expert_XDN.shape[:2]
    apply = functools.partial(_blocks, activation, ascending and X * D == 1)
    if X * D == 1:  # not through vmap, which would compute blocks that are not used
        return apply(experts, x_XDNRM[0, 0], expert_XDN[0, 0], used_XDN[0, 0])[None, None]
    parts = jax.tree.map(lambda w: w.reshape(X, -1, *w.shape[1:]), experts)
    apply = jax.vmap(jax.vmap(apply, in_axes=(None, 0, 0, 0)))
    return apply(parts, x_XDNRM, expert_XDN, used_XDN)


@jax.custom_vjp
def _relu(a: Array) -> Array:
    """`jax.nn.relu` with a gradient that needs no mask beside the result, which is kept anyway."""
    return jax.nn.relu(a)


def _relu_forward(a: Array) -> tuple[Array, Array]:
    h = jax.nn.relu(a)
    return h, h


def _relu_backward(h: Array, d: Array) -> tuple[Array]:
    # A product, not a selection: for that the TPU compiler writes the mask to memory.
    return (d * jnp.sign(h),)


_relu.defvjp(_relu_forward, _relu_backward)


def _hidden(activation: Activation, a: Array, gate: Array | None) -> Array:
    activation = _relu if activation is jax.nn.relu else activation
    return activation(a) if gate is None else activation(gate) * a


def _blocks(
    activation: Activation,
    ascending: bool,
    experts: Experts,
    x_NRM: Array,
    expert_N: Array,
    used_N: Array,
) -> Array:
    def multiply(x_NRA: Array, w_EAB: Array, b_EB: Array | None) -> Array:
        y_NRB: Array = grouped_matmul(ascending, x_NRA, w_EAB, expert_N, used_N)
        return y_NRB if b_EB is None else y_NRB + b_EB[expert_N][:, None]

    a_NRH = multiply(x_NRM, experts.wi_EMH, experts.bi_EH)
    gate = None if experts.gate_EMH is None else multiply(x_NRM, experts.gate_EMH, experts.bg_EH)
    return multiply(_hidden(activation, a_NRH, gate), experts.wo_EHM, experts.bo_EM)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _one_by_one(
    activation: Activation, x_EAM: Float[Array, "E A M"], experts: Experts
) -> Float[Array, "E A M"]:
    """One expert at a time, backward too. Keeps as few [E,A,H] arrays as it can."""
    return _one_by_one_forward(activation, x_EAM, experts)[0]


def _one_by_one_forward(
    activation: Activation, x_EAM: Array, experts: Experts
) -> tuple[Any, tuple[Array, Experts, Any]]:
    """The outputs, and for the backward what goes into the activation, or what relu lets out."""

    def one(x_and_expert):
        x_AM, (wi_MH, wo_HM, gate_MH, bi_H, bo_M, bg_H) = x_and_expert
        a_AH = _affine(x_AM, wi_MH, bi_H)
        gate_AH = None if gate_MH is None else _affine(x_AM, gate_MH, bg_H)
        h_AH = _hidden(activation, a_AH, gate_AH)
        kept = h_AH if _is_relu(activation, experts) else (a_AH, gate_AH)
        return _affine(h_AH, wo_HM, bo_M), kept

    y_EAM, kept = jax.lax.map(one, (x_EAM, experts))
    return y_EAM, (x_EAM, experts, kept)


def _is_relu(activation: Activation, experts: Experts) -> bool:
    """Whether the gradient of the hidden layer can be told from its value."""
    return activation is jax.nn.relu and experts.gate_EMH is None


def _one_by_one_backward(
    activation: Activation, saved: tuple[Array, Experts, Any], d_EAM: Array
) -> tuple[Array, Experts]:
    x_EAM, experts, kept = saved
    relu = _is_relu(activation, experts)

    def one(each):
        expert, kept, d_AM = each
        dh_AH = d_AM @ expert.wo_EHM.T
        if relu:
            return _into_tokens(expert, jnp.where(kept > 0, dh_AH, 0), None), None
        h_AH, back = jax.vjp(functools.partial(_hidden, activation), *kept)
        return _into_tokens(expert, *back(dh_AH)), h_AH.T @ d_AM

    (dx_EAM, da_EAH, dgate_EAH), dwo_EHM = jax.lax.map(one, (experts, kept, d_EAM))
    # Those of the weights at once: written into one array anyway, they gain nothing from the cache.
    from_x = functools.partial(jnp.einsum, "EAM,EAH->EMH", x_EAM)
    return dx_EAM, Experts(
        wi_EMH=from_x(da_EAH),
        wo_EHM=jnp.einsum("EAH,EAM->EHM", kept, d_EAM) if relu else dwo_EHM,
        gate_EMH=None if dgate_EAH is None else from_x(dgate_EAH),
        bi_EH=None if experts.bi_EH is None else da_EAH.sum(1),
        bo_EM=None if experts.bo_EM is None else d_EAM.sum(1),
        bg_EH=None if experts.bg_EH is None or dgate_EAH is None else dgate_EAH.sum(1),
    )


def _into_tokens(
    expert: Experts, da_AH: Array, dgate_AH: Array | None
) -> tuple[Array, Array, Array | None]:
    dx_AM = da_AH @ expert.wi_EMH.T
    if dgate_AH is not None and expert.gate_EMH is not None:
        dx_AM += dgate_AH @ expert.gate_EMH.T
    return dx_AM, da_AH, dgate_AH


_one_by_one.defvjp(_one_by_one_forward, _one_by_one_backward)


def _affine(x_AM: Array, w_MH: Array, b_H: Array | None) -> Array:
    return x_AM @ w_MH if b_H is None else x_AM @ w_MH + b_H
