"""How many tokens an expert takes from one group.

The unit: `slots_per_token` counts the slots of all experts together per token of the group, so
slots per group and expert are slots_per_token * S / E. The paper's capacity 2S/E is 2.0.
"""

import math

PAPER_SLOTS_PER_TOKEN = 2.0

# Who calls slots_per_token by its value, and who divides it by the two choices of top-2.
_SAME_UNIT = ("flaxformer", "lingvo", "praxis")
_PER_CHOICE = ("DeepSpeed", "MaxText", "Megatron-Core", "Tutel", "vmoe")


def capacity(
    group_size: int,
    num_experts: int,
    *,
    slots_per_token: float | None = PAPER_SLOTS_PER_TOKEN,
    minimum: int = 1,
    multiple_of: int = 1,
) -> int:
    """Slots C that each expert has for each group.

    slots_per_token * S / E rounded up, at least `minimum`, rounded up to `multiple_of`, and never
    more than S: a token takes at most one slot of an expert, so S slots drop nothing.

    Args:
      group_size: Tokens per group, S.
      num_experts: E.
      slots_per_token: Slots of all experts together per token; None for S slots (drops nothing).
      minimum: Fewest slots of an expert.
      multiple_of: Rounding, for hardware that prefers 4 or 8.

    Raises:
      ValueError: An argument that is not positive.
    """
    given = {"group_size": group_size, "num_experts": num_experts, "minimum": minimum}
    given |= {"multiple_of": multiple_of}
    given |= {} if slots_per_token is None else {"slots_per_token": slots_per_token}
    if wrong := [f"{name} is {value}" for name, value in given.items() if not value > 0]:
        raise ValueError(f"capacity: {', '.join(wrong)}; must be greater than 0")
    if slots_per_token is None:
        return group_size
    # 1e-9: 1.1 * 10 / 1 is 11.000000000000002 in binary, and means 11.
    slots = max(minimum, math.ceil(slots_per_token * group_size / num_experts - 1e-9))
    return min(group_size, math.ceil(slots / multiple_of) * multiple_of)


def explain_capacity(
    group_size: int,
    num_experts: int,
    *,
    slots_per_token: float | None = PAPER_SLOTS_PER_TOKEN,
    minimum: int = 1,
    multiple_of: int = 1,
) -> str:
    """A few lines: the slots, what they can hold, and what others would call the same setting.

    The other names are for top-2 routing. Takes and raises what `capacity` does.
    """
    slots = capacity(
        group_size,
        num_experts,
        slots_per_token=slots_per_token,
        minimum=minimum,
        multiple_of=multiple_of,
    )
    effective = slots * num_experts / group_size
    asked = "no limit" if slots_per_token is None else f"slots_per_token={slots_per_token:g}"
    if slots == group_size:
        drops = "nothing can be dropped: an expert has a slot for every token of the group"
    elif effective < 2:
        drops = f"at least {(2 - effective) / 2:.1%} of the choices are dropped if all ask for one"
    else:
        drops = f"an expert drops once it is chosen by more than {slots} of {group_size} tokens"
    return (
        f"capacity: {slots} slots per group and expert "
        f"({asked}, group of {group_size} tokens, {num_experts} experts)\n"
        f"  in effect {effective:.3g} slots per token (the paper: 2); {drops}\n"
        f"  capacity factor {effective:.3g} in {', '.join(_SAME_UNIT)}\n"
        f"  capacity factor {effective / 2:.3g} in {', '.join(_PER_CHOICE)}"
    )
