"""What a layer says of arguments that are not what they should be."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import ExpertChoice, MoELayer, Top2, TopK, capacity

G, S, E, M, H = 2, 12, 4, 5, 7


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    with rules_scope(DEFAULT_RULES, one_device):
        yield


def make(**options):
    options = {"num_experts": E, "embed": M, "mlp": H, "rngs": nnx.Rngs(0)} | options
    return MoELayer(**options)


GIVE_SLOTS = "give a number, 'choices', or None for no limit"
GIVE_ROUTER = "give Top2(), TopK(k) or another Router object"
WRONG = [
    (
        {"num_experts": 8.0, "mlp": True},
        "num_experts is 8.0; give a whole number; mlp is True; give a whole number",
    ),
    ({"slots_per_token": True}, f"slots_per_token is True; {GIVE_SLOTS}"),
    (
        {"slots_per_token": float("inf"), "eval_slots_per_token": "choice"},
        f"slots_per_token is inf; {GIVE_SLOTS}; eval_slots_per_token is 'choice'; {GIVE_SLOTS}",
    ),
    (
        {"expert_parts": 2, "eval_padded_slots": -1},
        "eval_padded_slots is -1; give at least 0; expert_parts is 2 and dispatch 'auto'; they are "
        "parts of sorted rows: give dispatch='sorted' or no expert_parts",
    ),
    (
        {"expert_parts": 3, "dispatch": "sorted"},
        "expert_parts is 3 for 4 experts; give a divisor of 4",
    ),
    ({"min_slots": 0}, "min_slots is 0; give at least 1"),
    (
        {"router": Top2(normalize_after_dropping=1)},  # pyright: ignore[reportArgumentType]
        "normalize_after_dropping is 1; give True or False",
    ),
    (
        {
            "router": Top2(normalize_after_dropping=True),
            "dispatch": "sorted",
            "eval_slots_per_token": 3,
        },
        "normalize_after_dropping=True knows slots, and sorted rows with a limit drop later; give "
        "dispatch 'einsum' or 'gather', or no limit (None)",
    ),
    (
        {"burn_slots": "yes", "gated": 1},
        "burn_slots is 'yes'; give True or False; gated is 1; give True or False",
    ),
    (
        {"router": "top2", "jitter": "no"},
        f"router is 'top2'; {GIVE_ROUTER}; jitter is 'no'; give 0 to 1, such as 0.01",
    ),
    ({"router": TopK}, f"router is <class 'gshard_moe.routers.TopK'>; {GIVE_ROUTER}"),
    ({"router": TopK(2.5)}, "k is 2.5; give a whole number from 1 to 4"),  # pyright: ignore[reportArgumentType]
    ({"activation": "relu"}, "activation is 'relu'; give a function such as jax.nn.relu"),
    ({"name": 3}, "name is 3; give a string"),
    (
        {"dtype": jnp.int32, "param_dtype": "half a float"},
        "dtype is int32; give a floating-point type such as jnp.bfloat16; "
        "param_dtype is 'half a float'; give a floating-point type such as jnp.bfloat16",
    ),
    ({"rngs": 0}, "rngs is 0; give nnx.Rngs(0), with a stream for params"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=f"^MoELayer: {re.escape(message)}$"):
        make(**options)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"slots_per_token": 1.0}, "slots_per_token=1 for 2"),
        (
            {"router": TopK(3), "slots_per_token": 2, "eval_slots_per_token": 1.5},
            "slots_per_token=2 and eval_slots_per_token=1.5 for 3",
        ),
    ],
)
def test_slots_for_fewer_choices_than_there_are_get_a_warning(options, given):
    k = given[-1]
    message = (
        f"block: {given} choices per token: even a balanced router drops. What DeepSpeed, MaxText, "
        f"Megatron-Core, Tutel and vmoe call capacity factor 1 is {k} here, or 'choices'; if "
        "dropping is meant, filter this warning"
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(message)}$") as caught:
        make(name="block", **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_no_warning_without_such_slots():
    make()
    make(router=TopK(1), slots_per_token=1.0)
    make(router=ExpertChoice(), causal=False, slots_per_token=1.0)


def test_a_missing_key_is_asked_for_once_with_all_else():
    message = (
        "block: x has shape (2, 12, 4); give [groups, tokens, 5]; jitter=0.1 draws numbers and "
        "needs key=; pass a key; second_expert='random' draws a number per token and needs key=; "
        "pass a key, or second_expert='always' or 'never'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(jitter=0.1, name="block")(jnp.ones((G, S, 4)))
    message = (
        "MoELayer: eval_second_expert='random' draws a number per token and needs key=; "
        "pass a key, or eval_second_expert='always' or 'never'"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(router=Top2("always", "random"))(jnp.ones((G, S, M)), deterministic=True)


class Liar(ExpertChoice):
    """Experts choose, and it denies that they see later tokens."""

    sees_later_tokens = False


def test_a_router_that_returns_what_rows_cannot_take():
    layer = make(router=Liar(), dispatch="sorted", slots_per_token=None)
    message = (
        "MoELayer: router Liar says sees_later_tokens=False and returned an ExpertRouting, and "
        "sorted rows need a Routing; say True, or return a Routing"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        layer(jnp.ones((G, S, M)))


@pytest.mark.parametrize(
    ("options", "slots"), [({"min_slots": 5}, 5), ({"slots_multiple_of": 4}, 4), ({}, 3)]
)
def test_fewest_slots_and_their_rounding(options, slots):
    layer = make(router=TopK(1), **options)
    _, output = layer(jnp.ones((G, S, M)))  # every token wants the same expert
    assert output.statistics.load_E.max() == G * slots
    settings = {"min_slots": "minimum", "slots_multiple_of": "multiple_of"}
    renamed = {settings[name]: value for name, value in options.items()}
    assert capacity(S, E, slots_per_token=1.0, **renamed) == slots


class Model(nnx.Module):
    """A layer somewhere inside."""

    def __init__(self):
        self.layer = make(jitter=0.5, second_expert="always")


def test_eval_and_train_of_a_model_reach_the_layer():
    model, x = Model(), jax.random.normal(jax.random.key(1), (G, S, M))
    key = jax.random.key(2)
    trained, _ = model.layer(x, key=key, deterministic=False)
    evaluated, _ = model.layer(x, deterministic=True)
    assert (trained != evaluated).any()
    np.testing.assert_array_equal(model.layer(x, key=key)[0], trained)
    model.eval()
    np.testing.assert_array_equal(model.layer(x)[0], evaluated)
    np.testing.assert_array_equal(nnx.jit(lambda model: model.layer(x)[0])(model).shape, x.shape)
    np.testing.assert_array_equal(model.layer(x, key=key, deterministic=False)[0], trained)
    model.train()
    np.testing.assert_array_equal(model.layer(x, key=key)[0], trained)


def test_labels_give_a_table_in_the_output():
    layer = make(router=TopK(1), slots_per_token=None)
    x = jax.random.normal(jax.random.key(1), (G, S, M))
    labels = jnp.arange(G * S).reshape(G, S) % 3
    y, output = nnx.jit(lambda layer: layer(x, labels_GS=labels, num_labels=3))(layer)
    plain, without = layer(x)
    np.testing.assert_allclose(y, plain, atol=1e-6)
    assert without.by_label is None
    np.testing.assert_array_equal(output.by_label.tokens_N, [8, 8, 8])
    np.testing.assert_array_equal(output.by_label.load_NE.sum(0), output.statistics.load_E)
