"""Tokens of a batch to equal groups and back.

The number of groups is the user's, never derived from devices: the same configuration routes the
same on one device and on thousands.

Axes: B batch, L length, G groups, S tokens per group, M model width.
"""

from jaxtyping import Array, Bool, Float


def group(
    x_BLM: Float[Array, "B L M"],
    mask_BL: Bool[Array, "B L"] | None,
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
    batch, length, width = x_BLM.shape
    tokens = batch * length
    if (num_groups is None) == (group_size is None):
        raise ValueError(
            f"group: num_groups is {num_groups} and group_size is {group_size}; give one of them"
        )
    if mask_BL is not None and mask_BL.shape != (batch, length):
        raise ValueError(f"group: mask has shape {mask_BL.shape}; give {(batch, length)}")
    if group_size is not None:
        if group_size < 1 or tokens % group_size:
            raise ValueError(
                f"group: {tokens} tokens (batch {batch} x length {length}) do not fall into groups "
                f"of {group_size}; give groups of {_near_divisors(tokens, group_size)}"
            )
        num_groups = tokens // group_size
    assert num_groups is not None
    if num_groups < 1 or tokens % num_groups:
        raise ValueError(
            f"group: {tokens} tokens (batch {batch} x length {length}) do not fall into "
            f"{num_groups} equal groups; give {_near_divisors(tokens, num_groups)} groups"
        )
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


def _near_divisors(number: int, near: int) -> str:
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    best = sorted(sorted(divisors, key=lambda n: abs(n - near))[:4])
    return f"{', '.join(map(str, best[:-1]))} or {best[-1]}" if len(best) > 1 else str(best[0])
