"""Tokens of a batch to equal groups and back.

The number of groups is the user's, never derived from devices: the same configuration routes the
same on one device and on thousands.

Axes: B batch, L length, G groups, S tokens per group, M model width.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


def group(
    x_BLM: Float[Array, "B L M"],
    mask_BL: Bool[Array, "B L"] | None = None,
    num_groups: int | None = None,
    *,
    group_size: int | None = None,
) -> tuple[Float[Array, "G S M"], Bool[Array, "G S"] | None]:
    """The tokens in row order, cut into equal groups, and their mask.

    Args:
      x_BLM: Tokens of a batch.
      mask_BL: False for padding.
      num_groups: How many groups.
      group_size: Instead, how many tokens of each.

    Raises:
      ValueError: The tokens do not fall into equal groups so, or the mask does not fit.
    """
    if x_BLM.ndim != 3:
        raise ValueError(f"group: x has shape {x_BLM.shape}; give [batch, length, width]")
    batch, length, width = x_BLM.shape
    faults = _mask_faults(mask_BL, (batch, length))
    if (num_groups is None) == (group_size is None):
        faults.append(
            f"num_groups is {num_groups} and group_size is {group_size}; give one of them"
        )
    elif group_size is None:
        faults += _faults("{} equal groups", "{} groups", num_groups, batch, length)
    else:
        faults += _faults("groups of {}", "groups of {}", group_size, batch, length)
    if faults:
        raise ValueError(f"group: {'; '.join(faults)}")
    tokens = batch * length
    num_groups = num_groups if num_groups is not None else tokens // (group_size or 1)
    mask_GS = None if mask_BL is None else mask_BL.reshape(num_groups, -1)
    return x_BLM.reshape(num_groups, tokens // num_groups, width), mask_GS


def ungroup(x_GSM: Float[Array, "G S M"], batch_size: int) -> Float[Array, "B L M"]:
    """What `group` made of a batch of this size, as a batch again.

    Raises:
      ValueError: The tokens do not fall into that many equal rows.
    """
    groups, size, width = x_GSM.shape
    if batch_size < 1 or groups * size % batch_size:
        raise ValueError(
            f"ungroup: {groups * size} tokens (groups {groups} x size {size}) do not fall into "
            f"{batch_size} equal rows; give the batch size that was grouped"
        )
    return x_GSM.reshape(batch_size, groups * size // batch_size, width)


def _mask_faults(mask_BL: Any, shape: tuple[int, int]) -> list[str]:
    if mask_BL is None:
        return []
    if not hasattr(mask_BL, "dtype"):
        return [f"mask is {mask_BL!r}; give bool{list(shape)} or None"]
    if mask_BL.shape == shape and mask_BL.dtype == jnp.bool_:
        return []
    return [f"mask is {mask_BL.dtype}{list(mask_BL.shape)}; give bool{list(shape)}"]


def _faults(what: str, give: str, given: Any, batch: int, length: int) -> list[str]:
    """That the tokens do not fall into so many groups, or into groups of that size."""
    tokens = batch * length
    if not isinstance(given, (int, np.integer)):
        return [f"{what.format(given)}: {given!r} is no whole number; give an int"]
    if given >= 1 and tokens % given == 0:
        return []
    return [
        f"{tokens} tokens (batch {batch} x length {length}) do not fall into "
        f"{what.format(given)}; give {give.format(_near_divisors(tokens, int(given)))}"
    ]


def _near_divisors(number: int, near: int) -> str:
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    best = sorted(sorted(divisors, key=lambda n: abs(n - near))[:4])
    return f"{', '.join(map(str, best[:-1]))} or {best[-1]}" if len(best) > 1 else str(best[0])
