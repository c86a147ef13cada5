import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from gshard_m4.cli import run

REFERENCES = [f"the cat number {number} sat on the mat all day" for number in range(12)]
GOOD = [text.replace("all", "the") if i % 4 == 0 else text for i, text in enumerate(REFERENCES)]
BAD = [text.replace("sat", "was").replace("day", "night") for text in REFERENCES]


def evaluated(folder, name, said, *more, references=REFERENCES):
    """The report of what is said in each language, in a folder of its name."""
    hyps = folder / f"{name}-hyps"
    hyps.mkdir()
    for code, texts in said.items():
        (hyps / f"{code}.txt").write_text("\n".join(texts))
    (folder / "en.txt").write_text("\n".join(references))
    arguments = [f"--hypotheses={hyps}", f"--references={folder}/en.txt", f"--system={name}"]
    arguments += [f"--output={folder / name}", "--as-is", "--no-identify", "--no-pictures"]
    assert run(["evaluate", *arguments, *more]) == 0
    return folder / name


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    old = evaluated(folder, "old", {"de": BAD, "fr": GOOD, "it": BAD})
    new = evaluated(folder, "new", {"de": GOOD, "fr": GOOD, "es": BAD})
    return str(old), str(new)


@pytest.fixture
def report(tmp_path, capsys):
    def report(*arguments, **options):
        folder = evaluated(tmp_path, *arguments, **options)
        capsys.readouterr()
        return folder

    return report


def german(report):
    languages = read(report)["splits"]["test"]["languages"]
    return next(one for one in languages if one["code"] == "de")


def read(report):
    return json.loads((Path(report) / "scores.json").read_text())


