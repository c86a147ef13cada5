"""How many tokens an expert takes from one group.

The unit: `slots_per_token` counts the slots of all experts together per token of the group, so
slots per group and expert are slots_per_token * S / E. The paper's capacity 2S/E is 2.0.
"""

import math
from collections.abc import Callable

PAPER_SLOTS_PER_TOKEN = 2.0

# Who calls slots_per_token by its value, and who divides it by the choices of a token.
_SAME_UNIT = ("flaxformer", "lingvo", "praxis")
_PER_CHOICE = ("DeepSpeed", "MaxText", "Megatron-Core", "Tutel", "vmoe")
# How others say that there is no limit.
_NO_LIMIT = (
    "moe_expert_capacity_factor=None in Megatron-Core, drop_tokens=False in DeepSpeed, "
    "capacity_factor=0 in Tutel and -1 in MaxText"
)


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
    faults = _faults(group_size, num_experts, slots_per_token, minimum, multiple_of)
    if faults:
        raise ValueError(f"capacity: {'; '.join(faults)}")
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
    choices: int = 2,
) -> str:
    """A few lines: the slots, what they can hold, and what others would call the same setting.

    For training and evaluation alike: None is the evaluation that drops nothing.

    Args:
      group_size: Tokens per group, S.
      num_experts: E.
      slots_per_token: Slots of all experts together per token; None for S slots each.
      minimum: Fewest slots of an expert.
      multiple_of: Rounding.
      choices: Experts per token: 2 for top-2.

    Raises:
      ValueError: An argument that is not positive, or more choices than experts.
    """
    faults = _faults(group_size, num_experts, slots_per_token, minimum, multiple_of)
    # A token of one expert has no second choice.
    if choices < 1 or choices > max(2, num_experts):
        most = f"1 to {num_experts}" if num_experts >= 1 else "1 or more"
        faults.append(f"choices is {choices} of {num_experts} experts; give {most}")
    if faults:
        raise ValueError(f"explain_capacity: {'; '.join(faults)}")
    slots = capacity(
        group_size,
        num_experts,
        slots_per_token=slots_per_token,
        minimum=minimum,
        multiple_of=multiple_of,
    )
    effective = slots * num_experts / group_size
    asked = "no limit" if slots_per_token is None else f"slots_per_token={slots_per_token:g}"
    lines = [
        f"capacity: {slots} slots per group and expert "
        f"({asked}, group of {group_size} tokens, {num_experts} experts)",
        f"  in effect {effective:.3g} slots per token (the paper: 2); "
        + _drops(slots, group_size, effective, choices),
        *_elsewhere(slots, group_size, num_experts, choices, slots_per_token),
    ]
    if slots == group_size:
        return "\n".join([*lines, f"  as without a limit: {_NO_LIMIT}"])
    return "\n".join([*lines, f"  cannot drop from slots_per_token={num_experts} on, or with None"])


def capacity_factor_means(factor: float, choices: float) -> str:
    """What a capacity factor is here, for those who bring one along: it has two units."""
    return (
        f"{factor:g}, which in {', '.join(_PER_CHOICE)} is slots_per_token={factor * choices:g} "
        f"and in {', '.join(_SAME_UNIT)} slots_per_token={factor:g}; give slots_per_token"
    )


def _drops(slots: int, group_size: int, effective: float, choices: int) -> str:
    if slots == group_size:
        return "nothing can be dropped: an expert has a slot for every token of the group"
    if effective < choices:
        share, experts = (choices - effective) / choices, "expert" if choices == 1 else "experts"
        return (
            f"at least {share:.1%} of the choices are dropped when every token asks for "
            f"{choices} {experts}"
        )
    return f"an expert drops once it is chosen by more than {slots} of {group_size} tokens"


def _faults(
    group_size: int,
    num_experts: int,
    slots_per_token: float | None,
    minimum: int,
    multiple_of: int,
) -> list[str]:
    given = {"group_size": group_size, "num_experts": num_experts, "minimum": minimum}
    given |= {"multiple_of": multiple_of}
    given |= {} if slots_per_token is None else {"slots_per_token": slots_per_token}
    wrong = [f"{name} is {value}" for name, value in given.items() if not value > 0]
    faults = [f"{', '.join(wrong)}; must be greater than 0"] if wrong else []
    if slots_per_token == math.inf:
        faults.append("slots_per_token is inf; give None for no limit")
    return faults


def _up_to_4(slots: int) -> int:
    return max(4, math.ceil(slots / 4) * 4)


# Slots of an expert that others give for a capacity factor f, S tokens, E experts, K choices.
_ELSEWHERE: dict[str, Callable[[float, int, int, int], int]] = {
    "flaxformer": lambda f, S, E, K: max(4, round(f * S / E)),
    "lingvo": lambda f, S, E, K: _up_to_4(int(f * S / E)),
    "praxis": lambda f, S, E, K: _up_to_4(int(f * S / E)),
    "DeepSpeed": lambda f, S, E, K: max(4, math.ceil(S / E * (f * K))),
    "MaxText": lambda f, S, E, K: int(math.ceil(K * S / E) * f),
    "Megatron-Core": lambda f, S, E, K: math.ceil(K * S / E * f),
    "Tutel": lambda f, S, E, K: K * int(f * math.ceil(S / E)),
    "vmoe": lambda f, S, E, K: _up_to_4(math.ceil(K * S * f / E)),
}
_LEAST_ELSEWHERE: dict[str, int] = dict.fromkeys(
    ("flaxformer", "lingvo", "praxis", "DeepSpeed", "vmoe"), 4
)


def _elsewhere(slots: int, S: int, E: int, K: int, slots_per_token: float | None) -> list[str]:
    """Lines of what to set elsewhere, systems with the same line together."""
    systems: dict[str, list[str]] = {}
    for system, gives in _ELSEWHERE.items():
        least = _LEAST_ELSEWHERE.get(system, 1)
        if slots < least:
            text = f"cannot be said in {{}}: the minimum there is {least} by default"
        else:
            per = K if system in _PER_CHOICE else 1
            first = [] if slots_per_token is None else [slots_per_token / per]
            factor, given = _factor(gives, slots, (S, E, K), per, first)
            text = f"capacity factor {factor} in {{}}: {given} slots"
            text += "" if given == slots else f", not {slots}"
        systems.setdefault(text, []).append(system)
    return [f"  {text.format(', '.join(names))}" for text, names in systems.items()]


def _factor(
    gives: Callable[[float, int, int, int], int],
    slots: int,
    sizes: tuple[int, int, int],
    per: int,
    first: list[float],
) -> tuple[str, int]:
    """The factor as printed and its slots: these or, where rounding leaves them out, the next."""
    S, E, _ = sizes
    while True:
        exact = slots * E / (S * per)
        # Rounding up S / E before multiplying makes factors smaller than the exact one.
        centres = exact, slots / (per * math.ceil(S / E)), slots / math.ceil(per * S / E)
        near = [
            math.floor(centre * 10**digits + up) / 10**digits
            for digits in range(9)
            for centre in centres
            for up in (0, 1)
        ]
        for candidate in [*first, exact, *near]:
            text = f"{candidate:.9g}"
            if candidate > 0 and gives(float(text), *sizes) == slots:
                return text, slots
        slots += 1
