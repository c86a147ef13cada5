"""Optimizers against optax's own, and what is chosen by the names of parameters."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gshard_train.optimizer import adafactor, adam, lion, resolved, sgd
from gshard_train.parameter_groups import learning_rate_of
from gshard_train.schedule import inverse_sqrt, warmup_linear

PARAMS = {
    "encoder": {"attention": {"wq": jnp.array([1.0, -2.0])}, "norm": {"scale": jnp.array([3.0])}},
    "output": jnp.array([[0.5, 4.0]]),
}
GRADS = jax.tree.map(lambda p: 0.1 * p + 0.2, PARAMS)


def updates_of(optimizer, steps: int = 3):
    state, found = optimizer.init(PARAMS), []
    for _ in range(steps):
        updates, state = optimizer.update(GRADS, state, PARAMS)
        found.append(updates)
    return found


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            adam(0.1, weight_decay=0.2, clip_norm=None),
            optax.adamw(0.1, 0.9, 0.98, 1e-9, weight_decay=0.2),
        ),
        (sgd(0.1), optax.sgd(0.1)),
        (sgd(0.1, momentum=0.8, nesterov=True), optax.sgd(0.1, 0.8, nesterov=True)),
        (lion(0.1, weight_decay=0.2), optax.lion(0.1, weight_decay=0.2)),
        (
            sgd(warmup_linear(1.0, 10, 0.5), clip_norm=0.1),
            optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(warmup_linear(1.0, 10, 0.5))),
        ),
    ],
)
def test_updates_are_optax_s(ours, theirs):
    for a, b in zip(updates_of(ours), updates_of(theirs), strict=True):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), a, b)


def test_clipping_bounds_the_gradient_s_norm():
    params = {"w": jnp.zeros(3)}
    optimizer = adam(1.0, clip_norm=1.0)
    opt_state = optimizer.init(params)
    small, _ = optimizer.update({"w": jnp.array([0.6, 0.0, 0.8])}, opt_state, params)
    large, _ = optimizer.update({"w": jnp.array([60.0, 0.0, 80.0])}, opt_state, params)
    np.testing.assert_allclose(small["w"], large["w"], rtol=1e-6)


def test_the_first_expression_that_matches_the_whole_name_says_the_weight_decay():
    by_name = {".*/scale": 0.0, "encoder/.*": 0.5}
    optimizer = sgd(1.0, weight_decay=0.1, weight_decay_by_name=by_name)
    found = updates_of(optimizer, 1)[0]
    expected = jax.tree.map(lambda p, g: -(g + 0.1 * p), PARAMS, GRADS)
    expected["encoder"]["attention"]["wq"] -= 0.4 * PARAMS["encoder"]["attention"]["wq"]
    expected["encoder"]["norm"]["scale"] += 0.1 * PARAMS["encoder"]["norm"]["scale"]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


def test_the_learning_rate_of_a_group_is_times_the_others():
    optimizer = sgd(0.5, learning_rate_scale_by_name={"output": 3.0})
    found = updates_of(optimizer, 1)[0]
    np.testing.assert_allclose(found["output"], -1.5 * GRADS["output"])
    np.testing.assert_allclose(
        found["encoder"]["norm"]["scale"], -0.5 * GRADS["encoder"]["norm"]["scale"]
    )


def test_expressions_that_do_nothing_are_refused_together():
    by_name = {"encoder/.*": 0.1, "encoder/norm/scael": 0.2, ".*/wq": 0.3, "(": 0.4, "output": -1.0}
    optimizer = adam(1.0, weight_decay_by_name=by_name)
    with pytest.raises(ValueError, match="weight_decay_by_name") as info:
        optimizer.init(PARAMS)
    assert str(info.value).split("; ") == [
        "weight_decay_by_name['output']=-1.0 must be a number of at least 0",
        "weight_decay_by_name: 'encoder/norm/scael' matches the whole name of no parameter",
        "did you mean encoder/norm/scale? (names are such as encoder/attention/wq)",
        "weight_decay_by_name: '.*/wq' never counts, since earlier expressions match the same "
        "parameters",
        "put it first",
        "weight_decay_by_name: '(' is no regular expression (missing ), unterminated subpattern "
        "at position 0)",
    ]


def test_the_end_of_a_name_is_guessed_too():
    optimizer = sgd(1.0, learning_rate_scale_by_name={".*/scael": 0.5})
    with pytest.raises(ValueError, match=re.escape("'.*/scael' matches the whole name")) as info:
        optimizer.init(PARAMS)
    assert "did you mean scale?" in str(info.value)


def test_the_state_tells_the_learning_rate_that_made_the_update():
    optimizer = adam(warmup_linear(1.0, 10, 0.5))
    state, rates = optimizer.init(PARAMS), []
    for _ in range(3):
        _, state = optimizer.update(GRADS, state, PARAMS)
        rates.append(float(learning_rate_of(state)))
    np.testing.assert_allclose(rates, [0.0, 0.2, 0.4], rtol=1e-6)
    assert learning_rate_of(optax.sgd(0.1).init(PARAMS)) is None


def test_an_optimizer_of_names_is_made_with_the_names():
    plain = sgd(1.0)
    assert resolved(plain, {"w": ("embed",)}) is plain
    seen = []
    assert resolved(lambda names: seen.append(names) or plain, {"w": ("embed",)}) is plain
    assert seen == [{"w": ("embed",)}]
    assert isinstance(resolved(adafactor(1.0), {"w": ("embed",)}), optax.GradientTransformation)


def test_numbers_outside_their_range_are_refused_together():
    expected = (
        "adam: b1=1.0 must be in [0, 1); epsilon=-1.0 must be a number of at least 0; "
        "learning_rate='1e-3' must be a number of at least 0; clip_norm=0 must be a number above 0"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        adam("1e-3", b1=1.0, epsilon=-1.0, clip_norm=0)
    with pytest.raises(ValueError, match=re.escape("sgd: momentum=2 must be in [0, 1)")):
        sgd(1.0, momentum=2)
    with pytest.raises(ValueError, match=re.escape("lion: b2=-0.1 must be in [0, 1)")):
        lion(1.0, b2=-0.1)


def test_of_several_learning_rates_the_first_is_told():
    labels = {"encoder": "learning_rate", "output": "b"}
    groups = {"learning_rate": adam(0.25), "b": sgd(warmup_linear(1.0, 10))}
    optimizer = optax.multi_transform(groups, labels)

    @jax.jit
    def step(state):
        return learning_rate_of(optimizer.update(GRADS, state, PARAMS)[1])

    assert float(step(optimizer.init(PARAMS))) in (0.25, 0.0)
    with_state = optax.inject_hyperparams(optax.sgd)(warmup_linear(1.0, 10)).init(PARAMS)
    assert float(learning_rate_of(with_state)) == 0.0


def test_functions_that_were_not_called_lack_their_brackets():
    expected = re.escape(
        "adam: learning_rate is a tree of names, so the optimizer itself was called with them; "
        "call it with its own arguments: in gin with brackets, such as OPTIMIZER = @adam()"
    )
    with pytest.raises(ValueError, match=f"^{expected}$"):
        resolved(adam, {"w": ("embed",)})
    with pytest.raises(ValueError, match=r"gives no number for .* in gin @warmup_linear\(\), with"):
        sgd(warmup_linear).init(PARAMS)
    with pytest.raises(ValueError, match=r"gives no number for a step .* in gin @inverse_sqrt\(\)"):
        jax.eval_shape(sgd(inverse_sqrt).init, PARAMS)
    many = [0] * 99
    expected = re.escape(
        "sgd: weight_decay=sgd must be a number of at least 0; it is a function, so call it: in "
        f"gin @sgd(), with brackets; clip_norm={str(many)[:57]}... must be a number above 0"
    )
    with pytest.raises(ValueError, match=f"^{expected}$"):
        sgd(1.0, weight_decay=sgd, clip_norm=many)
