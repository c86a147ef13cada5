"""Tokens sorted by expert, in a buffer of rows instead of slots per expert: none need be dropped.

Rows come in blocks that belong to one expert each, so that experts are matmuls over blocks
(`grouped`). Experts may fall into parts and groups into units, each pair of which has its own rows:
with experts split over devices, such a buffer is what an all-to-all of fixed size exchanges.

Axes: G groups, S tokens per group, E experts, K choices per token, X parts of experts, D units of
groups, N blocks of a part and unit, R rows of a block, M model width.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gshard_moe.choosing import count_before, in_choice_order, pick
from gshard_moe.links import Links, from_slots, links_of, to_slots
from gshard_moe.routing import Routing

# Rows of a block: below, a matmul waits for its weights; above, half-empty blocks cost more.
_FEWEST_ROWS, _MOST_ROWS = 8, 64


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sorted:
    """A Routing and where each of its choices stands in the buffer.

    Attributes:
      routing: The routing without the choices that found the buffer full (those of the last rank
        first: `sort`): what statistics take.
      overflowed: How many those are. 0 for sure when `slots_per_token` was None.
      expert_XDN: The expert of each block, counted within its part.
      used_XDN: Whether any row of the block is.
      links: Which row each choice has, by unit, and the reverse.
      block_rows: R.
    """

    routing: Routing
    overflowed: Int[Array, ""]
    expert_XDN: Int[Array, "X D N"]
    used_XDN: Bool[Array, "X D N"]
    links: Links
    block_rows: int = dataclasses.field(metadata={"static": True})


@jax.named_scope("dispatch")
def sort(
    routing: Routing,
    *,
    expert_parts: int = 1,
    group_units: int = 1,
    slots_per_token: float | None = None,
    block_rows: int | None = None,
) -> Sorted:
    """The routing with its choices sorted by expert; give it one without a limit of slots.

    The rows of a part and unit go to all first choices in token order, then to all second ones, and
    so on, whichever experts they are of, as slots do in Algorithm 1.

    Args:
      routing: With S slots per expert (`capacity=S`) nothing was dropped before.
      expert_parts: X, a multiple of the devices that experts are split over.
      group_units: D, a multiple of the devices that groups are split over.
      slots_per_token: Rows of all parts together per token, beside what blocks are padded with;
        None for as many as can ever be needed, which drops nothing.
      block_rows: R; None for about as many as an expert gets tokens of a unit, 8 to 64.

    Raises:
      ValueError: Everything that is wrong with the arguments, at once.
    """
    G, S, K = routing.kept_GSK.shape
    E, X, D = routing.num_experts, expert_parts, group_units
    _check(E, G, X, D, slots_per_token, block_rows)
    tokens = G // D * S
    R = block_rows or _block_rows(tokens * K / E)
    most = _most_rows(tokens, min(K, E // X), X, slots_per_token)
    N = _num_blocks(most, E // X, R)
    given_GSK = routing.kept_GSK
    if slots_per_token is not None:
        routing = _within(routing, most, X, D)

    need_GE = _rows_needed(routing).reshape(D, G // D, E)
    before_DGE = jnp.cumsum(need_GE, 1) - need_GE
    blocks_DXe = -(-need_GE.sum(1) // R).reshape(D, X, E // X)
    ends_DXe = jnp.cumsum(blocks_DXe, -1)
    start_DE = ((ends_DXe - blocks_DXe) * R).reshape(D, 1, E)
    first_GE = (start_DE + before_DGE).reshape(G, 1, E)
    row_GSK = routing.slot_GSK + _look_up(first_GE, routing.expert_GSK)
    row_GSK += routing.expert_GSK // (E // X) * N * R
    row_GSK = jnp.where(routing.kept_GSK, row_GSK, X * N * R)
    block_N = jnp.arange(N)
    # Blocks behind the last expert's are nobody's; they count as its, and hold zeros.
    expert_DXN = (ends_DXe[..., None, :] <= block_N[:, None]).sum(-1)
    return Sorted(
        routing=routing,
        overflowed=(given_GSK & ~routing.kept_GSK).sum(),
        expert_XDN=jnp.minimum(expert_DXN, E // X - 1).swapaxes(0, 1),
        used_XDN=(block_N < ends_DXe[..., -1:]).swapaxes(0, 1),
        links=links_of(row_GSK.reshape(D, tokens, K), X * N * R),
        block_rows=R,
    )


def rows_without_limit(tokens: int, choices: int, experts: int, parts: int) -> int:
    """Rows that `sort` has for a unit of so many tokens, all parts together."""
    rows = _block_rows(tokens * choices / experts)
    most = _most_rows(tokens, min(choices, experts // parts), parts, None)
    return parts * rows * _num_blocks(most, experts // parts, rows)


@jax.named_scope("dispatch")
def dispatch_sorted(x_GSM: Float[Array, "G S M"], order: Sorted) -> Float[Array, "X D N R M"]:
    """Copies each token into the rows that it was given; free rows are 0."""
    X, D, N = order.expert_XDN.shape
    x_DTM = x_GSM.reshape(D, -1, x_GSM.shape[-1])
    x_DLM = to_slots(x_DTM, order.links)
    return x_DLM.reshape(D, X, N, order.block_rows, -1).swapaxes(0, 1)


@jax.named_scope("combine")
def combine_sorted(y_XDNRM: Float[Array, "X D N R M"], order: Sorted) -> Float[Array, "G S M"]:
    """The weighted sum of each token's rows; 0 for a token that has none."""
    G, S, K = order.routing.weight_GSK.shape
    X, D, N, R, M = y_XDNRM.shape
    y_DLM = y_XDNRM.swapaxes(0, 1).reshape(D, X * N * R, M)
    weight_DTK = order.routing.weight_GSK.reshape(D, -1, K)
    return from_slots(y_DLM, weight_DTK, order.links).reshape(G, S, M)


