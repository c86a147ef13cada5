"""Learning rates at steps whose values are known by hand."""

import re

import numpy as np
import pytest

from gshard_train.schedule import (
    constant,
    create_learning_rate_scheduler,
    inverse_sqrt,
    warmup_cosine,
    warmup_linear,
)


def at(rate, *steps: int) -> list[float]:
    return [float(rate(step)) for step in steps]


def test_inverse_sqrt_is_the_paper_s_rate():
    np.testing.assert_allclose(at(inverse_sqrt(), 0, 10_000, 40_000), [0.01, 0.01, 0.005])


def test_inverse_sqrt_can_rise_first():
    rate = inverse_sqrt(2.0, 100, linear_warmup=True)
    np.testing.assert_allclose(at(rate, 0, 50, 100, 400), [0.0, 0.1, 0.2, 0.1])


def test_constant_stays():
    assert at(constant(0.25), 0, 7) == [0.25, 0.25]


def test_warmup_cosine_rises_and_falls():
    rate = warmup_cosine(1.0, 110, warmup_share=10 / 110, final_share=0.1)
    np.testing.assert_allclose(at(rate, 0, 5, 10, 60, 110), [0, 0.5, 1, 0.55, 0.1])


def test_warmup_linear_rises_and_falls():
    rate = warmup_linear(2.0, 110, warmup_share=10 / 110, final_share=0.1)
    np.testing.assert_allclose(at(rate, 0, 5, 10, 60, 110, 200), [0, 1, 2, 1.1, 0.2, 0.2])


def test_t5x_s_default_factors():
    rate = create_learning_rate_scheduler(warmup_steps=100)
    np.testing.assert_allclose(at(rate, 0, 50, 100, 400), [1e-8, 0.025, 0.05, 0.025], rtol=1e-6)


@pytest.mark.parametrize(
    ("factors", "steps", "expected"),
    [
        ("constant", (0, 9), (0.5, 0.5)),
        ("constant*rsqrt_normalized_decay", (0, 10, 40), (0.5, 0.5, 0.25)),
        ("constant * decay_every", (0, 3, 4, 8), (0.5, 0.5, 0.05, 0.005)),
        ("constant * cosine_decay", (5, 10, 20, 29, 30), (0.5, 0.5, 0.25, 0.00308, 0.5)),
        ("linear_decay", (5, 10, 15), (0.25, 0.5, 1e-8)),
    ],
)
def test_t5x_s_factors(factors, steps, expected):
    rate = create_learning_rate_scheduler(
        factors, warmup_steps=10, decay_factor=0.1, steps_per_decay=4, steps_per_cycle=20
    )
    if factors == "linear_decay":
        rate = create_learning_rate_scheduler(factors, warmup_steps=10, decay_factor=0.3)
    np.testing.assert_allclose(at(rate, *steps), expected, rtol=2e-3)


def test_steps_are_counted_from_the_offset():
    rate = create_learning_rate_scheduler("constant * linear_warmup", 0.4, 10, step_offset=100)
    np.testing.assert_allclose(at(rate, 50, 105, 200), [1e-8, 0.2, 0.4], rtol=1e-6)


def test_an_unknown_factor_is_refused_with_the_nearest_and_with_every_other_fault():
    with pytest.raises(ValueError, match="warmup_steps=0 must be an integer of at least 1") as info:
        create_learning_rate_scheduler("constant * linear_warmpu", warmup_steps=0)
    assert "has 'linear_warmpu'; did you mean linear_warmup?" in str(info.value)
    assert "there are constant, linear_warmup, linear_decay" in str(info.value)


def test_shares_of_a_schedule_outside_their_range_are_refused_together():
    expected = (
        "warmup_cosine: warmup_share=1.0 must be in [0, 1); total_steps=0 must be an integer of "
        "at least 1"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        warmup_cosine(1.0, 0, warmup_share=1.0)
    with pytest.raises(ValueError, match=re.escape("warmup_linear: final_share=1.5")):
        warmup_linear(1.0, 10, final_share=1.5)
    with pytest.raises(ValueError, match="inverse_sqrt: warmup_steps=0 must be an integer"):
        inverse_sqrt(1.0, 0)
