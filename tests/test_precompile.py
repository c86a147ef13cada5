"""Programs of the shipped gin files, compiled for TPU machines that are not here."""

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest
from absl import flags

from gshard_train import precompile
from gshard_train.precompiling.compiler import Compiler
from gshard_train.precompiling.job import Job
from gshard_train.precompiling.layout import Layout

pytestmark = pytest.mark.slow
MODEL = "gshard_train/configs/models/moe_2048e_36l.gin"
TINY = "gshard_train/configs/models/tiny.gin"  # on eight CPU devices, which are replaced
JOB = Job(gin_files=(MODEL, TINY), topology="v3:2x2", mode="eval")
TOO_MANY = "BATCH_SIZE = 131072"


@pytest.fixture(scope="module")
def compiler():
    with Compiler() as compiler:
        yield compiler


def refusal(compiler: Compiler, **changes) -> str:
    fault = compiler.describe(dataclasses.replace(JOB, **changes)).fault
    assert fault is not None
    assert fault.kind == "refused"
    return fault.message


def test_a_model_file_is_enough_to_compile_for_an_absent_machine(compiler):
    told = []
    compiler._on_progress = lambda progress: told.append(progress.doing)
    result = compiler.compile(JOB)
    assert result.fault is None
    assert result.facts.num_devices == 8
    assert result.facts.device_kind == "TPU v3"
    assert result.facts.mesh == {"data": 2, "expert": 4}
    moves = [one for one in result.report.exchanges if one.collective.kind == "all-to-all"]
    assert sum(one.times for one in moves) == 8  # there and back in four layers with experts
    assert result.report.platform == "tpu"
    assert result.host_peak_bytes > 100 * 2**20
    assert list(dict.fromkeys(told))[-1] == "compiling"


def test_what_the_devices_hold_is_known_before_compiling(compiler):
    quickstart = ("gshard_m4/configs/quickstart.gin",)  # with a run's own required MODEL_DIR
    facts = compiler.describe(dataclasses.replace(JOB, gin_files=quickstart, mode="train")).facts
    held = dict.fromkeys(("parameters", "optimizer", "batch"), 0)
    for tensor in facts.tensors:
        held[tensor.what] += tensor.device_bytes
    whole = facts.parameters - facts.expert_parameters
    assert held["parameters"] == 4 * (whole + facts.expert_parameters // 4)
    assert held["optimizer"] // 2 == pytest.approx(held["parameters"], abs=64)  # Adam's moments
    assert held["batch"] == 256 // 8 * (12 + 3 * 8) * 4


def test_packed_rows_have_their_segments(compiler):
    packed = dataclasses.replace(JOB, mode="train", gin_bindings=("PACK = True",))
    files = (MODEL, TINY, "gshard_train/configs/runs/train.gin")
    facts = compiler.describe(dataclasses.replace(packed, gin_files=files)).facts
    batch = [tensor.name for tensor in facts.tensors if tensor.what == "batch"]
    assert len(batch) == 8
    assert "decoder_segment_ids" in batch


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topology": "v3:3x3"}, ["no TPU topology 'v3:3x3': ", "near it: v3:2x2 or v3:4x4"]),
        ({"topology": "v3:4x4"}, ["data=2, expert=4 need 8 devices, 32 are in v3:4x4; give sizes"]),
        (
            {"gin_bindings": ("BATCH_SIZE = 12", "NUM_EXPERTS = 6")},
            ["batch_size=12 cannot be divided", "num_experts=6 cannot be divided by the 4 parts"],
        ),
        ({"gin_bindings": ("NUM_EXPRTS = 4",)}, ["did you mean NUM_EXPERTS?"]),
        ({"layout": Layout(mesh={"data": 2, "expart": 4})}, ["lacks expert; did you mean expert"]),
        ({"save_program": "here"}, ["save_program=here with mode=eval: only training steps"]),
    ],
)
def test_what_cannot_work_is_refused_with_all_that_is_wrong(compiler, changes, said):
    message = refusal(compiler, **changes)
    for each in said:
        assert each in message


def test_what_does_not_fit_is_an_exit_code_and_its_largest_arrays(
    compiler, tmp_path, monkeypatch, capsys
):
    card, report = tmp_path / "card.json", tmp_path / "report.json"
    values = flags.FlagValues()
    precompile.define(values)
    values(
        ["gshard-precompile", "--mode=eval", "--noadvise", "--topology=v3:2x2"]
        + [f"--gin_file={file}" for file in JOB.gin_files]
        + [f"--gin_bindings={TOO_MANY}", f"--json={card}", f"--report={report}"]
    )
    monkeypatch.setattr(flags, "FLAGS", values)
    # The module's child, which has started already.
    same = contextlib.nullcontext(compiler)
    monkeypatch.setattr("gshard_train.precompiling.compiler.Compiler", lambda **_: same)
    assert precompile.main() == 1
    said = capsys.readouterr()
    assert "Does not fit: " in said.out
    assert "f32[16384,16,32000]" in said.out
    assert "does not fit on a device of mesh data=2, expert=4 (8 TPU v3 devices)" in said.err
    assert json.loads(card.read_text())["fits"] is False
    assert not Path(report).exists()
