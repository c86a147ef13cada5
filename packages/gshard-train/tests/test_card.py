"""Cost cards of results that are made by hand, in numbers that are worked out by hand."""

import dataclasses
import json

import pytest

from gshard_annotate.inspector.collectives import Collective
from gshard_annotate.inspector.report import Cost, Exchange, Memory, Operation, Report, Source
from gshard_train.precompiling.advice import Advice, Tried
from gshard_train.precompiling.card import cost_card
from gshard_train.precompiling.job import Allocation, Facts, Fault, Job, Result, Tensor

GIB = 2**30


def tensor(what, name, gib, split="expert -"):
    return Tensor(what=what, name=name, shape=(6, 5), dtype="float32", split=split,
                  device_bytes=int(gib * GIB))  # fmt: skip


FACTS = Facts(
    num_devices=16,
    device_kind="TPU v3",
    mesh={"data": 2, "expert": 8},
    parameters=3_000_000_000,
    expert_parameters=2_500_000_000,
    active_parameters=700_000_000,
    batch_size=400,
    source_tokens=100_000,
    target_tokens=90_000,
    model_flops=1.23e14,
    tensors=(
        tensor("parameters", "encoder.wi", 2),
        tensor("parameters", "decoder.wi", 2),
        tensor("optimizer", "v.wi", 1, "- -"),
        tensor("batch", "tokens", 0.5),
    ),
)
JOB = Job(gin_files=("some/folder/moe_<b>.gin", "run.gin"), topology="v3:2x4")


def exchange(kind, line, num_bytes, seconds, *, times=3, surprise=""):
    return Exchange(
        collective=Collective(kind, "f32[2]", num_bytes, "main", "jit(step)/send"),
        mesh_axes=("expert",),
        group_size=8,
        times=times,
        seconds=seconds,
        share=None,
        source=Source(file="/a/exchange.py", line=line, function="send"),
        cause=f"annotate[expert] at exchange.py:{line}",
        surprise=surprise,
    )


def operation(scope, seconds):
    return Operation(scope=scope, primitive="dot_general", backward=False, recomputed=False,
                     times=1, flops=1, bytes_accessed=1, seconds=seconds)  # fmt: skip


REPORT = Report(
    title="step",
    platform="tpu",
    chip="TPU v3 core",
    mesh={"data": 2, "expert": 8},
    values=(),
    exchanges=(
        exchange("all-gather", 7, 50, 0.01, surprise="all-gather of wi: nobody asked"),
        exchange("all-to-all", 4, 100, 0.02),
        exchange("all-to-all", 4, 200, 0.04),
        exchange("all-reduce", 4, 10, 0.03),
    ),
    memory=Memory(arguments=6 * GIB, results=6 * GIB, temporaries=4 * GIB, aliased=int(5.5 * GIB),
                  peak=int(10.5 * GIB), limit=16 * GIB),
    cost=Cost(flops=2e13, bytes_accessed=1e12, compute_seconds=0.3, memory_seconds=0.2,
              collective_seconds=0.1, step_seconds=0.5),
    compile_seconds=50.0,
    operations=(operation("experts", 0.25), operation("attention", 0.15)),
)  # fmt: skip
FITS = Result(job=JOB, facts=FACTS, report=REPORT, lower_seconds=2.0, compile_seconds=50.0,
              host_peak_bytes=3 * GIB)  # fmt: skip
TOO_LARGE = Result(
    job=JOB,
    facts=FACTS,
    fault=Fault(
        kind="too large", message="moe does not fit", needed_bytes=17 * GIB,
        limit_bytes=int(15.5 * GIB),
        allocations=(
            Allocation(bytes=3 * GIB, shape="f32[8,9]{1,0:T(8,128)}", op_name="logits/dot_general",
                       source="transformer.py:210"),
            Allocation(bytes=2 * GIB, shape="f32[6,5]", op_name=""),
        ),
    ),
)  # fmt: skip
CRASHED = Result(job=JOB, facts=FACTS, fault=Fault(kind="crashed", message="died of SIGSEGV"))
ADVICE = Advice(
    tried=(
        Tried(what="something", flags=("--gin.A=1",), outcome="does not fit", fits=False),
        Tried(what="all <of> it again", flags=("--gin.R=\"'full'\"",), cautions=("slow",),
              outcome="fits", fits=True, peak_bytes=5 * GIB, step_seconds=0.5),
    ),
    found=Tried(what="all <of> it again", flags=("--gin.R=\"'full'\"",), outcome="fits", fits=True),
)  # fmt: skip


