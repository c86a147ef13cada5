"""What the backward pass computes again instead of keeping it."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
from jax.ad_checkpoint import checkpoint_policies

Policy = Literal["none", "full", "save_dispatch"]
Block = Literal["attention", "feed_forward", "experts"]
Remat = Policy | tuple[Block, ...]

_ALL_TO_ALL_RESULTS = ("moe_dispatch", "moe_combine")

Function = Callable[..., Any]


def recomputed_pair(pair: Function, remat: Remat) -> Function:
    """A pair of layers of which the policy's part is kept."""
    if remat == "none" or not isinstance(remat, str):
        return pair
    names = _ALL_TO_ALL_RESULTS if remat == "save_dispatch" else ()
    return jax.checkpoint(pair, policy=checkpoint_policies.save_only_these_names(*names))


def recomputed_block(function: Function, block: Block, remat: Remat) -> Function:
    """A block of a layer of which only the input is kept, where `remat` names it."""
    return function if isinstance(remat, str) or block not in remat else jax.checkpoint(function)


def remat_fault(remat: Any, num_experts: Any) -> str | None:
    """What is wrong with this choice."""
    if isinstance(remat, str) and remat in get_args(Policy):
        return None
    blocks = get_args(Block)
    if not isinstance(remat, tuple) or not remat or set(remat) - set(blocks):
        example = f"('{remat}',)" if remat in blocks else "('attention', 'experts')"
        return (
            f"remat={remat!r} must be one of {', '.join(get_args(Policy))}, or a tuple of "
            f"{', '.join(blocks)}, such as {example}"
        )
    if "experts" in remat and num_experts == 0:
        return f"remat={remat!r} names experts, and num_experts=0; leave them out"
    return None
