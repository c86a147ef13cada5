"""Batches to groups and back."""

import inspect
import re

import jax.numpy as jnp
import numpy as np
import pytest

from gshard_moe import group, ungroup

X = jnp.arange(4 * 6 * 2.0).reshape(4, 6, 2)


@pytest.mark.parametrize("num_groups", [1, 3, 4, 8])
def test_there_and_back(num_groups):
    x, mask = group(X, X[..., 0] > 9, num_groups)
    assert x.shape == (num_groups, 24 // num_groups, 2)
    assert mask is not None
    np.testing.assert_array_equal(mask, x[..., 0] > 9)
    np.testing.assert_array_equal(ungroup(x, 4), X)


def test_tokens_keep_their_order():
    x, mask = group(X, None, 8)
    assert mask is None
    np.testing.assert_array_equal(x[1, :, 0], [6, 8, 10])


def test_groups_that_do_not_fit():
    message = (
        "group: 24 tokens (batch 4 x length 6) do not fall into 5 equal groups; "
        "give 2, 3, 4 or 6 groups"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        group(X, None, 5)


def test_groups_by_size():
    by_size, mask = group(X, X[..., 0] > 9, group_size=8)
    by_count, same = group(X, X[..., 0] > 9, 3)
    np.testing.assert_array_equal(by_size, by_count)
    np.testing.assert_array_equal(mask, same)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"group_size": 7},
            "group: 24 tokens (batch 4 x length 6) do not fall into groups of 7; "
            "give groups of 3, 4, 6 or 8",
        ),
        ({}, "group: num_groups is None and group_size is None; give one of them"),
        (
            {"num_groups": 2, "group_size": 12},
            "group: num_groups is 2 and group_size is 12; give one of them",
        ),
    ],
)
def test_sizes_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        group(X, None, **arguments)


@pytest.mark.parametrize(
    ("x", "mask", "num_groups", "message"),
    [
        (X, jnp.ones((6, 4), bool), 2, "mask is bool[6, 4]; give bool[4, 6]"),
        (X, jnp.ones((4, 6), jnp.int32), 2, "mask is int32[4, 6]; give bool[4, 6]"),
        (X, None, 2.0, "2.0 equal groups: 2.0 is no whole number; give an int"),
        (X[0], None, 2, "x has shape (6, 2); give [batch, length, width]"),
    ],
)
def test_what_cannot_be_grouped(x, mask, num_groups, message):
    with pytest.raises(ValueError, match=f"^{re.escape(f'group: {message}')}$"):
        inspect.unwrap(group)(x, mask, num_groups)


def test_a_number_in_the_place_of_the_mask():
    message = (
        "group: mask is 4; give bool[4, 6] or None; num_groups is None and group_size is None; "
        "give one of them"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(group)(X, 4)


def test_a_mask_may_be_left_out():
    assert group(X, num_groups=3)[1] is None


def test_rows_that_do_not_fit():
    message = (
        "ungroup: 24 tokens (groups 4 x size 6) do not fall into 7 equal rows; "
        "give the batch size that was grouped"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ungroup(X, 7)
