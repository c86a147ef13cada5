"""The paper made again: its arithmetic, what is kept, what is written; no model is compiled."""

import json

import pytest

import paper_figures
import reproduce_paper
import reproduce_paper_programs as programs
import reproduce_paper_scaling as scaling
import reproduce_paper_sizes as sizes
import reproduce_paper_times as times
import reproduce_paper_training as training
from gshard_annotate.inspector.collectives import Collective
from gshard_annotate.inspector.report import Cost, Exchange, Memory, Operation, Report
from gshard_train import config
from gshard_train.precompiling.job import Facts, Fault, Result, Tensor
from reproduce_paper_tables import Column, Section, deviation, markdown

MS = 1e-3


def operation(scope, seconds, *, backward=False, recomputed=False):
    return Operation(scope, "dot_general", backward, recomputed, 1, 0, 0, seconds)


def exchange(kind, op_name, seconds):
    moved = Collective(kind, "f32[2]", 8, "main", op_name)
    return Exchange(moved, ("expert",), 128, 1, seconds, None, None, "", "")


def report(operations=None, exchanges=(), seconds=0.5):
    return Report(
        title="step",
        platform="tpu",
        chip="TPU v3 core",
        mesh={"data": 1, "expert": 128},
        values=(),
        exchanges=tuple(exchanges),
        memory=Memory(4 * 10**9, 4 * 10**9, 7 * 10**9, 4 * 10**9, 11 * 10**9, 2**34),
        cost=Cost(1e12, 1e11, 0.2, 0.3, 0.05, seconds),
        compile_seconds=40.0,
        operations=tuple(operations or [operation("experts", 0.4)]),
    )


def result(job, fault=None, **given):
    tensor = Tensor(
        what="parameters", name="w", shape=(9,), dtype="float32", split="-", device_bytes=3 * 10**9
    )
    facts = Facts(
        num_devices=128,
        device_kind="TPU v3",
        mesh={"data": 1, "expert": 128},
        parameters=37 * 10**9,
        expert_parameters=36 * 10**9,
        active_parameters=10**9,
        batch_size=4096,
        source_tokens=2**20,
        target_tokens=2**20,
        model_flops=1e15,
        tensors=(tensor,),
    )
    made = None if fault else report(**given)
    return Result(job=job, facts=facts, report=made, fault=fault, compile_seconds=40.0)


def compiled(job, fault=None, **given):
    made = result(job, fault, **given)
    return programs.Compiled(result=made, cpu_seconds=60.0, load=0.1, sources="s", versions={})


def cells(section):
    """The rows as in JSON."""
    return section.form()["rows"]


def test_what_the_paper_prints_fits_together():
    for name, model in paper_figures.MODELS.items():
        if model.steps_per_second is None or model.days is None:
            continue
        millions = 1e6 * (model.batch_tokens >> 20)
        days = paper_figures.TOKENS / (millions * model.steps_per_second) / 86_400
        assert model.days == pytest.approx(days, rel=0.05), name
        assert model.core_years == pytest.approx(model.days * model.cores / 365, rel=0.05), name
    for experts, parts in paper_figures.STEP_TIME.items():
        total = paper_figures.STEP_TIME_TOTAL[experts]
        assert sum(bar.measured for bar in parts.values()) == pytest.approx(
            total.measured, rel=0.02
        )
        assert sum(bar.roofline for bar in parts.values()) == pytest.approx(
            total.roofline, rel=0.02
        )


def test_a_pair_has_its_forward_pass_alone_and_two_attentions_of_three():
    found = times.pair_times(
        report(
            [
                operation("attention/projections", 27 * MS),
                operation("attention/projections", 50 * MS, backward=True),
                operation("attention", 9 * MS),
                operation("attention", 9 * MS, recomputed=True),
                operation("dense_feed_forward", 18 * MS),
                operation("dense_feed_forward/norm", 1.8 * MS),
                operation("experts", 36 * MS),
                operation("gating", 2 * MS),
                operation("dispatch", 3 * MS),
                operation("combine", 4 * MS),
                operation("optimizer", 100 * MS),
                operation("loss/logits", 100 * MS),
                operation("", 100 * MS),
            ],
            [
                exchange("all-to-all", "jit(step)/jvp()/while", 9 * MS),
                exchange("all-to-all", "jit(step)/transpose(jvp())/while", 9 * MS),
                exchange("all-reduce", "jit(step)/jvp()/while", 9 * MS),
            ],
        ),
        36,
    )
    assert found == pytest.approx(
        {
            "attention projections": 1 * MS,
            "attention": MS / 3,
            "dense feed-forward": 1 * MS,
            "gating and dispatch": 0.5 * MS,
            "all-to-all": 0.5 * MS,
            "experts": 2 * MS,
            "other (norms, dropout)": 0.1 * MS,
        }
    )


