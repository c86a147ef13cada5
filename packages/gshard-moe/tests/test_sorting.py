"""Tokens to sorted rows and back: against a loop, against slots, and what a full buffer drops."""

import functools
import inspect
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_moe import (
    combine_gather,
    combine_sorted,
    dispatch_gather,
    dispatch_sorted,
    sort,
    top2,
    topk,
)
from gshard_moe.experts import Experts, batched, by_blocks

G, S, E, M, H = 4, 9, 6, 5, 7
jit_top2 = jax.jit(top2, static_argnames=("capacity", "second", "burn_slots"))
jit_topk = jax.jit(topk, static_argnames=("k", "capacity"))
jit_sort = jax.jit(
    sort, static_argnames=("expert_parts", "group_units", "slots_per_token", "block_rows")
)
jit_dispatch, jit_combine = jax.jit(dispatch_sorted), jax.jit(combine_sorted)


def draw(seed, padding=0.2):
    rng = np.random.default_rng(seed)
    logits, x = 2 * rng.normal(size=(G, S, E)), rng.normal(size=(G, S, M))
    mask = jnp.asarray(rng.random((G, S)) >= padding)
    return jnp.asarray(logits, jnp.float32), jnp.asarray(x, jnp.float32), mask


def naive_rows(routing, parts, units, block_rows, most):
    """(part, unit, block, row) of each choice that fits, and the expert of each block begun.

    One claim after the other, first choices first, until the part and unit has `most` of them;
    who got in then stands in a list per expert, and lists go into blocks.
    """
    routing = jax.tree.map(np.asarray, routing)
    groups, each = G // units, E // parts
    inside = {(x, d): [[] for _ in range(each)] for x in range(parts) for d in range(units)}
    for k, g, s in np.ndindex(routing.kept_GSK.shape[2], G, S):
        if routing.kept_GSK[g, s, k]:
            x, e = divmod(int(routing.expert_GSK[g, s, k]), each)
            lists = inside[x, g // groups]
            if sum(map(len, lists)) < most:
                lists[e].append((g, k, s))
    place, expert_of = {}, {}
    for (x, d), lists in inside.items():
        block = 0
        for e, members in enumerate(lists):
            for i, (g, k, s) in enumerate(sorted(members)):
                at = (x, d, block + i // block_rows)
                place[g, s, k] = (*at, i % block_rows)
                expert_of[at] = e
            block += -(-len(members) // block_rows)
    return place, expert_of


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**30),
    layout=st.sampled_from([(1, 1, 2), (1, 4, 3), (2, 2, 4), (6, 1, 1), (3, 4, 2)]),
    slots_per_token=st.sampled_from([None, 0.5, 2.0]),
    padding=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_like_a_loop_over_experts(seed, layout, slots_per_token, padding):
    parts, units, block_rows = layout
    logits, x, mask = draw(seed, padding)
    routing = jit_top2(logits, capacity=S, mask_GS=mask, second="always")
    options = dict(zip(("expert_parts", "group_units", "block_rows"), layout, strict=True))
    order = jit_sort(routing, slots_per_token=slots_per_token, **options)
    rows = S * G // units * (slots_per_token or 2 * parts)
    place, expert_of = naive_rows(routing, *layout, math.ceil(rows / parts))
    kept = np.asarray(order.routing.kept_GSK)
    assert {tuple(at) for at in np.argwhere(kept)} == set(place)
    assert order.overflowed == np.sum(routing.kept_GSK) - len(place)
    assert slots_per_token is not None or order.overflowed == 0
    for at, e in expert_of.items():
        assert order.used_XDN[at]
        assert order.expert_XDN[at] == e
    expected = np.zeros((parts, units, order.expert_XDN.shape[2], block_rows, M), np.float32)
    for (g, s, _), at in place.items():
        expected[at] = x[g, s]
    sent = jit_dispatch(x, order)
    np.testing.assert_array_equal(sent, expected)
    y = np.random.default_rng(seed + 1).normal(size=sent.shape).astype(np.float32)
    back = np.zeros((G, S, M), np.float32)
    for at, row in place.items():
        back[at[:2]] += np.asarray(routing.weight_GSK)[at] * y[row]
    np.testing.assert_allclose(jit_combine(jnp.asarray(y), order), back, atol=1e-6)


def test_by_hand():
    # Four tokens of one group want experts 1, 0, 1, 1.
    logits = jnp.array([[[0.0, 9], [9, 0], [0, 9], [0, 9]]])
    routing = jit_topk(logits, k=1, capacity=4)
    order = jit_sort(routing, block_rows=2)
    x = jnp.array([[[1.0], [2], [3], [4]]])
    assert order.expert_XDN.shape == (1, 1, 3)  # 4 rows, and one of each expert's last block free
    np.testing.assert_array_equal(order.expert_XDN[0, 0], [0, 1, 1])
    np.testing.assert_array_equal(jit_dispatch(x, order)[0, 0, ..., 0], [[2, 0], [1, 3], [4, 0]])
    # Room for two: the first two tokens.
    tight = jit_sort(routing, block_rows=1, slots_per_token=0.5)
    assert tight.overflowed == 2
    np.testing.assert_array_equal(tight.routing.kept_GSK[0, :, 0], [True, True, False, False])
    assert tight.routing.weight_GSK[0, 2, 0] == 0
    np.testing.assert_array_equal(tight.routing.chosen_GSK, True)


@pytest.mark.parametrize("gated", [False, True], ids=["ungated", "gated"])
@pytest.mark.parametrize(
    "layout", [(1, 1, 2), (1, 2, 8), (3, 1, 4)], ids=["whole", "units", "parts"]
)
def test_rows_give_the_numbers_and_gradients_of_slots(layout, gated):
    logits, x, mask = draw(3)
    keys = iter(jax.random.split(jax.random.key(0), 6))
    shapes = {"wi_EMH": (E, M, H), "wo_EHM": (E, H, M), "bi_EH": (E, H), "bo_EM": (E, M)}
    shapes |= {"gate_EMH": (E, M, H), "bg_EH": (E, H)} if gated else {}
    experts = Experts(**{n: jax.random.normal(next(keys), s) for n, s in shapes.items()})

    def by_slots(routing, x, experts):
        y = batched(dispatch_gather(x, routing), experts, jax.nn.gelu)
        return combine_gather(y, routing)

    def by_rows(routing, x, experts):
        parts, units, block_rows = layout
        order = sort(routing, expert_parts=parts, group_units=units, block_rows=block_rows)
        rows = dispatch_sorted(x, order)
        places = order.expert_XDN, order.used_XDN
        return combine_sorted(by_blocks(rows, experts, jax.nn.gelu, *places, ascending=True), order)

    def loss(logits, x, experts, kind):
        routing = topk(logits, k=3, capacity=S, mask_GS=mask)
        y = kind(routing, x, experts)
        return (y**2).sum(), y

    both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True), static_argnums=3)
    expected = both(logits, x, experts, by_slots)
    for a, b in zip(
        *map(jax.tree.leaves, (both(logits, x, experts, by_rows), expected)), strict=True
    ):
        scale = float(jnp.abs(b).max())
        assert scale > 0
        np.testing.assert_allclose(a / scale, b / scale, atol=1e-6)


