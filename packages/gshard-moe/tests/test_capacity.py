"""Slots per group and expert."""

import math
import re

import pytest

from gshard_moe import capacity, explain_capacity


@pytest.mark.parametrize(
    ("group_size", "num_experts", "options", "slots"),
    [
        (1024, 128, {}, 16),  # the paper: 2S/E
        (1024, 512, {}, 4),
        (100, 8, {}, 25),
        (100, 8, {"slots_per_token": 1.25}, 16),  # 15.6 rounded up
        (100, 8, {"slots_per_token": 1.0, "multiple_of": 4}, 16),
        (2, 64, {}, 1),
        (16, 64, {"minimum": 4}, 4),
        (3, 64, {"minimum": 4}, 3),  # never more than the tokens there are
        (100, 1, {}, 100),
        (100, 8, {"slots_per_token": None}, 100),
        (10, 1, {"slots_per_token": 0.3}, 3),
        (10, 10, {"slots_per_token": 1.1}, 2),
        (1000, 10, {"slots_per_token": 1.1}, 110),  # not 111: 1.1 * 1000 is 1100.0000000000002
    ],
)
def test_slots(group_size, num_experts, options, slots):
    assert capacity(group_size, num_experts, **options) == slots


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 8, 2.0), "capacity: group_size is 0; must be greater than 0"),
        (
            (16, 0, -1.0),
            "capacity: num_experts is 0, slots_per_token is -1.0; must be greater than 0",
        ),
        ((16, 8, float("nan")), "capacity: slots_per_token is nan; must be greater than 0"),
    ],
)
def test_wrong_arguments(arguments, message):
    size, experts, slots = arguments
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        capacity(size, experts, slots_per_token=slots)


def test_explanation_names_the_setting_elsewhere():
    assert explain_capacity(1024, 128) == (
        "capacity: 16 slots per group and expert "
        "(slots_per_token=2, group of 1024 tokens, 128 experts)\n"
        "  in effect 2 slots per token (the paper: 2); "
        "an expert drops once it is chosen by more than 16 of 1024 tokens\n"
        "  capacity factor 2 in flaxformer, lingvo, praxis: 16 slots\n"
        "  capacity factor 1 in DeepSpeed, MaxText, Megatron-Core, Tutel, vmoe: 16 slots\n"
        "  cannot drop from slots_per_token=128 on, or with None"
    )


def test_explanation_says_when_something_must_drop_and_when_nothing_can():
    tight = explain_capacity(100, 10, slots_per_token=1.0)
    assert "at least 50.0% of the choices are dropped when every token asks for 2 experts" in tight
    free = explain_capacity(100, 10, slots_per_token=None)
    assert "(no limit, group of 100 tokens, 10 experts)" in free
    assert "nothing can be dropped: an expert has a slot for every token of the group" in free
    assert free.endswith(
        "as without a limit: moe_expert_capacity_factor=None in Megatron-Core, "
        "drop_tokens=False in DeepSpeed, capacity_factor=0 in Tutel and -1 in MaxText"
    )


def test_explanation_for_other_numbers_of_choices():
    four = explain_capacity(100, 10, slots_per_token=5.0, choices=4)
    assert "  capacity factor 5 in flaxformer: 50 slots\n" in four
    assert "  capacity factor 5 in lingvo, praxis: 52 slots, not 50\n" in four
    assert "  capacity factor 1.25 in DeepSpeed, MaxText, Megatron-Core: 50 slots\n" in four
    assert "  capacity factor 1.3 in Tutel: 52 slots, not 50\n" in four
    assert "  capacity factor 1.25 in vmoe: 52 slots, not 50\n" in four
    assert "an expert drops once it is chosen by more than 50 of 100 tokens" in four
    tight = explain_capacity(100, 10, slots_per_token=2.0, choices=4)
    assert "at least 50.0% of the choices are dropped when every token asks for 4 experts" in tight
    switch = explain_capacity(100, 10, slots_per_token=1.0, choices=1)
    assert "capacity factor 1 in flaxformer, DeepSpeed, MaxText, Megatron-Core, Tutel" in switch


# Formulas as these systems have them in their sources.
GIVES = {
    "flaxformer": lambda f, S, E, K: max(4, round(f * S / E)),
    "lingvo": lambda f, S, E, K: (int(f * S / E) or 4) + -(int(f * S / E) or 4) % 4,
    "DeepSpeed": lambda f, S, E, K: max(4, math.ceil(S / E * (f * K))),
    "MaxText": lambda f, S, E, K: int(math.ceil(K * S / E) * f),
    "Megatron-Core": lambda f, S, E, K: math.ceil(K * S / E * f),
    "Tutel": lambda f, S, E, K: K * int(f * math.ceil(S / E)),
    "vmoe": lambda f, S, E, K: math.ceil(math.ceil(K * S * f / E) / 4) * 4,
}
GIVES["praxis"] = GIVES["lingvo"]


@pytest.mark.parametrize("choices", [1, 2, 3, 8])
@pytest.mark.parametrize("slots_per_token", [0.5, 1.0, 1.1, 2.5, 5.0, 7.0, None])
@pytest.mark.parametrize("size", [(16, 64), (100, 8), (1000, 64), (1024, 128), (7, 9), (4097, 31)])
def test_factors_elsewhere_give_the_slots_that_are_said(size, slots_per_token, choices):
    S, E = size
    text = explain_capacity(S, E, slots_per_token=slots_per_token, choices=choices)
    slots = capacity(S, E, slots_per_token=slots_per_token)
    said = set()
    for factor, systems, given in re.findall(r"capacity factor (\S+) in (.*): (\d+) slots", text):
        assert slots <= int(given) <= slots + max(3, choices - 1)
        for system in systems.split(", "):
            said.add(system)
            assert GIVES[system](float(factor), S, E, choices) == int(given), system
    if slots < 4:
        none = "cannot be said in flaxformer, lingvo, praxis, DeepSpeed, vmoe: the minimum there is"
        assert f"  {none} 4 by default\n" in text
        assert said == {"MaxText", "Megatron-Core", "Tutel"}
    else:
        assert said == set(GIVES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((100, 8, 2.0, 9), "choices is 9 of 8 experts; give 1 to 8"),
        (
            (0, 8, -1.0, 0),
            "group_size is 0, slots_per_token is -1.0; must be greater than 0; "
            "choices is 0 of 8 experts; give 1 to 8",
        ),
        ((16, 8, float("inf"), 2), "slots_per_token is inf; give None for no limit"),
    ],
)
def test_all_that_cannot_be_explained(arguments, message):
    size, experts, slots, choices = arguments
    with pytest.raises(ValueError, match=f"^{re.escape(f'explain_capacity: {message}')}$"):
        explain_capacity(size, experts, slots_per_token=slots, choices=choices)
