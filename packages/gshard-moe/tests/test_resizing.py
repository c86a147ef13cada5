"""Other numbers of experts: outputs stay the same where that is said, and are others where not."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gshard_annotate import DEFAULT_RULES, rules_scope
from gshard_moe import MoELayer, Top2, TopK, capacity
from gshard_moe.resizing import average_experts, copy_experts, merge_parts, split_experts

G, S, E, M, H = 2, 12, 4, 5, 6
FUNCTIONS = {
    "split": jax.jit(lambda tree: split_experts(tree, 3)),
    "merge": jax.jit(lambda tree: merge_parts(tree, 2)),
    "copy": jax.jit(lambda tree: copy_experts(tree, 3)),
    "average": jax.jit(lambda tree: average_experts(tree, [[3, 0], [1]])),
}


@pytest.fixture(autouse=True)
def on_one_device(one_device):
    # Layers before and after stand beside one another.
    with rules_scope(DEFAULT_RULES, one_device, varying=("expert", "act_mlp")):
        yield


def layer_of(parameters, router, **options):
    E, M, H = parameters["wi"].shape
    gated, use_bias = "gate" in parameters, "bi" in parameters
    options = {"gated": gated, "use_bias": use_bias, "slots_per_token": None} | options
    # Shapes alone: drawing parameters to replace them would take most of the time.
    layer = nnx.eval_shape(lambda: MoELayer(E, M, H, router=router, rngs=nnx.Rngs(0), **options))
    nnx.update(layer, parameters)
    return layer


def drawn(gated=True, use_bias=True, layers=()):
    shapes = {"router": (M, E), "wi": (E, M, H), "wo": (E, H, M)}
    shapes |= {"gate": (E, M, H)} if gated else {}
    shapes |= {"bi": (E, H), "bo": (E, M)} if use_bias else {}
    shapes |= {"bg": (E, H)} if gated and use_bias else {}
    draw = np.random.default_rng(1).standard_normal
    return {
        name: jnp.asarray(draw((*layers, *shape), np.float32)) for name, shape in shapes.items()
    }


@nnx.jit
def run(layer, x):
    return layer(x)[0]


def tokens():
    return jax.random.normal(jax.random.key(2), (G, S, M))


def same_outputs(before, after):
    x = tokens()
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-5)


KINDS = [(False, True, "softmax_then_choose"), (True, True, "choose_then_softmax")]


@pytest.mark.parametrize(("gated", "use_bias", "weights"), KINDS)
def test_parts_that_are_chosen_together_are_the_expert(gated, use_bias, weights):
    parameters = drawn(gated, use_bias)
    parts = split_experts(parameters, 3)
    assert parts["wi"].shape == (3 * E, M, H // 3)
    same_outputs(layer_of(parameters, TopK(2, weights)), layer_of(parts, TopK(6, weights)))


def test_parts_for_top2_and_switch():
    parameters = drawn()
    parts, top4 = split_experts(parameters, 2), TopK(4, "choose_then_softmax")
    same_outputs(layer_of(parameters, Top2("always")), layer_of(parts, top4))
    same_outputs(layer_of(parameters, TopK(1)), layer_of(parts, TopK(2)))


@pytest.mark.filterwarnings("ignore:.*even a balanced router drops:UserWarning")
def test_parts_have_as_many_slots_and_drop_the_same_tokens():
    assert capacity(S, E, slots_per_token=0.5) == capacity(S, 3 * E, slots_per_token=1.5)
    parameters = drawn()
    # One product each, so that equal columns give equal logits in any order of summation.
    parameters["router"] = jnp.eye(M, E)
    before = layer_of(parameters, TopK(1), slots_per_token=0.5)
    after = layer_of(split_experts(parameters, 3), TopK(3), slots_per_token=1.5)
    assert not np.asarray(run(before, tokens())).all()  # 0: dropped
    same_outputs(before, after)


def test_the_first_part_has_the_first_of_the_hidden_width():
    parameters, parts = drawn(), split_experts(drawn(), 3)
    np.testing.assert_array_equal(parts["wi"][3 * 2 + 1], parameters["wi"][2][:, 2:4])
    np.testing.assert_array_equal(parts["wo"][3 * 2 + 1], parameters["wo"][2][2:4] * 3)
    np.testing.assert_array_equal(parts["bi"][3 * 2 + 1], parameters["bi"][2][2:4])
    np.testing.assert_array_equal(parts["bo"][3 * 2 + 1], parameters["bo"][2])
    np.testing.assert_array_equal(parts["router"][:, 7], parameters["router"][:, 2])


@pytest.mark.parametrize("parts", [2, 3])
def test_merging_is_the_inverse_of_splitting(parts):
    parameters = drawn()
    back = merge_parts(split_experts(parameters, parts), parts)
    for name, array in parameters.items():
        rounding = 0 if parts == 2 else 1e-6
        np.testing.assert_allclose(back[name], array, rtol=rounding)


def test_merging_parts_that_differ_keeps_outputs_while_they_are_chosen_together():
    parts = drawn()
    parts["router"] = jnp.repeat(parts["router"][:, ::2], 2, 1)  # neighbours have equal weights
    same_outputs(layer_of(parts, TopK(2)), layer_of(merge_parts(parts, 2), TopK(1)))


@pytest.mark.parametrize(("gated", "use_bias", "weights"), KINDS)
def test_copies_that_are_chosen_together_are_the_expert(gated, use_bias, weights):
    parameters = drawn(gated, use_bias)
    copies = copy_experts(parameters, 3)
    assert copies["wi"].shape == (3 * E, M, H)
    same_outputs(layer_of(parameters, TopK(2, weights)), layer_of(copies, TopK(6, weights)))


def test_with_the_choices_of_before_copies_of_the_first_expert_are_all_of_them():
    parameters = drawn()
    copies, x = copy_experts(parameters, 2), tokens()
    first_alone = run(layer_of(parameters, TopK(1)), x)
    p = jax.nn.softmax(x @ parameters["router"]).max(-1, keepdims=True)
    both = run(layer_of(copies, Top2("always")), x)
    np.testing.assert_allclose(both, first_alone / p, rtol=1e-4, atol=1e-5)
    one = run(layer_of(copies, TopK(1)), x)
    np.testing.assert_allclose(one, first_alone / 2, rtol=1e-5, atol=1e-5)


def test_averaging_is_the_inverse_of_copying():
    parameters = drawn()
    back = average_experts(copy_experts(parameters, 3), 3)
    for name, array in parameters.items():
        np.testing.assert_allclose(back[name], array, rtol=1e-6)


def test_averages_are_weighted_and_groups_may_leave_out_and_repeat():
    parameters = {"router": jnp.array([[1.0, 2, 4]]), "wi": jnp.array([1.0, 2, 4])[:, None, None]}
    parameters["wo"] = -parameters["wi"]
    fewer = average_experts(parameters, [[2, 0], [2]], weights=[1, 5, 3])
    np.testing.assert_array_equal(fewer["router"], [[3.25, 4]])
    np.testing.assert_array_equal(fewer["wo"].ravel(), [-3.25, -4])
    one = average_experts(parameters, 3)
    np.testing.assert_allclose(one["wi"].ravel(), [7 / 3], rtol=1e-6)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_states_keep_their_logical_names(function):
    parameters = drawn()
    state = nnx.state(layer_of(parameters, TopK(1)))
    resized, expected = function(state), function(parameters)
    assert isinstance(resized, nnx.State)
    for name, variable in resized.items():
        assert variable.out_sharding == state[name].out_sharding
        np.testing.assert_array_equal(variable[...], expected[name])
    num_experts, _, hidden = expected["wi"].shape
    layer = MoELayer(num_experts, M, hidden, gated=True, use_bias=True, rngs=nnx.Rngs(0))
    nnx.update(layer, resized)
    np.testing.assert_array_equal(layer.wo[...], expected["wo"])


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_stacked_layers_are_resized_each_by_itself(function):
    stacked = drawn(layers=(3,))
    resized = function(stacked)
    single = function({name: array[1] for name, array in stacked.items()})
    for name, array in single.items():
        np.testing.assert_allclose(resized[name][1], array, rtol=1e-6)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_types_stay(function):
    half = {name: array.astype(jnp.bfloat16) for name, array in drawn().items()}
    assert {array.dtype for array in function(half).values()} == {jnp.dtype(jnp.bfloat16)}


def refuses(message, function, *arguments, **options):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        function(*arguments, **options)


def test_numbers_that_do_not_fit_are_refused():
    tree = drawn()
    message = "hidden width 6 does not fall into 4 parts; give 1, 2, 3 or 6"
    refuses(f"split_experts: {message}", split_experts, tree, 4)
    message = "4 experts do not fall into groups of 3; give 1, 2 or 4"
    refuses(f"merge_parts: {message}", merge_parts, tree, 3)
    refuses(f"average_experts: {message}", average_experts, tree, 3)
    refuses("copy_experts: copies is 0; give at least 1", copy_experts, tree, 0)


def test_groups_and_weights_that_do_not_fit_are_refused():
    tree = drawn()
    message = (
        "average_experts: group 0 has [4, -1]; experts are 0 to 3; "
        "group 1 is empty; give it members or leave it out"
    )
    refuses(message, average_experts, tree, [[4, 0, -1], []])
    message = "average_experts: there is no group; give one at least"
    refuses(message, average_experts, tree, [])
    message = "average_experts: weights are [1, -1, 2]; give 4 of 0 or more, one for each expert"
    refuses(message, average_experts, tree, 2, weights=[1, -1, 2])
    message = "average_experts: weights of groups [1] are all 0; give one member more"
    refuses(message, average_experts, tree, [[0], [1, 2]], weights=[1, 0, 0, 1])


def test_trees_that_are_no_layer_are_refused():
    tree = drawn(use_bias=False) | {"wo": jnp.zeros((E, M, H)), "router": jnp.zeros((2, M, E))}
    message = (
        "router has shape (2, 5, 4), needed is (5, 4); wo has shape (4, 5, 6), needed is (4, 6, 5)"
    )
    refuses(f"copy_experts: {message}", copy_experts, tree, 2)
    del tree["router"]
    refuses("merge_parts: missing router", merge_parts, tree, 2)
    tree |= {"bi": jnp.zeros((E, H)), "kernel": jnp.zeros(3)}
    refuses("average_experts: missing router, bo, bg; surplus kernel", average_experts, tree, 2)
