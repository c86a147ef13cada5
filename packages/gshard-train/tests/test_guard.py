"""What is said of steps with NaN or Inf, and which of them end a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_train import nonfinite
from gshard_train.monitoring.guard import Guard, NonfiniteError
from gshard_train.nonfinite import Piece

NAMES = {
    "decoder": {"first": {"cross_attention": {"wq": ("layer", "embed")}}},
    "encoder": {"second": {"attention": {"wo": ("layer", "embed"), "wq": ("layer", "embed")}}},
    "output": ("embed", "vocab"),
    "source_embedding": {"tokens": ("vocab", "embed")},
}
PIECES = [
    *(Piece(("decoder", "first", "cross_attention", "wq"), k) for k in range(2)),
    *(Piece(("encoder", "second", "attention", "wo"), k) for k in range(3)),
    *(Piece(("encoder", "second", "attention", "wq"), k) for k in range(3)),
    Piece(("output",), None),
    Piece(("source_embedding", "tokens"), None),
]


def metrics(*, parameters=(), gradients=(), update=1.0, **terms):
    """Of a step in which the pieces with these numbers are not finite."""
    flags = np.zeros((2, len(PIECES)), bool)
    flags[0, list(parameters)] = flags[1, list(gradients)] = True
    figures = {"loss": 2.0, "total_loss": 3.0, "gradient_norm": 1.0, "update_norm": update, **terms}
    bad = bool(gradients) or not np.isfinite(figures["total_loss"])
    figures["parameter_norm"] = float("nan") if parameters else 1.0
    return {**figures, "nonfinite_parameters": flags[0], "nonfinite_tensors": flags[1]} | {
        "nonfinite": bad
    }


def test_sums_of_squares_are_those_of_each_layer_of_each_tensor():
    rng = np.random.default_rng(0)
    shapes = {"wq": (2, 3), "wo": (3, 4), "e": (3, 4), "out": (4, 5), "src": (6, 4)}
    wq, wo, e, out, src = (rng.normal(size=shape).astype(np.float32) for shape in shapes.values())
    e[1, 2], out[3, 3], src[0, 0] = np.nan, np.inf, 2e19
    tree = {
        "decoder": {"first": {"cross_attention": {"wq": jnp.array(wq)}}},
        "encoder": {"second": {"attention": {"wo": jnp.array(wo), "wq": jnp.array(e)}}},
        "output": jnp.array(out),
        "source_embedding": {"tokens": jnp.array(src)},
    }
    found = np.asarray(jax.jit(lambda x: nonfinite.sums_of_squares(x, NAMES))(tree))
    expected = [*(wq**2).sum(1), *(wo**2).sum(1), *(e**2).sum(1), np.inf, np.inf]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert nonfinite.first(~np.isfinite(found), PIECES) == PIECES[9]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            metrics(parameters=[8], gradients=range(10), loss=np.nan, total_loss=np.nan),
            "parameter output was not finite before the step",
        ),
        (
            metrics(gradients=[0, 8], z_loss=np.inf, total_loss=np.inf),
            "z_loss is inf; gradients that are not finite: 2 of 10",
        ),
        # Of the model's order: the encoder before the decoder, its layers, then wq before wo.
        (
            metrics(gradients=[0, 3, 4, 6, 8]),
            "the gradient of encoder/second/attention/wq[1] (layer 3) is not finite, the first of "
            "5; total_loss is 3.0",
        ),
        (
            metrics(gradients=[1]),
            "the gradient of decoder/first/cross_attention/wq[1] (layer 2) is not finite; "
            "total_loss is 3.0",
        ),
        (
            metrics(parameters=[8, 9], update=np.nan),
            "the optimizer's update of source_embedding/tokens is not finite, the first of 2; "
            "gradient_norm is 1.0",
        ),
        (metrics(parameters=[8]), "parameter output was not finite before the step"),
    ],
)
def test_the_first_bad_tensor_is_named(given, said):
    assert not nonfinite.all_finite(given)
    assert nonfinite.describe(given, PIECES) == said


def test_as_many_steps_as_allowed_are_left_out_and_each_names_its_examples(caplog):
    guard = Guard(lambda: PIECES, allowed=2, examples=lambda at: [f"de {at}", f"fr {at}"])
    for step in range(1, 4):
        guard.check(step, metrics(), step)
    guard.check(4, metrics(gradients=[8]), 40)
    guard.check(6, metrics(gradients=[8]), 60)
    assert [record.message for record in caplog.records] == [
        f"step {n}: the gradient of output is not finite; total_loss is 3.0; its update was left "
        f"out, {m} of the 2 that train.skipped_steps allows; the batch's examples: de {n}0, fr {n}0"
        for n, m in ((4, 1), (6, 2))
    ]
    with pytest.raises(NonfiniteError) as error:
        guard.check(7, metrics(gradients=[8]), 70)
    assert error.value.faults == (
        "step 7: the gradient of output is not finite; total_loss is 3.0; its update was left out, "
        "beside the 2 that train.skipped_steps allowed",
        "the batch's examples: de 70, fr 70",
        "lower the learning rate, clip gradients, look at these examples, or set "
        "train.skipped_steps = 3 to go on without this step's update",
    )


def test_parameters_that_are_lost_stop_the_run_whatever_is_allowed():
    guard = Guard(lambda: PIECES, allowed=9)
    with pytest.raises(NonfiniteError) as error:
        guard.check(2, metrics(parameters=[8], update=np.inf), {"next_index": 1})
    assert error.value.faults[1:] == (
        "the feed does not name its examples; it was at {'next_index': 1}",
    )


def test_a_feed_that_cannot_tell_its_examples_hides_nothing():
    guard = Guard(lambda: PIECES, examples={}.__getitem__)
    with pytest.raises(NonfiniteError, match=r"not known \(KeyError: 5\)"):
        guard.check(1, metrics(gradients=[0]), 5)
    many = Guard(lambda: PIECES, examples=lambda _: [f"de {n}" for n in range(53)])
    with pytest.raises(NonfiniteError, match="de 48, de 49 and 3 more"):
        many.check(1, metrics(gradients=[0]), 5)
