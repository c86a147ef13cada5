"""tools/quickstart from beginning to end, shortened, and what a second run and Ctrl-C do."""

import json
import pathlib
import shlex
import subprocess
import sys

import pytest

import environment
import pace
import quickstart

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"
STEPS = 20


def start(*arguments: str, folder: pathlib.Path) -> subprocess.Popen[str]:
    """The program, started in `folder` with this interpreter's environment."""
    command = [sys.executable, str(TOOLS / "quickstart.py"), "--python", sys.executable]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(*arguments: str, folder: pathlib.Path) -> str:
    """What the program prints; it must succeed."""
    with start(*arguments, folder=folder) as process:
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, str]:
    """A folder with the model in `model/`, and what the run printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    return folder, run(f"--steps={STEPS}", "--trial", "--model_dir=model", folder=folder)


@pytest.mark.slow
def test_it_leaves_checkpoint_metrics_translations_scores_and_report(
    first_run: tuple[pathlib.Path, str],
) -> None:
    folder, _ = first_run
    model = folder / "model"
    assert (model / "checkpoints" / str(STEPS)).is_dir()
    assert "MODEL_DIR" in (model / "config.gin").read_text()
    assert list(model.glob("events.out.tfevents.*"))
    metrics = [json.loads(line) for line in (model / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["step"] == STEPS
    assert 0 < metrics[-1]["loss"] < 12
    translations = model / "translations" / "validation"
    manifest = json.loads((translations / "manifest.json").read_text())
    assert manifest["checkpoint_step"] == STEPS
    assert len(manifest["tasks"]) >= 95
    for task, count in manifest["tasks"].items():
        lines = (translations / f"{task}.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == count
        assert json.loads(lines[0]).keys() >= {"id", "source", "reference", "prediction", "score"}
    assert json.loads((model / "report" / "scores.json").read_text())
    page = (model / "report" / "report.html").read_text("utf-8")
    assert "Welsh" in page


@pytest.mark.slow
def test_it_shows_the_commands_their_cost_and_the_report(
    first_run: tuple[pathlib.Path, str],
) -> None:
    _, said = first_run
    shown = [line[2:] for line in said.splitlines() if line.startswith("$ ")]
    assert [word for line in shown for word in line.split() if "gshard" in word][::2] == [
        "gshard_train.train",
        "gshard_train.infer",
        f"{pathlib.Path(sys.executable).parent}/gshard-m4",
    ]
    assert all("""--gin.MODEL_DIR="'model'" """ in line for line in shown[:2])
    costs = [line.split() for line in said.splitlines() if line.endswith("GiB")]
    assert [line[0] for line in costs] == ["training", "translating", "scoring", "together"]
    assert all(0 < float(line[-2]) < 6 for line in costs)
    assert said.rstrip().endswith("report: model/report/report.html")


@pytest.mark.slow
def test_a_second_run_says_that_it_is_done(
    first_run: tuple[pathlib.Path, str],
) -> None:
    folder, said = first_run
    (train, *_) = [line[2:] for line in said.splitlines() if line.startswith("$ ")]
    again = subprocess.run(
        train, shell=True, cwd=folder, capture_output=True, text=True, check=True
    )
    assert f"Step {STEPS} of {STEPS} is reached: nothing to train" in again.stderr


def test_a_failing_program_is_named_and_can_be_repeated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    stage = quickstart.Stage("training", [sys.executable, "-c", "raise SystemExit(7)"])
    with pytest.raises(
        environment.Refusal, match=r"^training failed \(exit status 7\); its reason"
    ):
        quickstart.run_stage(stage)
    said = capfd.readouterr().out.strip().removeprefix("$ JAX_PLATFORMS=cpu ")
    assert shlex.split(said) == stage.command


def test_minutes_become_steps_by_the_pace_of_the_run(tmp_path: pathlib.Path) -> None:
    assert pace.kept_steps(30, tmp_path) is None
    lines = [{"step": 50 * i, "step_seconds": 9.0 if i == 1 else 0.125} for i in range(1, 5)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert pace.kept_steps(30, tmp_path) == 14400
    (tmp_path / "metrics.jsonl").unlink()
    assert pace.kept_steps(30, tmp_path) == 14400
    assert pace.kept_steps(0.01, tmp_path) == 100