def _check(
    E: int, G: int, X: int, D: int, slots_per_token: float | None, block_rows: int | None
) -> None:
    faults = []
    if X < 1 or E % X:
        faults.append(f"expert_parts is {X} for {E} experts; give a divisor of {E}")
    if D < 1 or G % D:
        faults.append(f"group_units is {D} for {G} groups; give a divisor of {G}")
    if slots_per_token is not None and not slots_per_token > 0:
        faults.append(f"slots_per_token is {slots_per_token}; give more than 0, or None")
    if block_rows is not None and block_rows < 1:
        faults.append(f"block_rows is {block_rows}; give at least 1, or None")
    if faults:
        raise ValueError(f"sort: {'; '.join(faults)}")


def _block_rows(rows_per_expert: float) -> int:
    rows = _FEWEST_ROWS
    while 2 * rows <= min(rows_per_expert, _MOST_ROWS):
        rows *= 2
    return rows


def _most_rows(tokens: int, choices: int, parts: int, slots_per_token: float | None) -> int:
    """Rows of a part and unit, beside what blocks are padded with."""
    most = tokens * choices
    if slots_per_token is None:
        return most
    return min(most, round(slots_per_token * tokens / parts + 0.5 - 1e-9))


def _num_blocks(most: int, experts: int, rows: int) -> int:
    """So many that `most` rows fit: each expert leaves at most rows - 1 of its last block free."""
    return (most + min(experts, most) * (rows - 1)) // rows


def _within(routing: Routing, most: int, parts: int, units: int) -> Routing:
    """The routing with the first `most` choices of each part and unit, in rows without a gap."""
    G, S, K = routing.kept_GSK.shape
    E = routing.num_experts
    part_GSK = jnp.where(routing.kept_GSK, routing.expert_GSK // (E // parts), parts)
    part_DKT = part_GSK.reshape(units, G // units * S, K).swapaxes(1, 2)
    part_DLX = part_DKT.reshape(units, -1, 1) == jnp.arange(parts)
    fits_DL = part_DLX.any(-1) & (pick(count_before(part_DLX), part_DLX) < most)
    fits_GSK = fits_DL.reshape(units, K, -1).swapaxes(1, 2).reshape(G, S, K)
    # Slots that lost coins burned are rows no more: they would be rows over the limit.
    expert_GSKE = routing.expert_GSK[..., None] == jnp.arange(E)
    one_hots = [expert_GSKE[:, :, k] & fits_GSK[..., k, None] for k in range(K)]
    slots = [pick(*pair) for pair in zip(in_choice_order(one_hots), one_hots, strict=True)]
    return dataclasses.replace(
        routing,
        kept_GSK=fits_GSK,
        slot_GSK=jnp.where(fits_GSK, jnp.stack(slots, -1), routing.capacity),
        weight_GSK=jnp.where(fits_GSK, routing.weight_GSK, 0.0),
    )


def _rows_needed(routing: Routing) -> Int[Array, "G E"]:
    """One more than the last slot taken: slots that lost coins burned stay free."""
    E = routing.num_experts
    expert_GSKE = routing.expert_GSK[..., None] == jnp.arange(E)
    rows_GSK = jnp.where(routing.kept_GSK, routing.slot_GSK + 1, 0)
    return jnp.where(expert_GSKE, rows_GSK[..., None], 0).max((1, 2))


def _look_up(table_G1E: Int[Array, "G 1 E"], expert_GSK: Int[Array, "G S K"]) -> Array:
    flat_GT1 = expert_GSK.reshape(expert_GSK.shape[0], -1, 1)
    return jnp.take_along_axis(table_G1E, flat_GT1, axis=-1).reshape(expert_GSK.shape)