def test_growth_is_of_2048_experts_over_128():
    jobs = times.breakdown_jobs()
    found = {
        jobs[128]: compiled(jobs[128], operations=[operation("experts", 0.2)], seconds=0.4),
        jobs[2048]: compiled(jobs[2048], operations=[operation("experts", 0.3)], seconds=0.5),
    }
    pair, moved, step = cells(times.growth(found))
    assert (pair["paper, measured"], pair["here, estimate"]) == (1.7, pytest.approx(1.5))
    assert pair["to measured"] == pytest.approx(1.5 / 1.7 - 1)
    assert (moved["here, estimate"], step["here, estimate"]) == (None, 1.25)


def test_memory_and_cost_are_beside_the_papers_and_say_what_does_not_fit():
    job = programs.fixed_load(2048, 36)
    assert job == programs.shipped(paper_figures.MODELS["MoE(2048E, 36L)"])
    (row,) = cells(sizes.memory({job: compiled(job)}))
    assert (row["weights, paper GB"], row["weights, here"], row["their deviation"]) == (
        6.0,
        3.0,
        -0.5,
    )
    assert (row["all, here"], row["verdict"]) == (11.0, "fits")
    (row,) = cells(training.cost({job: compiled(job)}))
    assert (row["steps/s, paper"], row["steps/s, here"]) == (0.72, 2.0)
    assert row["days, here"] == pytest.approx(1e12 / 2**20 * 0.5 / 86_400, rel=1e-5)
    assert (row["layout, here"], row["memory"]) == ("expert 128", "fits")
    dense = programs.shipped(paper_figures.MODELS["T(96L)"])
    (row,) = cells(training.cost({dense: compiled(dense)}))
    assert row["days, here"] == pytest.approx(1.2e12 / 2**20 * 0.5 / 86_400, rel=1e-5)
    large = Fault(kind="too large", message="m", needed_bytes=17 * 10**9, limit_bytes=16 * 10**9)
    (row,) = cells(sizes.memory({job: compiled(job, large)}))
    assert (row["all, here"], row["verdict"]) == (17.0, "does not fit")
    crash = Fault(kind="crashed", message="ended by SIGKILL\nmore")
    (row,) = cells(sizes.memory({job: compiled(job, crash)}))
    assert (row["all, here"], row["verdict"]) == (None, "crashed: ended by SIGKILL")


@pytest.mark.parametrize(("experts", "layers", "batch"), [(128, 36, 1024), (2048, 24, 16384)])
def test_the_load_of_a_core_is_the_same_on_any_number_of_cores(experts, layers, batch):
    job = programs.fixed_load(experts, layers)
    run = ["gshard_train/configs/runs/train.gin"]
    task = ["MODEL_DIR = 'd'", "MIXTURE_OR_TASK_NAME = 'a'", "TRAIN_STEPS = 1"]
    loaded = config.load([*job.gin_files, *run], [*task, *job.gin_bindings])
    experiment = loaded.arguments("gshard_train.training.train")["experiment"]
    model = experiment.model
    assert (model.num_experts, experiment.batch_size) == (experts, batch)
    assert model.num_encoder_layers + model.num_decoder_layers == layers
    axes = loaded.arguments("gshard_annotate.mesh.make_mesh")["axes"]
    assert axes == {"data": 1, "expert": experts}


@pytest.fixture
def ends(monkeypatch):
    """How each compilation ends; what was asked for is taken off its front."""
    faults = []

    class Compiler:
        def __init__(self, *, on_progress):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def compile(self, job, *, timeout_seconds):
            assert timeout_seconds == 5
            return result(job, faults.pop(0))

    monkeypatch.setattr(programs, "Compiler", Compiler)
    return faults


def test_what_was_compiled_is_kept_and_what_crashed_is_tried_again(ends, tmp_path, monkeypatch):
    jobs = [programs.fixed_load(16, 36), programs.fixed_load(32, 36)]
    said = []
    kept = programs.Programs(tmp_path, timeout_seconds=5, say=said.append)
    ends += [None, Fault(kind="crashed", message="ended by SIGSEGV")]
    first = kept.all_of([*jobs, jobs[0]])
    assert first[jobs[0]].result.fault is None
    assert "crashed: ended by SIGSEGV" in said[-1]
    ends.append(None)
    second = kept.all_of(jobs)
    assert not ends
    assert second[jobs[0]] == first[jobs[0]]
    assert second[jobs[1]].result.fault is None
    monkeypatch.setattr(programs, "sources", lambda: "others")
    reused = programs.Programs(tmp_path, timeout_seconds=5, reuse=True, say=said.append)
    assert reused.all_of(jobs) == second
    next(tmp_path.iterdir()).write_text("{}")
    ends += [None, None]
    kept.all_of(jobs)
    assert not ends
    assert any("is no program's result" in line for line in said)


