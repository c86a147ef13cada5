"""`gshard-m4 evaluate` on files of every form, as it is called."""

import csv
import io
import json

import pytest

from gshard_m4.cli import run

REFERENCES = [f"the cat number {number} sat on the mat all day" for number in range(12)]
GOOD = [text.replace("all", "the") if i % 4 == 0 else text for i, text in enumerate(REFERENCES)]
BAD = [text.replace("sat", "was").replace("day", "night") for text in REFERENCES]


@pytest.fixture
def files(tmp_path):
    """Hypotheses of two systems and one English file, in a folder."""
    for name, said in (("hyps", GOOD), ("old", BAD)):
        (tmp_path / name).mkdir()
        for code in ("de", "iw"):
            (tmp_path / name / f"{code}.txt").write_text("\n".join(said))
    (tmp_path / "en.txt").write_text("\n".join(REFERENCES))
    return tmp_path


def arguments(files, *more):
    given = [f"--hypotheses={files}/hyps", f"--references={files}/en.txt"]
    return ["evaluate", *given, f"--output={files}/report", *more]


def languages(files):
    document = json.loads((files / "report" / "scores.json").read_text())
    return {one["code"]: one for one in document["splits"]["test"]["languages"]}


def test_everything_at_once(files, capsys):
    (files / "sizes.csv").write_text("language,rows\nde,5000\nhe,70\n")
    (files / "comet.json").write_text(
        '{"name": "COMET", "signature": "da-22", "scores": {"de": 0.8}}'
    )
    (files / "hyps" / "experts.json").write_text(
        '{"layers": ["e1"], "num_experts": 2, "languages": {"de": [[0.25, 0.75]]}}'
    )
    more = [f"--train-sizes={files}/sizes.csv", "--band-bounds=100,1000", "--no-pictures"]
    more += [f"--baseline-hypotheses={files}/old", "--significance=bootstrap", "--samples=50"]
    more += [f"--merge-scores={files}/comet.json", "--metrics=bleu,chrf++,ter", "--min-phrases=1"]
    assert run(arguments(files, *more)) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "test (test)"
    assert out[1].startswith("  mean of 2 languages: chrF++ 95.5, exactly right 75.0%, BLEU ")
    assert out[1].endswith(", COMET 0.8000 (of 1)")
    assert out[2] == (
        "  chrF++ by band: high 95.5 (n = 1, 5,000 to 5,000 rows); low 95.5 (n = 1, 70 to 70 rows)"
    )
    assert out[3].startswith(
        "  chrF++ against old: +25.1, mean of 2 of 2 languages; 2 better and 0"
    )
    one = languages(files)["he"]
    assert (one["train_rows"], one["band"], one["merged"]) == (70, "low", {})
    assert one["delta"]["ter"] < 0 < one["delta"]["bleu"]
    assert one["paired"]["ter"]["p_holm"] < 0.05


def test_baseline_report_with_its_translations(files, capsys):
    old = ["evaluate", f"--hypotheses={files}/old", f"--references={files}/en.txt", "--system=bad"]
    quick = ["--no-identify", "--no-pictures"]
    assert run([*old, f"--output={files}/old-report", *quick]) == 0
    more = [f"--baseline={files}/old-report", "--significance=randomization", "--samples=50"]
    assert run(arguments(files, *more, "--languages=de", *quick)) == 0
    assert "  chrF++ against bad: +25.1, mean of 1 of 1 language" in capsys.readouterr().out
    assert languages(files)["de"]["paired"]["bleu"]["p"] < 0.05


def test_what_was_scored_is_kept_and_can_be_scored_again(files):
    assert run(arguments(files, "--no-identify", "--no-pictures")) == 0
    kept = files / "report" / "translations-test.jsonl.gz"
    again = ["evaluate", f"--hypotheses={kept}", f"--output={files}/again"]
    assert run([*again, "--no-identify", "--no-pictures"]) == 0
    tables = [
        list(csv.DictReader(io.StringIO((files / name / "scores.csv").read_text())))
        for name in ("report", "again")
    ]
    for rows in tables:
        for row in rows:
            del row["task"]
    assert tables[0] == tables[1]


def test_all_faults_of_all_files_come_at_once(files, capsys):
    (files / "old" / "xx.txt").write_text("a\n")
    (files / "bad.csv").write_text("language,rows\nde,many\n")
    (files / "comet.json").write_text("{")
    more = [f"--train-sizes={files}/bad.csv", f"--merge-scores={files}/comet.json"]
    more += [f"--baseline-hypotheses={files}/old", f"--baseline={files}/none", "--samples=0"]
    more += ["--metrics=blue", "--languages=de,qq", "--no-identify"]
    assert run(arguments(files, *more)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.removeprefix("gshard-m4 evaluate: ") for line in captured.err.splitlines()] == [
        "--samples=0: at least 1",
        "--baseline and --baseline-hypotheses: give one of them",
        "--metrics: there is no metric 'blue'; there are bleu, chrf++, spbleu, ter, exact; did you "
        "mean bleu?",
        "unknown language 'qq', not one of M4's 102",
        f"{files}/bad.csv line 2: rows of de must be a whole number of at least 0, not 'many'",
        f"{files}/comet.json is not JSON (Expecting property name enclosed in double quotes: line "
        "1 column 2 (char 1))",
        f"{files}/none does not exist; give a scores.json of gshard-m4 evaluate, or the folder "
        "that it is in",
        f"{files}/old/xx.txt: unknown language 'xx', not one of M4's 102; name files by language, "
        "such as de.txt",
    ]
    assert not (files / "report").exists()


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            ["--significance=bootstrap"],
            "--significance=bootstrap is against which system? Give --baseline or "
            "--baseline-hypotheses",
        ),
        (["--band-bounds=1,2"], "--band-bounds needs --train-sizes"),
        (["--no-sources", "--sources=x"], "--no-sources and --sources: give one of them"),
        (["--min-phrases=0"], "--min-phrases=0: at least 1"),
        (["--set=a/b"], "--set=a/b: letters, digits, '_', '-' and '.' only, for names of files"),
    ],
)
def test_flags_that_do_not_fit(files, capsys, more, fault):
    assert run(arguments(files, *more)) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"gshard-m4 evaluate: {fault}"


