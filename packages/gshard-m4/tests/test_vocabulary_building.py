"""Vocabularies of prepared directories that are made here, and the command that makes them."""

import json
import subprocess
import sys

import pytest

from gshard_m4.cli import run
from gshard_m4.prepared import write_prepared
from gshard_m4.vocabulary import UNK, Vocabulary

WORDS = {
    "de": ["Haus", "Hund", "Katze", "Baum", "rot", "grün", "Wasser", "Licht"],
    "ja": ["家", "犬", "猫", "木", "赤い", "緑の", "水", "光"],
}
ENGLISH = ["house", "dog", "cat", "tree", "red", "green", "water", "light"]
SIZES = ["--source-size=50", "--target-size=27", "--sentences=300"]


def rows(code, count, start=0):
    numbers = [((i * 7) % 8, (i // 8 + i) % 8) for i in range(start, start + count)]
    space = "" if code == "ja" else " "
    return [(space.join(WORDS[code][n] for n in pair), " ".join(ENGLISH[n] for n in pair))
            for pair in numbers]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    texts = {
        "de": {"train": rows("de", 400), "test": [*rows("de", 30), ("Haßt ☰", "street")]},
        "ja": {"train": rows("ja", 64), "validation": [], "test": []},
    }
    write_prepared(tmp_path / "m4", texts, name="tiny")
    return tmp_path / "m4"


def vocabulary(folder, *more):
    return run(["vocabulary", str(folder), *SIZES, *more])


def test_models_and_coverage_are_written_and_shown(folder, capsys):
    assert vocabulary(folder) == 0
    out = capsys.readouterr()
    assert out.err.splitlines() == [
        "learning 50 pieces from 300 sentences",
        "learning 27 pieces from 64 English sentences",
    ]
    assert "\nja    Japanese    Jpan      64    0.00%" in out.out
    assert "de (German): " in out.out
    assert out.out.endswith(f"vocabularies: {folder}/vocabulary\n")
    source = Vocabulary(folder / "vocabulary" / "source.model")
    target = Vocabulary(folder / "vocabulary" / "target.model")
    assert (source.size, target.size) == (50, 27)
    assert not source.has_piece("<2de>")
    report = json.loads((folder / "vocabulary" / "coverage.json").read_text(encoding="utf-8"))
    assert report["settings"]["sentences"] == 300
    assert report["sentences"] == {"de": 236, "ja": 64}
    assert report["english_sentences"] == 64
    assert report["languages"]["de"]["lost"] == {"☰": 1, "ß": 1}
    assert report["languages"]["de"]["rows"] == 200
    assert sorted(report["scripts"]) == ["Jpan", "Latn"]


def test_a_language_keeps_its_characters_however_little_text_it_has(tmp_path):
    texts = {"de": {"train": rows("de", 3000)}, "ja": {"train": rows("ja", 8)}}
    write_prepared(tmp_path, texts, name="tiny")
    assert vocabulary(tmp_path, "--sentences=3008", "--temperature=1", "--source-size=45") == 0
    source = Vocabulary(tmp_path / "vocabulary" / "source.model")
    for text, _ in rows("ja", 8):
        assert UNK not in source.encode_batch([text])[0]


def test_the_same_directory_gives_the_same_files_and_only_force_replaces_them(folder, capsys):
    assert vocabulary(folder) == 0
    made = {path.name: path.read_bytes() for path in (folder / "vocabulary").iterdir()}
    capsys.readouterr()
    assert vocabulary(folder, "--tags") == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 vocabulary: {folder}/vocabulary: has source.model, target.model, coverage.json"
        " already; --force replaces them\n"
    )
    assert vocabulary(folder, "--force") == 0
    assert made == {path.name: path.read_bytes() for path in (folder / "vocabulary").iterdir()}


def test_tags_output_languages_and_bytes(folder, tmp_path):
    more = ["--tags", "--byte-fallback", "--languages=deu", f"--output={tmp_path}/new/here"]
    assert vocabulary(folder, *more, "--source-size=285", "--target-size=283") == 0
    source = Vocabulary(tmp_path / "new" / "here" / "source.model")
    assert [source.has_piece(tag) for tag in ("<2de>", "<2ja>")] == [True, False]
    assert source.decode(source.encode_batch(["☰ Haus"])[0]) == "☰ Haus"
    assert not (folder / "vocabulary").exists()


def test_both_sizes_that_the_text_does_not_give_are_named_and_nothing_is_written(folder, capsys):
    assert vocabulary(folder, "--source-size=5000", "--target-size=5000") == 2
    lines = capsys.readouterr().err.splitlines()[2:]
    assert lines == [
        "gshard-m4 vocabulary: --source-size: cannot learn 5000 pieces from 300 texts:"
        " the largest size that this text gives is 53",
        "gshard-m4 vocabulary: --target-size: cannot learn 5000 pieces from 64 texts:"
        " the largest size that this text gives is 27",
    ]
    assert not (folder / "vocabulary").exists()


def test_all_faults_of_the_arguments_at_once(folder, capsys):
    more = ["--source-size=0", "--temperature=-1", "--character-coverage=1.5", "--languages=jp,de"]
    assert vocabulary(folder, *more) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gshard-m4 vocabulary: --source-size=0 must be positive",
        "gshard-m4 vocabulary: --temperature=-1.0 must be positive",
        "gshard-m4 vocabulary: --character-coverage=1.5 must be above 0 and at most 1",
        f"gshard-m4 vocabulary: --languages: 'jp' is not in {folder}; did you mean ja?",
    ]


def test_a_directory_without_training_text_is_refused(tmp_path, capsys):
    write_prepared(tmp_path, {"de": {"test": rows("de", 5)}}, name="tiny")
    assert vocabulary(tmp_path) == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 vocabulary: {tmp_path}: has no training rows to learn from\n"
    )


def test_a_damaged_file_is_named_and_no_size_blamed(folder, capsys):
    path = folder / "ja" / "train-00000-of-00001.tsv.gz"
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    assert vocabulary(folder) == 2
    _, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"gshard-m4 vocabulary: {path}: damaged (")
    assert not (folder / "vocabulary").exists()


def test_output_that_cannot_be_written(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert vocabulary(folder, f"--output={tmp_path}/file/x") == 2
    assert f"{tmp_path}/file/x: cannot be written (" in capsys.readouterr().err


def test_help_imports_the_standard_library_only():
    code = (
        "import sys, gshard_m4.cli\n"
        "try: gshard_m4.cli.run(['vocabulary', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'sentencepiece', 'numpy', 'tqdm', 'grain', 'sacrebleu'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert "(default: 64000)" in done.stdout
