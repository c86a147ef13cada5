"""What would make a run fit, with a compiler whose programs take what a formula says."""

import dataclasses
from types import SimpleNamespace

import pytest

from gshard_annotate.inspector.report import Cost, Memory, Report
from gshard_train.precompiling.advice import advise
from gshard_train.precompiling.advice_text import advice_text
from gshard_train.precompiling.card import cost_card
from gshard_train.precompiling.job import Facts, Fault, Job, Result, Tensor
from gshard_train.precompiling.state_rungs import more_devices

GIB = 2**30
# Files' own: 128 experts, remat "none", one part of a batch, 4,096 rows of 256 tokens.
JOB = Job(
    gin_files=("gshard_train/configs/models/moe_128e_12l.gin",),
    gin_bindings=(
        'config.TransformerConfig.remat = "none"',
        'config.TransformerConfig.dispatch = "gather"',
        "config.TransformerConfig.num_groups = 128",
        "BATCH_SIZE = 4096",
    ),
    topology="v3:8x8",
)
SAVE, FULL = (f'TransformerConfig.remat = "{policy}"' for policy in ("save_dispatch", "full"))
FSDP = "gshard_train/configs/layouts/fsdp.gin"


class MadeUp:
    """A compiler: of parameters, optimizer and activations each binding leaves a share.

    Attributes:
      compiled: what was added to the job that was to fit, for each compile.
    """

    def __init__(self, parameters, optimizer, activations, shares):
        self.state, self.activations, self.shares = (parameters, optimizer), activations, shares
        self.compiled = []

    def describe(self, job):
        sharded = 0.1 if FSDP in job.gin_files else 1
        tensors = tuple(
            Tensor(what=what, name=what, shape=(3, 2), dtype="float32", split="- -",
                   device_bytes=int(gib * sharded * GIB))
            for what, gib in zip(("parameters", "optimizer"), self.state, strict=True)
        )  # fmt: skip
        facts = Facts(
            num_devices=128, device_kind="TPU v3", mesh={"data": 1, "expert": 128},
            parameters=1, expert_parameters=1, active_parameters=1, batch_size=4096,
            source_tokens=2**20, target_tokens=2**20, model_flops=1e15, tensors=tensors,
        )  # fmt: skip
        return Result(job=job, facts=facts)

    def compile(self, job, *, timeout_seconds=None):
        self.compiled.append([*job.gin_bindings[len(JOB.gin_bindings) :], *job.gin_files[1:]])
        described = self.describe(job)
        activations = self.activations
        for binding in job.gin_bindings:
            activations *= self.shares.get(binding, 1)
        held = sum(one.device_bytes for one in described.facts.tensors)
        needed = held + int(activations * GIB)
        limit = int(15.5 * GIB)
        if needed > limit:
            fault = Fault(kind="too large", message="", needed_bytes=needed, limit_bytes=limit)
            return dataclasses.replace(described, fault=fault)
        report = Report(
            title="step", platform="tpu", chip="TPU v3 core", mesh={}, values=(), exchanges=(),
            memory=Memory(held, held, needed - held, held, needed, 16 * GIB), compile_seconds=1.0,
            cost=Cost(1e12, 1e12, 0.1, 0.1, 0.0, 0.25),
        )  # fmt: skip
        return dataclasses.replace(described, report=report)


def advised(compiler, job=JOB):
    result = compiler.compile(job)
    compiler.compiled.clear()
    return advise(compiler, result), result


def test_first_change_that_fits_ends_the_search():
    compiler = MadeUp(4, 1, 20, {SAVE: 0.7, FULL: 0.4, "Experiment.microbatches = 2": 0.6})
    advice, _ = advised(compiler)
    assert compiler.compiled == [[SAVE], [FULL]]
    assert advice.found.flags == ("--gin.TransformerConfig.remat=\"'full'\"",)
    assert advice.found.peak_bytes == 13 * GIB
    assert advice.found.tokens_per_second == 2**22  # 2**20 in a quarter of a second
    assert [one.fits for one in advice.tried] == [False, True]


def test_what_helped_stays_under_what_comes_next():
    compiler = MadeUp(4, 1, 40, {FULL: 0.4, "Experiment.microbatches = 4": 0.5})
    advice, _ = advised(compiler)
    two, four = (f"Experiment.microbatches = {parts}" for parts in (2, 4))
    assert compiler.compiled == [[SAVE], [FULL], [FULL, two], [FULL, four]]
    assert advice.found.flags == (
        "--gin.TransformerConfig.remat=\"'full'\"",
        "--gin.Experiment.microbatches=4",
    )


