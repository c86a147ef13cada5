"""Losses of several layers in one, by a named aggregation."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

from gshard_moe import MoEOutput, auxiliary_loss, probabilities, statistics, top1

STATISTICS = statistics(top1(jnp.zeros((1, 2, 3)), capacity=1), probabilities(jnp.zeros((1, 2, 3))))


def output(balance, z):
    return MoEOutput(jnp.asarray(balance), jnp.asarray(z), STATISTICS)


@pytest.mark.parametrize(
    ("aggregation", "expected"), [("mean", 0.02 + 0.003), ("sum", 0.06 + 0.009)]
)
def test_mean_and_sum_by_hand(aggregation, expected):
    layers = [output(1.0, 2.0), output(2.0, 3.0), output(3.0, 4.0)]
    stacked = output([1.0, 2.0, 3.0], [2.0, 3.0, 4.0])
    split = [output([1.0, 2.0], [2.0, 3.0]), output([3.0], [4.0])]
    for outputs in (layers, stacked, split):
        loss = auxiliary_loss(outputs, aggregation=aggregation)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_weights_and_no_layers():
    loss = auxiliary_loss(output(2.0, 5.0), aggregation="sum", balance_weight=1, z_weight=0)
    np.testing.assert_allclose(loss, 2)
    assert auxiliary_loss([], aggregation="mean") == 0


def test_unknown_aggregation():
    message = "auxiliary_loss: aggregation is 'max'; give 'mean' or 'sum'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        auxiliary_loss([], aggregation="max")