def test_powers_of_lines_are_found():
    assert scaling.power({32: 5.0, 128: 10.0, 512: 20.0}) == pytest.approx(0.5)
    assert scaling.power({32: 5.0, 128: 5.0}) == pytest.approx(0)
    assert scaling.power({32: 0.0, 128: 0.0}) is None
    assert {cores: scaling.sides(cores) for cores in (16, 32, 2048)} == {
        16: (2, 4),
        32: (4, 4),
        2048: (32, 32),
    }


@pytest.mark.slow
def test_operators_exchange_and_grow_as_table_4_says():
    found = scaling.compiled_operators([32, 128], timeout_seconds=300)
    assert found.keys() == paper_figures.OPERATORS.keys()
    rows = {row["operator"]: row for row in cells(scaling.operators(found))}
    for name, growth in paper_figures.OPERATORS.items():
        kinds = list(found[name]["32"]["collectives"])
        assert len(kinds) == bool(growth.collective), name
        assert all(kind in growth.collective for kind in kinds), name
        assert rows[name]["here D^"] == pytest.approx(growth.compute, abs=0.01), name
        # The time of an all-to-all grows with its way, not with its bytes.
        grows = "its time here D^" if growth.collective == "all-to-all" else "its bytes here D^"
        if growth.collective:
            assert rows[name][grows] == pytest.approx(growth.communication, abs=0.01), name


def test_tables_have_the_papers_figure_ours_and_the_deviation():
    columns = Column("what"), Column("paper", ".1f"), Column("here", ",.0f"), Column("off", "+.0%")
    rows = (("a", 2.0, 3000.0, deviation(3.0, 2.0)), ("b", None, 1.0, deviation(1.0, None)))
    section = Section(key="k", title="T", of="Table 9", columns=columns, rows=rows, says=("s",))
    assert markdown(section) == (
        "## T (Table 9)\n\n"
        "| what | paper |  here |   off |\n"
        "| ---- | ----: | ----: | ----: |\n"
        "| a    |   2.0 | 3,000 | +50 % |\n"
        "| b    |     - |     1 |     - |\n\n"
        "- s\n"
    )


def test_sections_without_a_compiler_are_written_in_three_forms(tmp_path, capsys):
    out = tmp_path / "out"
    assert reproduce_paper.main(["--sections=parameters,exchanges", f"--out={out}"]) == 0
    found = json.loads((out / "paper.json").read_text())["sections"]
    billions = {row["model"]: row["here, billions"] for row in found["parameters"]["rows"]}
    assert billions["MoE(2048E, 36L)"] == pytest.approx(619.4, abs=0.05)
    assert len(found["exchanges"]["rows"]) == 4 * 8
    page = (out / "paper.html").read_text()
    assert page.count("<svg") == 1
    assert "## Exchanges (Figure 9)" in (out / "paper.md").read_text()
    assert "| MoE(128E, 12L) " in capsys.readouterr().out


def test_a_program_that_is_too_large_crashes_or_takes_too_long_is_a_row(
    ends, tmp_path, monkeypatch
):
    work = {"flops": 1e9, "bytes": 1e6, "collectives": {"all-reduce": 4}, "seconds": 1e-3}
    operators = {name: {"32": work, "128": work} for name in paper_figures.OPERATORS}
    monkeypatch.setattr(scaling, "compiled_operators", lambda *_, **__: operators)
    large = Fault(kind="too large", message="m", needed_bytes=17 * 10**9, limit_bytes=16 * 10**9)
    slow = Fault(kind="timed out", message="not done in 5 s")
    ends += [None, slow, Fault(kind="crashed", message=""), None, large, *[None] * 20]
    assert reproduce_paper.main([f"--out={tmp_path}", "--timeout=5"]) == 1
    form = json.loads((tmp_path / "paper.json").read_text())["sections"]
    assert list(form) == list(reproduce_paper.SECTIONS)
    ended = [row["ended as"] for row in form["compile"]["rows"]]
    assert ended == ["", "timed out", "crashed", "", "too large"]
    (verdict,) = [row["verdict"] for row in form["memory"]["rows"] if "2048E, 36L" in row["model"]]
    assert verdict == "does not fit"
    assert {row["experts"] for row in form["breakdown"]["rows"]} == {"512E"}
    assert (tmp_path / "paper.html").read_text().count("<svg") == 5


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--sections=memory,bleu", "bleu: no such section; there are parameters, memory, compile"),
        ("--timeout=0", "0: give seconds above 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(argument, said, capsys):
    with pytest.raises(SystemExit):
        reproduce_paper.main([argument])
    assert said in capsys.readouterr().err