def test_parts_of_a_batch_that_cannot_be_enough_are_not_compiled():
    compiler = MadeUp(4, 1, 40, {})
    advised(compiler)
    # 9 GiB of state and summed gradients, and (40 - 8) / 8 at least for the parts.
    parts = [added for added in compiler.compiled if "microbatches" in str(added)]
    assert parts == [["Experiment.microbatches = 8"]]


def test_nothing_that_concerns_activations_is_compiled_where_the_state_alone_is_too_large():
    compiler = MadeUp(14, 4, 5, {})
    advice, _ = advised(compiler)
    assert "parameters and optimizer alone take 18 GiB of 15.5 GiB" in advice.reason
    assert compiler.compiled == [[FSDP]]
    assert advice.found.flags == (f"--gin_file={FSDP}",)


def test_once_the_state_fits_activations_are_lowered_too():
    compiler = MadeUp(14, 4, 60, {FULL: 0.1})
    advice, _ = advised(compiler)
    assert compiler.compiled == [[FSDP], [SAVE, FSDP], [FULL, FSDP]]
    assert advice.found.flags == (
        f"--gin_file={FSDP}",
        "--gin.TransformerConfig.remat=\"'full'\"",
    )


def test_where_nothing_helps_all_is_tried_and_said():
    compiler = MadeUp(4, 0.1, 40, {})
    told = []
    result = compiler.compile(JOB)
    advice = advise(compiler, result, on_tried=told.append)
    assert advice.found is None
    assert tuple(told) == advice.tried
    assert advice.tried[-1].flags[-3:] == (
        "--gin.make_mesh.axes=\"{'data': 2, 'expert': 128}\"",
        "--gin.TransformerConfig.num_groups=256",
        "--topology=v3:8x16",
    )
    said = advice_text(advice)
    for part in (
        "offload_optimizer: not tried: its state takes 10.2 MiB only",
        "activations in bfloat16",
        "the paper's 1T model was hard to keep stable so",
        "twice the devices, on axis 'data'",
        "Nothing of this fits",
    ):
        assert part in said.replace("\n    ", " ")
    assert max(map(len, said.splitlines())) <= 120
    card = dataclasses.replace(cost_card(result), advice=advice)
    assert "Nothing of this fits." in card.html()


def test_what_the_checks_refuse_is_said_and_passed_over():
    class Refusing(MadeUp):
        def describe(self, job):
            if SAVE in job.gin_bindings:
                return Result(job=job, fault=Fault(kind="refused", message="no experts"))
            return super().describe(job)

    compiler = Refusing(4, 1, 20, {FULL: 0.4})
    advice, _ = advised(compiler)
    assert compiler.compiled == [[FULL]]
    assert advice.tried[0].outcome == "cannot be: no experts"


def test_evaluation_takes_fewer_rows_and_slots():
    shares = {
        "TransformerConfig.eval_slots_per_token = 4.0": 0.5,
        "Evaluation.batch_size = 2048": 0.5,
    }
    compiler = MadeUp(4, 0, 40, shares)
    advice, _ = advised(compiler, dataclasses.replace(JOB, mode="eval"))
    assert advice.found.flags == (
        "--gin.TransformerConfig.eval_slots_per_token=4.0",
        "--gin.Evaluation.batch_size=2048",
    )
    assert advice.found.cautions == ("tokens beyond an expert's slots are dropped",)


@pytest.mark.parametrize(
    ("topology", "topologies"),
    [("v4:4x4x8_twisted", ["v4:4x8x8"]), ("v3:16x32", ["v3:32x32"]), ("v3:32x32", [])],
)
def test_the_shortest_side_is_doubled_where_there_is_such_a_machine(topology, topologies):
    experiment = SimpleNamespace(model=SimpleNamespace(num_experts=0))
    job = dataclasses.replace(JOB, topology=topology)
    facts = MadeUp(1, 1, 1, {}).describe(job).facts
    rung = more_devices(experiment, job, facts)
    assert [change.topology for change in rung.changes] == topologies


def test_what_fits_needs_no_advice():
    compiler = MadeUp(1, 1, 1, {})
    with pytest.raises(ValueError, match="only a program that is too large needs advice"):
        advised(compiler)
