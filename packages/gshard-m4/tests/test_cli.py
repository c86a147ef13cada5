import json
import subprocess
import sys

import pytest

from gshard_m4.cli import run

ROWS = [("Hund", "dog", "dog"), ("rote Rose", "red rose", "rose")] * 40


def evaluate(folder, output, *more):
    paths = [f"--translations={folder}", f"--output={output}"]
    return run(["evaluate", *paths, "--no-pictures", *more])


def test_evaluate_writes_the_report_and_prints_the_languages(write_split, tmp_path, capsys):
    folder = write_split("test", {"m4_sample_de_en": ROWS, "m4_sample_haw_en": ROWS[:9]})
    assert evaluate(folder.parent, tmp_path / "new" / "report") == 0
    out = capsys.readouterr().out
    assert "Pairs (test), checkpoint step 2050" in out
    assert "  mean of 1 language: chrF++" in out
    assert "  mean of 1 language, fewer than 40 phrases: chrF++" in out
    assert "100% of references have under four tokens: go by chrF++, not BLEU" in out
    assert "  best   German           de   chrF++" in out
    assert out.endswith(f"report: {tmp_path}/new/report/report.html\n")
    files = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert files == ["report.html", "scores.csv", "scores.json", "translations-test.jsonl.gz"]


def test_scoring_twice_gives_the_same_files(write_split, tmp_path):
    folder = write_split("test", {"m4_sample_de_en": ROWS})
    output = tmp_path / "report"
    contents = []
    for _ in range(2):
        assert evaluate(folder, output) == 0
        contents.append({path.name: path.read_bytes() for path in output.iterdir()})
    assert contents[0] == contents[1]


def test_faults_leave_the_earlier_report_as_it_was(write_split, tmp_path, capsys):
    folder = write_split("test", {"m4_de_en": ROWS, "m4_xx_en": ROWS}, checkpoint_step="last")
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "scores.json").write_text('{"written": []}')
    assert evaluate(folder, tmp_path / "report") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("gshard-m4 evaluate: ") for line in lines)
    assert "'checkpoint_step' must be a whole number, not str" in lines[0]
    assert "unknown language 'xx'" in lines[1]
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["scores.json"]
    assert (tmp_path / "report" / "scores.json").read_text() == '{"written": []}'


def test_output_that_is_a_file_is_named_beside_the_other_faults(tmp_path, capsys):
    (tmp_path / "report").write_text("mine")
    assert evaluate(tmp_path / "none", tmp_path / "report") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("report is a file; give a folder")
    assert "none does not exist" in lines[1]
    assert (tmp_path / "report").read_text() == "mine"


def test_output_that_cannot_be_written(write_split, tmp_path, capsys):
    folder = write_split("test", {"m4_de_en": ROWS})
    (tmp_path / "file").write_text("")
    assert evaluate(folder, tmp_path / "file" / "report") == 2
    assert "cannot write to --output=" in capsys.readouterr().err


def test_min_phrases(write_split, tmp_path):
    folder = write_split("test", {"m4_de_en": ROWS})
    assert evaluate(folder, tmp_path / "report", "--min-phrases=81") == 0
    split = json.loads((tmp_path / "report" / "scores.json").read_text())["splits"]["test"]
    assert (split["macro"], split["macro_few"]["languages"]) == (None, 1)


@pytest.mark.parametrize("arguments", [["evaluate", "--help"], ["evaluate"], []])
def test_help_and_usage(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    captured = capsys.readouterr()
    assert stopped.value.code == (0 if "--help" in arguments else 2)
    assert ("exit code 2" in captured.out) == ("--help" in arguments)


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_help_starts_without_heavy_imports(command):
    code = (
        "import sys, gshard_m4.cli\n"
        f"try: gshard_m4.cli.run([{command!r}, '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'sacrebleu', 'numpy', 'grain', 'sentencepiece', 'seqio', 'tensorflow', 'jax',\n"
        "         'py3langid', 'matplotlib', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_scoring_imports_neither_jax_nor_tensorflow(write_split, tmp_path):
    folder = write_split("test", {"m4_de_en": ROWS})
    paths = [f"--translations={folder}", f"--output={tmp_path / 'report'}"]
    arguments = ["evaluate", *paths, "--pictures"]
    code = (
        "import sys, gshard_m4.cli\n"
        f"assert gshard_m4.cli.run({arguments!r}) == 0\n"
        "heavy = {'grain', 'seqio', 'tensorflow', 'jax', 'pyarrow', 'gshard_train'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_module_runs_as_the_command():
    command = [sys.executable, "-m", "gshard_m4", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gshard-m4 0.")
