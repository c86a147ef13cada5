import dataclasses
import importlib.util
import json
import os
import re
import signal
import textwrap
import time
from pathlib import Path

import pytest

from gshard_annotate.inspector.report import Cost, Memory, Report
from gshard_train.precompiling import compiler as compiler_module
from gshard_train.precompiling.compiler import Compiler
from gshard_train.precompiling.job import Allocation, Facts, Fault, Job, Result, Tensor
from gshard_train.precompiling.job_json import (
    job_from_json,
    job_json,
    result_from_json,
    result_json,
)
from gshard_train.precompiling.layout import Layout

JOB = Job(gin_files=("models/big.gin", "tiny.gin"), topology="v3:4x4")
FACTS = Facts(
    num_devices=6,
    device_kind="TPU v3",
    mesh={"data": 2, "expert": 3},
    parameters=70,
    expert_parameters=40,
    active_parameters=50,
    batch_size=12,
    source_tokens=60,
    target_tokens=84,
    model_flops=1e9,
    tensors=(
        Tensor(
            what="parameters",
            name="wi",
            shape=(3, 5),
            dtype="float32",
            split="expert -",
            device_bytes=20,
        ),
    ),
)
REPORT = Report(
    title="step",
    platform="tpu",
    chip=None,
    mesh={"data": 2},
    values=(),
    exchanges=(),
    memory=Memory(1, 2, 3, 0, 6),
    cost=Cost(7.0, 8.0),
    compile_seconds=9.0,
)
# What stands for the worker: reads a job and does what its topology says.
WORKER = """
    import json, os, signal, sys, time

    out = os.fdopen(int(sys.argv[2]), "w")

    def tell(**message):
        print(json.dumps(message), file=out, flush=True)

    for line in os.fdopen(int(sys.argv[1])):
        asked = json.loads(line)
        what = asked["job"]["topology"]
        tell(doing="tracing")
        tell(doing="compiling")
        open(os.path.join(sys.argv[3], "half"), "w").close()
        if what == "SIGSEGV":
            time.sleep(0.6)  # longer than until the next look
        if what.startswith("SIG"):
            print("E0000 Check failed: x == y", file=sys.stderr, flush=True)
            print("Fatal Python error: Aborted\\n  File nowhere", file=sys.stderr, flush=True)
            os.kill(os.getpid(), getattr(signal, what))
        if what == "exit":
            os._exit(3)
        if what == "saving":
            tell(facts=COMPILED)
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            time.sleep(60)
        tell(result=FACTS_OF % json.dumps(asked["job"]))
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    form = json.loads(result_json(Result(job=JOB, facts=FACTS)))
    form["result"]["job"] = "JOB"
    text = json.dumps(json.dumps(form).replace("%", "%%").replace('"JOB"', "%s"))
    compiled = result_json(Result(job=JOB, facts=FACTS, report=REPORT, compile_seconds=9.0))
    worker = textwrap.dedent(WORKER).replace("FACTS_OF", text).replace("COMPILED", repr(compiled))
    (tmp_path / "stand_in_worker.py").write_text(worker)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compiler_module, "_WORKER", "stand_in_worker")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


def test_jobs_and_results_are_the_same_after_json():
    layout = Layout(mesh={"data": 2, "expert": -1}, remat=("attention", "experts"), microbatches=4)
    job = dataclasses.replace(JOB, layout=layout, mode="decode", num_slices=3)
    piece = Allocation(bytes=5, shape="f32[2,3]", op_name="dot", source="layer.py:7")
    fault = Fault(kind="too large", message="a\nb", needed_bytes=9, allocations=(piece,))
    assert job_from_json(job_json(job)) == job
    for result in (
        Result(job=job, facts=FACTS, fault=fault, host_peak_bytes=3),
        Result(job=job, facts=FACTS, report=REPORT, compile_seconds=1.5),
    ):
        assert result_from_json(result_json(result)) == result


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda form: form.update(version=7), "version 7, this gshard-train reads version 1"),
        (lambda form: form.update(format="x"), "the JSON is no result"),
        (lambda form: form["result"].pop("job"), "result lacks job"),
        (lambda form: form["result"].update(host_peak_bytes="3"), "host_peak_bytes is '3'"),
        (lambda form: form["result"]["job"].update(mode="dream"), "job.mode is 'dream'"),
        (lambda form: form["result"]["facts"].update(colour=1), "facts has unknown colour"),
    ],
)
def test_what_is_no_result_is_refused_by_the_part(change, said):
    form = json.loads(result_json(Result(job=JOB, facts=FACTS)))
    change(form)
    with pytest.raises(ValueError, match=said):
        result_from_json(json.dumps(form))


@pytest.mark.parametrize(
    ("topology", "kind", "said"),
    [
        ("SIGSEGV", "crashed", r"was ended by SIGSEGV \(Segmentation fault\) after \d+ s, while"),
        ("SIGKILL", "crashed", "the system did for lack of memory"),
        ("SIGABRT", "crashed", "it printed last: E0000 Check failed: x == y$"),
        ("exit", "crashed", "ended with exit code 3 after .* s, while compiling the train program"),
        ("hang", "timed out", r"after 1 s, the time it was given, .* of big.gin \+ tiny.gin for"),
    ],
)
def test_a_compiler_that_dies_is_a_fault_and_the_next_job_has_another(
    stand_in, topology, kind, said
):
    with Compiler() as compiler:
        seconds = 1 if topology == "hang" else 60
        job = dataclasses.replace(JOB, topology=topology)
        result = compiler.compile(job, timeout_seconds=seconds)
        assert result.fault is not None
        assert result.fault.kind == kind
        assert re.search(said, result.fault.message)
        if topology == "SIGSEGV":  # what was seen of it before
            assert result.compile_seconds > 0.5
            assert result.host_peak_bytes > 2**20
        assert compiler.compile(JOB) == Result(job=JOB, facts=FACTS)
        assert compiler._child is not None
        folder = Path(compiler._child._folder)
        assert [file.name for file in folder.iterdir()] == ["half"]
    assert not folder.exists()


def test_a_program_that_was_compiled_stays_one_when_saving_it_ends_the_compiler(stand_in):
    with Compiler() as compiler:
        result = compiler.compile(dataclasses.replace(JOB, topology="saving"))
    assert result.fault is None
    assert (result.report, result.compile_seconds) == (REPORT, 9.0)
    assert "was ended by SIGKILL" in result.save_fault


def test_progress_is_told_and_an_interruption_ends_the_child(stand_in):
    told = []

    def interrupt(progress):
        told.append(progress)
        if progress.doing == "compiling":
            raise KeyboardInterrupt

    compiler = Compiler(on_progress=interrupt)
    with pytest.raises(KeyboardInterrupt), compiler:
        compiler.compile(dataclasses.replace(JOB, topology="hang"))
    assert [each.doing for each in told][-1] == "compiling"
    with pytest.raises(ProcessLookupError):
        os.kill(told[-1].pid, 0)


def test_a_child_that_was_killed_between_two_jobs_is_started_again(stand_in):
    with Compiler() as compiler:
        compiler.compile(JOB)
        first = compiler._child
        assert first is not None
        os.kill(first.process.pid, signal.SIGKILL)
        while first.process.poll() is None:
            time.sleep(0.01)
        assert compiler.compile(JOB).fault is None
        assert compiler._child is not first


def test_a_missing_compiler_is_told_before_a_child_starts(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(compiler_module, "_Child", None)
    with Compiler() as compiler:
        fault = compiler.compile(JOB).fault
    assert fault is not None
    assert fault.kind == "refused"
    assert "pip install 'gshard-train[tpu]'" in fault.message