def test_speed_and_cost_follow_from_the_estimated_step():
    card = cost_card(FITS, tokens=1e9, price=1.5)
    assert card.title == "moe_<b>"
    assert card.tokens_per_second == pytest.approx(200_000)  # 100,000 in 0.5 s
    assert card.rows_per_second == pytest.approx(800)
    # 1.23e14 FLOP in half a second, on 16 cores of 61.5e12 FLOP/s.
    assert card.utilisation == pytest.approx(1.23e14 / 0.5 / (16 * 61.5e12))
    assert card.steps == 10_000
    assert card.days == pytest.approx(5_000 / 86_400)
    assert card.device_years == pytest.approx(16 * 5_000 / 86_400 / 365)
    assert card.money == pytest.approx(16 * 5_000 / 3600 * 1.5)
    assert card.parts["expert matmul"] == 0.25
    assert sum(card.parts.values()) == pytest.approx(0.5)


def test_memory_is_split_into_what_it_is_for():
    memory = cost_card(FITS).memory
    held = [memory.parameters, memory.optimizer, memory.inputs, memory.padding,
            memory.activations, memory.results]  # fmt: skip
    assert held == [4 * GIB, GIB, GIB // 2, GIB // 2, 4 * GIB, GIB // 2]
    assert sum(held) == memory.peak
    too_large = cost_card(TOO_LARGE).memory
    assert too_large.activations == 17 * GIB - int(5.5 * GIB)
    assert too_large.free == -int(1.5 * GIB)


def test_optimizer_in_the_hosts_memory_is_not_the_devices():
    moved = [dataclasses.replace(one, on_host=one.what == "optimizer") for one in FACTS.tensors]
    card = cost_card(Result(job=JOB, facts=dataclasses.replace(FACTS, tensors=tuple(moved))))
    assert (card.memory.optimizer, card.memory.on_host) == (0, GIB)
    assert "1 GiB of the optimizer in the host's memory" in card.text()
    assert [one.what for one in card.rooms] == ["parameters", "batch"]


def test_verdicts():
    assert cost_card(FITS).fits
    assert "10.5 GiB of the 15.5 GiB" in cost_card(FITS).verdict
    assert cost_card(FITS).verdict.endswith("4.98 GiB free")
    full = dataclasses.replace(REPORT.memory, peak=int(15.9 * GIB))
    full = cost_card(dataclasses.replace(FITS, report=dataclasses.replace(REPORT, memory=full)))
    assert full.fits is False
    assert "430 MiB too much; the compiler took it" in full.verdict
    assert cost_card(TOO_LARGE).fits is False
    assert cost_card(TOO_LARGE).verdict.endswith("1.5 GiB too much")
    assert cost_card(CRASHED).fits is None
    assert "died of SIGSEGV" in cost_card(CRASHED).text()
    assert "COMPILING: not finished" in cost_card(CRASHED).text()
    kind = dataclasses.replace(FACTS, device_kind="TPU v9")
    report = dataclasses.replace(REPORT, memory=dataclasses.replace(REPORT.memory, limit=None))
    unknown = cost_card(dataclasses.replace(FITS, facts=kind, report=report))
    assert unknown.verdict == "takes 10.5 GiB a device, whose memory is not known"
    timeless = dataclasses.replace(report, chip=None, cost=Cost(flops=2e13, bytes_accessed=1e12))
    card = cost_card(dataclasses.replace(FITS, facts=kind, report=timeless))
    for shown in (card.text(), card.html()):
        assert "NO ESTIMATE of times: the figures of TPU v9 are not known" in shown


def test_what_is_not_compiled_may_still_be_too_large():
    described = cost_card(Result(job=JOB, facts=FACTS))
    assert described.fits is None
    assert described.verdict.endswith("take 5.5 GiB of the 15.5 GiB that a device has for programs")
    assert "COMPILING: not asked for" in described.text()
    heavy = dataclasses.replace(FACTS, tensors=(*FACTS.tensors, tensor("optimizer", "m.wi", 11)))
    card = cost_card(Result(job=JOB, facts=heavy))
    assert (card.fits, card.memory.peak) == (False, None)
    assert card.verdict.startswith("does not fit: parameters, optimizer and batch take 16.5 GiB")


def test_exchanges_of_one_kind_axes_and_line_are_one():
    found = [
        (one.kind, one.source, one.times, one.bytes, round(one.seconds or 0, 6))
        for one in cost_card(FITS).exchanges
    ]
    assert found == [
        ("all-to-all", "exchange.py:4", 6, 900, 0.06),
        ("all-reduce", "exchange.py:4", 3, 30, 0.03),
        ("all-gather", "exchange.py:7", 3, 150, 0.01),
    ]


def test_rooms_are_arrays_that_are_alike_and_named_temporaries():
    found = [(one.what, one.names, one.bytes // GIB) for one in cost_card(TOO_LARGE).rooms]
    assert found == [
        ("parameters", "encoder.wi and 1 alike", 4),
        ("temporary", "logits/dot_general", 3),
        ("optimizer", "v.wi", 1),
        ("batch", "tokens", 0),
    ]
    assert cost_card(TOO_LARGE).rooms[1].shape == "f32[8,9]"


@pytest.mark.parametrize("result", [FITS, TOO_LARGE, CRASHED])
def test_text_is_120_letters_wide(result):
    card = dataclasses.replace(cost_card(result, price=2), advice=ADVICE)
    assert max(map(len, card.text().splitlines())) <= 120
    assert (
        "moe_<b>: training step on v3:2x4, 16 TPU v3 devices, mesh data=2, expert=8" in card.text()
    )


def test_text_says_what_was_asked_and_that_estimates_are_estimates():
    text = cost_card(FITS, tokens=1e9, price=1.5).text()
    for said in ("ESTIMATE: 500 ms a step, 200k source tokens/s", "25 % of peak", "steps 10,000",
                 "money 33.3 at 1.5 a device-hour", "nothing waits (a floor)",
                 "50 %  expert matmul", "SURPRISES (1)", "all-gather of wi: nobody asked",
                 "7.69 TFLOP a device by the model, 20 TFLOP as compiled"):  # fmt: skip
        assert said in text
    assert "money 0.367 at 1.1" in cost_card(FITS, tokens=1.5e7, price=1.1).text()


def test_json_has_a_version_and_every_attribute():
    card = dataclasses.replace(cost_card(FITS), advice=ADVICE)
    form = json.loads(card.json())
    assert (form["format"], form["version"]) == ("gshard-train cost card", 1)
    assert form["step_seconds"] == 0.5
    assert form["memory"]["activations"] == 4 * GIB
    assert form["exchanges"][0]["mesh_axes"] == ["expert"]
    assert form["job"]["topology"] == "v3:2x4"
    assert form["advice"]["found"]["flags"] == ["--gin.R=\"'full'\""]
    assert set(form) == {"format", "version", *(f.name for f in dataclasses.fields(card))}


@pytest.mark.parametrize("result", [FITS, TOO_LARGE, CRASHED])
def test_page_escapes_what_users_write(result):
    page = dataclasses.replace(cost_card(result), advice=ADVICE).html()
    assert "<h1>moe_&lt;b&gt;</h1>" in page
    assert "all &lt;of&gt; it again" in page
    assert "moe_<b>" not in page
    assert "http" not in page.partition("</style>")[2].partition("<script>")[0]


def test_nonsense_is_refused():
    for tokens in (0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"tokens={tokens}; give a number above 0"):
            cost_card(FITS, tokens=tokens)
    with pytest.raises(ValueError, match="price=-1 a device-hour; give 0 or more"):
        cost_card(FITS, price=-1)
    refused = Result(job=JOB, fault=Fault(kind="refused", message="no such topology 'v3:5x5'"))
    with pytest.raises(ValueError, match="nothing is known of moe_<b>: no such topology 'v3:5x5'"):
        cost_card(refused)