def test_a_system_is_called_like_its_run(write_split, tmp_path):
    folder = write_split("test", {"m4_de_en": [("a", "b", "c")]})
    for path in (folder, folder.parent, folder.parent.parent):
        more = ["--no-pictures", "--no-identify", f"--output={tmp_path}/report"]
        assert run(["evaluate", f"--hypotheses={path}", *more]) == 0
        document = json.loads((tmp_path / "report" / "scores.json").read_text())
        assert document["name"] == tmp_path.name


@pytest.mark.parametrize("flag", ["hypotheses", "translations"])
def test_a_run_has_everything_of_its_own(write_split, tmp_path, capsys, flag):
    folder = write_split("test", {"m4_de_en": [("a", "b", "c")]}).parent
    more = ["--references=x", "--sources=x", "--language=de", "--set=dev"]
    assert run(["evaluate", f"--{flag}={folder}", f"--output={tmp_path}/report", *more]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"gshard-m4 evaluate: --{name}: {folder} is a run's translations, which have references, "
        "sources, languages and names of their own"
        for name in ("references", "sources", "language", "set")
    ]


def test_a_table_has_nothing_to_test_against(files, capsys):
    (files / "base.csv").write_text("language,bleu\nde,3\n")
    assert run(arguments(files, f"--baseline={files}/base.csv", "--significance=bootstrap")) == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 evaluate: --baseline={files}/base.csv has no translations to test against; "
        "give them as --baseline-hypotheses\n"
    )


def faults_of(capsys, *arguments):
    assert run(["evaluate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return [line.removeprefix("gshard-m4 evaluate: ") for line in captured.err.splitlines()]


def test_where_a_report_cannot_go_is_said_before_scoring(files, capsys):
    given = [f"--hypotheses={files}/hyps", f"--references={files}/none"]
    missing = f"--references={files}/none does not exist"
    (files / "other").mkdir()
    (files / "other" / "report.html").write_text("mine")
    assert faults_of(capsys, *given, f"--output={files}/other") == [
        f"--output={files}/other has report.html of another program or run, which is not "
        "overwritten; give another folder, or remove that",
        missing,
    ]
    (files / "compared").mkdir()
    for name in ("test-bleu-raw.png", "test-mine.png", "translations-test.jsonl.gz"):
        (files / "compared" / name).write_text("mine")
    more = [f"--references={files}/en.txt", f"--output={files}/compared"]
    assert faults_of(capsys, given[0], *more) == [
        f"--output={files}/compared has test-bleu-raw.png, translations-test.jsonl.gz of another "
        "program or run, which is not overwritten; give another folder, or remove that"
    ]
    assert faults_of(capsys, *given, f"--output={files}/hyps/../hyps") == [
        f"--output={files}/hyps/../hyps is the folder of --hypotheses; give another",
        missing,
    ]
    assert faults_of(capsys, *given, f"--output={files}/en.txt/report") == [
        f"cannot write to --output={files}/en.txt/report: {files}/en.txt is a file",
        missing,
    ]


def test_a_wrong_language_is_one_fault(files, capsys):
    given = [f"--hypotheses={files}/hyps/de.txt", f"--references={files}/en.txt"]
    assert faults_of(capsys, *given, "--language=germn", f"--output={files}/report") == [
        "unknown language 'germn', not one of M4's 102; did you mean de (German)?"
    ]


def test_a_run_without_a_manifest_was_interrupted(write_split, capsys):
    folder = write_split("test", {"m4_x_de_en": [("a", "b", "c")]})
    (folder / "manifest.json").unlink()
    for path in (folder, folder.parent, folder.parent.parent):
        assert faults_of(capsys, f"--hypotheses={path}", f"--output={folder}/report") == [
            f"{folder}/manifest.json is missing; it is written last, so decoding was interrupted: "
            "decode this split again"
        ]


def test_band_bounds_are_two_numbers(files, capsys):
    with pytest.raises(SystemExit):
        run(arguments(files, "--band-bounds=9,3"))
    assert "'9,3' is not LOW,HIGH, such as 100000,1000000" in capsys.readouterr().err


def test_pictures_of_an_earlier_report_do_not_stay(files):
    (files / "sizes.csv").write_text("language,rows\nde,5000\nhe,70\n")
    assert run(arguments(files, f"--train-sizes={files}/sizes.csv", "--metrics=bleu")) == 0
    assert (files / "report" / "test-bleu-trend.png").exists()
    assert run(arguments(files, "--metrics=bleu", "--no-pictures")) == 0
    assert sorted(path.name for path in (files / "report").iterdir()) == [
        "report.html",
        "scores.csv",
        "scores.json",
        "translations-test.jsonl.gz",
    ]