def faults_of(capsys, *arguments):
    assert run(["compare", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return [line.removeprefix("gshard-m4 compare: ") for line in captured.err.splitlines()]


def test_systems_side_by_side(pair, capsys, tmp_path):
    output = tmp_path / "both"
    options = [f"--output={output}", "--no-pictures", "--samples=50"]
    assert run(["compare", *pair, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "test (test), 2 languages that all systems have"
    assert [line.split()[0] for line in lines[1:6]] == ["BLEU", "German", "French", "mean", "*"]
    assert lines[1].split() == ["BLEU", "old", "new", "Δ"]
    assert lines[2].endswith("*")
    assert lines[3].endswith("+0.0")
    assert "left out, as not all systems have them: Italian, Spanish" in lines
    assert lines[-1] == f"page: {output}/compare.html"
    names = sorted(path.name for path in output.iterdir())
    assert names == ["compare.csv", "compare.html", "compare.json"]


def test_numbers_beside_the_page(pair, tmp_path):
    output = tmp_path / "both"
    run(["compare", *pair, f"--output={output}", "--no-pictures", "--samples=50"])
    document = json.loads((output / "compare.json").read_text())
    scores = [german(path)["bleu"] for path in pair]
    assert document["systems"] == ["old", "new"]
    assert document["written"] == ["compare.csv", "compare.html"]
    found = document["sets"]["test"]["de"]["bleu"]
    assert (found["scores"], found["delta"]) == (scores, [scores[1] - scores[0]])
    assert found["p_holm"][0] < 0.05
    rows = list(csv.DictReader(io.StringIO((output / "compare.csv").read_text())))
    assert [(row["language"], row["metric"]) for row in rows] == [
        (code, metric) for code in ("de", "fr") for metric in ("bleu", "chrfpp")
    ]
    assert (float(rows[0]["old"]), float(rows[0]["delta new"])) == (
        scores[0],
        scores[1] - scores[0],
    )
    assert rows[0]["signature"] == document["signatures"]["bleu"]


def test_three_systems_with_names(pair, report, capsys):
    third = report("third", {"de": BAD, "fr": BAD})
    a, b = pair
    arguments = [f"dense={a}/scores.json", f"moe={b}", str(third)]
    assert run(["compare", *arguments, "--significance=none"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["BLEU", "dense", "moe", "Δ", "third", "Δ"]


def test_nothing_kept_is_said_and_not_tested(pair, report, capsys):
    third = report("third", {"de": BAD, "fr": BAD}, "--no-keep-translations")
    assert run(["compare", pair[0], str(third)]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"no tests: no translations are kept in {third}\n"
    assert "*" not in captured.out


def test_what_cannot_be_compared_is_named_with_both_sides(pair, report, capsys):
    other = report("other", {"de": GOOD}, "--tokenize=intl", references=[*REFERENCES[1:], "end"])
    ours, theirs = read(pair[0]), read(other)
    hashes = [german(path)["references_sha256"] for path in (pair[0], other)]
    assert faults_of(capsys, pair[0], other) == [
        f"{other}: BLEU of the baseline old is not computed like here: "
        f"{ours['signatures']['bleu']} there, {theirs['signatures']['bleu']} here",
        f"{other}: test: the baseline old was scored on other references in 1 of 1 languages, "
        f"such as de: SHA-256 {hashes[0][:12]} there, {hashes[1][:12]} here",
    ]


def test_other_faults(pair, capsys, tmp_path):
    old, new = pair
    assert faults_of(capsys, old) == ["give at least two systems"]
    assert faults_of(capsys, old, tmp_path / "none") == [
        f"{tmp_path}/none does not exist; give a scores.json of gshard-m4 evaluate, or the folder "
        "that it is in"
    ]
    shutil.copytree(old, tmp_path / "copy")
    assert faults_of(capsys, old, tmp_path / "copy") == [
        f"more than one system is called old: {old}, {tmp_path}/copy; give NAME=PATH"
    ]
    (tmp_path / "file").write_text("")
    assert faults_of(capsys, old, new, f"--output={tmp_path}/file") == [
        f"--output={tmp_path}/file is a file; give a folder"
    ]


def test_no_metric_in_common(pair, report, capsys):
    ter = report("ter", {"de": GOOD, "fr": GOOD}, "--metrics=ter")
    assert faults_of(capsys, pair[0], ter) == [
        f"the systems have no metric in common: {pair[0]}: bleu, chrfpp; {ter}: ter"
    ]


def test_no_language_in_common(pair, report, capsys):
    other = report("other", {"yo": BAD, "zu": BAD})
    assert faults_of(capsys, pair[0], other) == [
        "the systems have no language of a set in common: "
        f"{pair[0]}: test of 3 languages from fr; {other}: test of 2 languages from yo"
    ]


def test_scores_of_another_sacrebleu_are_not_tested_with_this_one(pair, capsys, tmp_path):
    signature = read(pair[0])["signatures"]["chrfpp"]
    copies = []
    for path in map(Path, pair):
        copies.append(tmp_path / path.name)
        shutil.copytree(path, copies[-1])
        text = (copies[-1] / "scores.json").read_text()
        old = text.replace(signature, signature.rpartition(":")[0] + ":2.0.0")
        (copies[-1] / "scores.json").write_text(old)
    (fault,) = faults_of(capsys, *copies)
    assert fault == (
        f"new: its chrfpp was computed with {signature.rpartition(':')[0]}:2.0.0, a test here "
        f"would be with {signature}; install that version, or say --significance=none"
    )
    assert run(["compare", *map(str, copies), "--significance=none"]) == 0


def test_tests_of_another_baseline_are_not_shown(pair, report, capsys, tmp_path):
    old, _ = pair
    tested = report("tested", {"de": GOOD, "fr": GOOD}, f"--baseline={old}",
                    "--significance=bootstrap", "--samples=50")  # fmt: skip
    equal = report("equal", {"de": GOOD, "fr": GOOD})
    output = tmp_path / "both"
    arguments = ["compare", str(equal), str(tested), "--no-pictures", f"--output={output}"]
    assert run([*arguments, "--significance=none"]) == 0
    assert "*" not in capsys.readouterr().out
    document = json.loads((output / "compare.json").read_text())
    assert document["sets"]["test"]["de"]["bleu"]["p_holm"] == [None]


def test_correction_is_for_the_languages_that_all_systems_have(pair, report, tmp_path):
    third = report("third", {"de": BAD})
    raw, output = tmp_path / "raw", tmp_path / "both"
    options = ["--no-pictures", "--samples=50"]
    assert run(["compare", *pair, str(third), f"--output={output}", *options]) == 0
    only = report("only", {"de": GOOD})
    assert run(["compare", pair[0], str(only), f"--output={raw}", *options]) == 0
    p = [
        json.loads((folder / "compare.json").read_text())["sets"]["test"]["de"]["bleu"]["p_holm"][0]
        for folder in (output, raw)
    ]
    assert p[0] == p[1]


def test_a_path_may_have_the_sign_behind_a_name(pair, capsys, tmp_path):
    shutil.copytree(pair[1], tmp_path / "a=b")
    assert run(["compare", pair[0], f"x={tmp_path}/a=b", "--significance=none"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["BLEU", "old", "x", "Δ"]


def test_means_leave_out_languages_with_few_phrases(pair, capsys, tmp_path):
    copies = [Path(shutil.copytree(path, tmp_path / Path(path).name)) for path in pair]
    for copy in copies:
        document = read(copy)
        for one in document["splits"]["test"]["languages"]:
            one["few_phrases"] = one["code"] == "de"
        (copy / "scores.json").write_text(json.dumps(document))
    arguments = [*map(str, copies), "--significance=none", "--no-pictures"]
    assert run(["compare", *arguments, f"--output={tmp_path}/both"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[0] == "German"
    assert lines[3].split()[2:] == lines[4].split()[1:]
    assert "not in the means, as they have few phrases: German" in lines
    page = (tmp_path / "both" / "compare.html").read_text()
    assert "Mean of 1 language</th>" in page
    assert "Fewer than 40 phrases, and so in the table only" in page


def test_sets_that_not_all_have_are_named(pair, capsys, tmp_path):
    copy = shutil.copytree(pair[0], tmp_path / "old")
    other = shutil.copytree(pair[1], tmp_path / "new")
    for folder, languages in ((copy, slice(1)), (other, slice(2, 3))):
        document = read(folder)
        sets = document["splits"]
        one = sets["test"] | {"name": "one", "languages": sets["test"]["languages"][languages]}
        sets |= {"one": one, folder.name: sets["test"] | {"name": folder.name}}
        (folder / "scores.json").write_text(json.dumps(document))
    arguments = ["compare", str(copy), str(other), "--significance=none", "--no-pictures"]
    assert run([*arguments, f"--output={tmp_path}/both"]) == 0
    said = (
        "ets left out, as not all systems have them: one (of other languages in each), "
        "old (only old), new (only new)"
    )
    assert f"s{said}" in capsys.readouterr().out.splitlines()
    assert f"S{said}." in (tmp_path / "both" / "compare.html").read_text()
