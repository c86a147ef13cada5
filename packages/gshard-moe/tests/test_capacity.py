"""Slots per group and expert."""

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
        "  capacity factor 2 in flaxformer, lingvo, praxis\n"
        "  capacity factor 1 in DeepSpeed, MaxText, Megatron-Core, Tutel, vmoe\n"
        "  cannot drop from slots_per_token=128 on, or with None"
    )


def test_explanation_says_when_something_must_drop_and_when_nothing_can():
    tight = explain_capacity(100, 10, slots_per_token=1.0)
    assert "at least 50.0% of the choices are dropped if all ask for one" in tight
    free = explain_capacity(100, 10, slots_per_token=None)
    assert "(no limit, group of 100 tokens, 10 experts)" in free
    assert "nothing can be dropped: an expert has a slot for every token of the group" in free
    assert free.endswith(
        "as without a limit: moe_expert_capacity_factor=None in Megatron-Core, "
        "drop_tokens=False in DeepSpeed, capacity_factor=0 in Tutel and -1 in MaxText"
    )


def test_explanation_for_other_numbers_of_choices():
    four = explain_capacity(100, 10, slots_per_token=5.0, choices=4)
    assert "  capacity factor 5 in flaxformer, lingvo, praxis\n" in four
    assert "  capacity factor 1.25 in DeepSpeed, MaxText, Megatron-Core, Tutel, vmoe\n" in four
    assert "an expert drops once it is chosen by more than 50 of 100 tokens" in four
    tight = explain_capacity(100, 10, slots_per_token=2.0, choices=4)
    assert "at least 50.0% of the choices are dropped if all ask for all 4" in tight
    switch = explain_capacity(100, 10, slots_per_token=1.0, choices=1)
    assert "capacity factor 1 in DeepSpeed" in switch


def test_more_choices_than_experts():
    message = "explain_capacity: choices is 9 of 8 experts; give 1 to 8"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        explain_capacity(100, 8, choices=9)