def test_a_full_buffer_gives_up_last_choices_whichever_expert_they_are_of():
    logits = jax.random.normal(jax.random.key(0), (2, 1024, 8))
    routing = jit_topk(logits, k=2, capacity=1024)
    order = jit_sort(routing, slots_per_token=1.25, group_units=2)
    np.testing.assert_array_equal(order.routing.kept_GSK[..., 0], True)
    np.testing.assert_array_equal(order.routing.kept_GSK[:, :256, 1], True)
    np.testing.assert_array_equal(order.routing.kept_GSK[:, 256:, 1], False)
    assert order.overflowed == 2 * 768
    load = (order.routing.expert_GSK[..., None] == jnp.arange(8)) & order.routing.kept_GSK[
        ..., None
    ]
    load_E = load.sum((0, 1, 2))
    assert load_E.min() > 0.8 * load_E.max()


def test_a_full_buffer_has_no_rows_for_burned_slots():
    logits, _, _ = draw(6)
    routing = jit_top2(logits, capacity=S, key=jax.random.key(1), burn_slots=True)
    assert not routing.kept_GSK.all()
    order = jit_sort(routing, slots_per_token=2.0, group_units=G)
    assert order.overflowed == 0
    np.testing.assert_array_equal(order.routing.kept_GSK, routing.kept_GSK)


def test_slots_burned_by_lost_coins_stay_free():
    logits, x, mask = draw(4)
    routing = jit_top2(logits, capacity=S, mask_GS=mask, key=jax.random.key(1), burn_slots=True)
    assert (routing.chosen_GSK[..., 1] != mask).any()
    order = jit_sort(routing, block_rows=2)
    assert order.overflowed == 0
    sent = jit_dispatch(x, order)
    assert (jnp.abs(sent).sum(-1) > 0).sum() == routing.kept_GSK.sum()


def test_a_token_alone_gets_what_it_gets_among_others():
    logits, x, _ = draw(5)
    w = jax.random.normal(jax.random.key(0), (E, M, H))
    experts = Experts(w, w.swapaxes(1, 2))

    @functools.partial(jax.jit, static_argnames="size")
    def run(logits, x, size):
        routing = top2(logits, capacity=size, second="always")
        order = sort(routing)
        places = order.expert_XDN, order.used_XDN
        y = by_blocks(dispatch_sorted(x, order), experts, jax.nn.relu, *places, ascending=True)
        return combine_sorted(y, order)

    whole, alone = run(logits, x, S), run(logits[2:3, 4:5], x[2:3, 4:5], 1)
    np.testing.assert_allclose(alone[0, 0], whole[2, 4], rtol=1e-5)


def test_all_wrong_arguments_at_once():
    routing = jit_topk(jnp.zeros((G, S, E)), k=1, capacity=S)
    message = (
        "sort: expert_parts is 4 for 6 experts; give a divisor of 6; "
        "group_units is 3 for 4 groups; give a divisor of 4; "
        "slots_per_token is 0.0; give more than 0, or None; "
        "block_rows is 0; give at least 1, or None"
    )
    wrong = {"expert_parts": 4, "group_units": 3, "slots_per_token": 0.0, "block_rows": 0}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        inspect.unwrap(sort)(routing, **wrong)
