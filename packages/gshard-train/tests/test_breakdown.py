"""The time by part, and that the model's work has parts to belong to."""

import collections
import dataclasses
import re

import jax
import pytest
from jax.extend.core import jaxprs_in_params

from gshard_annotate import DEFAULT_RULES
from gshard_annotate.inspector.operations import name_of
from gshard_annotate.inspector.report import Cost, Memory, Operation, Report
from gshard_train.loss import LossConfig
from gshard_train.optimizer import adafactor, resolved
from gshard_train.precompiling.breakdown import PARTS, breakdown, growth, part_of_scope
from gshard_train.state import abstract_model, abstract_state
from gshard_train.step import make_step


def operation(scope, seconds):
    return Operation(scope, "dot_general", False, False, 3, 5, 7, seconds)


def report(*operations, step=None, collectives=0.25):
    cost = Cost(5.0, 7.0, 0.1, 0.2, None if step is None else collectives, step)
    return Report("step", "tpu", "TPU v3 core", {"data": 2}, (), (), Memory(1, 1, 1, 1, 2), cost,
                  1.0, operations=operations)  # fmt: skip


def test_the_innermost_scope_that_belongs_to_a_part_counts():
    scopes = {
        "attention/projections": 1.0,
        "attention": 2.0,
        "attention/norm": 4.0,
        "dense_feed_forward/norm": 8.0,
        "experts": 16.0,
        "gating": 32.0,
        "dispatch": 64.0,
        "combine": 128.0,
        "loss": 256.0,
        "encoder/logits": 512.0,
        "optimizer": 1024.0,
        "norm": 2048.0,
        "": 4096.0,
    }
    found = breakdown(report(*(operation(*one) for one in scopes.items()), step=8191.25))
    assert found == {
        "dense matmul": 9.0,
        "expert matmul": 16.0,
        "attention": 6.0,
        "gating": 32.0,
        "dispatch": 192.0,
        "embedding and logits": 768.0,
        "optimizer": 1024.0,
        "other": 6144.0,
        "collectives": 0.25,
    }
    assert tuple(found) == PARTS


def test_parts_add_up_to_the_step():
    found = breakdown(report(operation("experts", 0.1), operation("gating", 0.2), step=0.6))
    assert sum(found.values()) == pytest.approx(0.6)
    assert found["other"] == pytest.approx(0.6 - 0.1 - 0.2 - 0.25)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (report(operation("experts", None)),
         "breakdown: the report on step names no chip and has no times"),
        (report(step=0.5),
         "breakdown: the report on step has no operations; it was written by an older "
         "gshard-annotate, compile again"),
    ],
)  # fmt: skip
def test_reports_without_times_or_operations_are_refused(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        breakdown(given)


def test_growth_is_the_power_of_the_number_of_devices():
    reports = {
        devices: report(
            operation("experts", 0.5),
            operation("gating", 0.01 * devices),
            operation("attention", 0.02 * devices**0.5),
            step=0.5 + 0.01 * devices + 0.02 * devices**0.5 + 0.25,
        )
        for devices in (16, 128, 2048)
    }
    found = growth(reports)
    assert found["expert matmul"] == pytest.approx(0.0)
    assert found["gating"] == pytest.approx(1.0)
    assert found["attention"] == pytest.approx(0.5)
    assert found["optimizer"] is None
    with pytest.raises(ValueError, match=r"^growth: 1 machines; it takes 2 to grow$"):
        growth({16: reports[16]})


def equations(jaxpr, around=""):
    """Every operation with the name stack that XLA will know it by."""
    for equation in jaxpr.eqns:
        name = f"{around}/{equation.source_info.name_stack}/{equation.primitive.name}"
        yield equation.primitive.name, name
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner, name)


@pytest.mark.parametrize("dispatch", ["einsum", "gather"])
def test_heavy_work_of_a_training_step_belongs_to_a_part(tiny, one_device, dispatch):
    model = abstract_model(dataclasses.replace(tiny, dispatch=dispatch, remat="save_dispatch"))
    optimizer = resolved(adafactor(1e-3), model.names())
    state = abstract_state(model, optimizer, DEFAULT_RULES, one_device)
    inputs = ("encoder_input_tokens", "decoder_input_tokens", "decoder_target_tokens")
    batch = {name: jax.ShapeDtypeStruct((8, 8), "int32") for name in inputs}
    batch |= {"decoder_loss_weights": jax.ShapeDtypeStruct((8, 8), "float32")}
    step = make_step(model, optimizer, LossConfig(), DEFAULT_RULES, one_device, microbatches=2)
    found = collections.defaultdict(set)
    for primitive, name in equations(jax.make_jaxpr(step)(state, batch).jaxpr):
        if primitive in ("dot_general", "sort", "cumsum", "gather", "scatter-add", "exp"):
            found[part_of_scope(name_of(name).scope)].add(name)
    assert not found["other"]
    assert set(PARTS) - set(found) == {"collectives", "optimizer"}
