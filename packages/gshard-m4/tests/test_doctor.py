import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from gshard_m4.cli import run
from gshard_m4.doctor import CHECKS, examine, rows
from gshard_m4.prepared import write_prepared
from gshard_m4.vocabulary import train

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
ZAHLEN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"]
CYRILLIC = ["один", "два", "три", "четыре", "пять", "шесть", "семь", "восемь", "девять", "десять"]


def pairs(words, first, count):
    """Pairs of two numbers, each pair another one."""
    places = [(i % 10, i // 10) for i in range(first, first + count)]
    return [(f"{words[a]} und {words[b]}", f"{NUMBERS[a]} and {NUMBERS[b]}") for a, b in places]


def texts(words=ZAHLEN):
    return {
        "train": pairs(words, 0, 40),
        "validation": pairs(words, 40, 20),
        "test": pairs(words, 60, 40),
    }


def make(folder, languages):
    write_prepared(folder, languages, name="tiny")
    return folder


def change_manifest(folder, edit):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    edit(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def found(folder, **options):
    """(check, language, split, rows, exact) of each finding but those of a small directory."""
    small = {"little training text", "small held-out set", "no vocabulary"}
    findings = examine(folder, **options).findings
    return [(f.check, f.language, f.split, f.rows, f.exact) for f in findings
            if f.check not in small]  # fmt: skip


def test_a_clean_directory_has_notes_at_most(tmp_path, capsys):
    folder = make(tmp_path / "m4", {"de": texts()})
    assert found(folder) == []
    assert run(["doctor", str(folder)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{folder}: prepared, 1 language, 100 rows"
    assert out[2:5] == [
        "note  little training text: fewer than 1,000 training rows",
        "      40 rows in 1 language: de 40",
        "      to do: add text, or expect little",
    ]
    assert out[-1] == "0 faults, 3 notes"


@pytest.mark.parametrize(
    ("row", "check"),
    [
        (("", "nothing there"), "empty"),
        (("kaputt \ue000 hier", "broken here"), "control characters"),
        (("mit {{Vorlage}} drin", "with a template"), "markup"),
        (("12 34", "12 34 !"), "no letters"),
        (("lang " * 300, "long " * 300), "too long"),
        (("red and blue", "red and blue"), "copy"),
        (("красный и синий", "red and blue"), "wrong script"),
        (("kurz", "a very long sentence that says far more than that"), "length ratio"),
        (("rot &amp; blau", "red and blue"), "HTML"),
        (("rot\u200b und blau", "red and blue"), "invisible characters"),
        (("rot  und blau", "red and blue"), "Unicode form or spaces"),
    ],
)
def test_rows_that_cleaning_would_remove_or_mend(tmp_path, row, check):
    languages = {"de": texts()}
    languages["de"]["train"].append(row)
    languages["de"]["test"].append(row)
    folder = make(tmp_path / "m4", languages)
    both = found(folder)
    assert (check, "de", "train", 1, None) in both
    assert (check, "de", "test", 1, None) in both
    by_split = {f.split: f for f in examine(folder).findings if f.check == check}
    assert (by_split["train"].is_fault, by_split["test"].is_fault) == (True, False)
    assert by_split["train"].example.startswith("row 41: ")
    assert "--clean-held-out" in by_split["test"].advice


def test_duplicates_are_told_from_those_that_differ_in_case_spaces_or_punctuation(tmp_path):
    languages = {"de": texts()}
    languages["de"]["train"] += [
        *languages["de"]["train"][:3],
        ("EINS UND EINS!", "one  and one"),
        ("Eins und Eins", "One and one"),
    ]
    assert [one for one in found(make(tmp_path / "m4", languages)) if "dup" in one[0]] == [
        ("duplicate", "de", "train", 3, None),
        ("near duplicate", "de", "train", 2, None),
    ]


def test_duplicates_are_the_same_when_keys_are_taken_in_parts(tmp_path, monkeypatch):
    languages = {"de": texts()}
    languages["de"]["train"] += [*languages["de"]["train"][:3], ("EINS UND EINS!", "one and one")]
    folder = make(tmp_path / "m4", languages)
    whole = found(folder)
    monkeypatch.setattr(rows, "KEYS_AT_ONCE", 7)
    assert found(folder) == whole


def test_held_out_sentences_in_training_text(tmp_path):
    languages = {"de": texts(), "ru": {"train": pairs(CYRILLIC, 0, 40), "test": []}}
    source, english = languages["de"]["test"][0]
    languages["de"]["train"] += [
        (source, "another thing"),
        (source.upper(), "something else"),
        ("ganz anders", f"{english}."),
    ]
    languages["ru"]["train"].append(("другое совсем", languages["de"]["validation"][3][1].upper()))
    assert [one for one in found(make(tmp_path / "m4", languages)) if "held" in one[0]] == [
        ("held out source", "de", "train", 2, 1),
        ("held out English", "de", "train", 1, 0),
        ("held out English elsewhere", "ru", "train", 1, None),
    ]


def test_held_out_sentences_are_found_behind_entities(tmp_path):
    languages = {"de": texts()}
    languages["de"]["test"][0] = ("Ton &amp; Bild", "sound &amp; picture")
    languages["de"]["train"].append(("Ton & Bild", "something else"))
    folder = make(tmp_path / "m4", languages)
    assert ("held out source", "de", "train", 1, 0) in found(folder)


def test_english_elsewhere_that_was_kept_by_choice_is_no_finding(tmp_path):
    languages = {"de": texts(), "ru": {"train": pairs(CYRILLIC, 40, 40)}}
    folder = make(tmp_path / "m4", languages)
    assert "held out English elsewhere" in {one[0] for one in found(folder)}
    change_manifest(folder, lambda m: m["settings"].update(across_languages=False))
    assert "held out English elsewhere" not in {one[0] for one in found(folder)}


def test_a_sentence_of_both_held_out_sets(tmp_path):
    languages = {"de": texts()}
    languages["de"]["validation"][2] = languages["de"]["test"][0]
    folder = make(tmp_path / "one", languages)
    assert found(folder) == [("in validation and test", "de", "validation", 1, 1)]
    assert examine(folder).faults == ()  # 5 % of the set, and no more.
    languages["de"]["validation"][3] = languages["de"]["test"][1]
    assert len(examine(make(tmp_path / "two", languages)).faults) == 1


def test_missing_sets_are_named_by_language_and_once_where_nobody_has_them(tmp_path):
    languages = {"de": texts(), "ru": {"train": pairs(CYRILLIC, 0, 40)}}
    del languages["de"]["validation"]
    assert found(make(tmp_path / "m4", languages)) == [
        ("no validation set", "", "", 0, None),
        ("no test set", "ru", "", 0, None),
    ]


def test_text_in_another_script_than_the_languages(tmp_path):
    languages = {"de": {**texts(), "train": pairs(CYRILLIC, 0, 40)}}
    findings = examine(make(tmp_path / "m4", languages)).findings
    (script,) = [one for one in findings if one.check == "script share"]
    assert (script.language, script.split) == ("de", "train")
    assert script.detail == "27% of the letters are Latn"


def test_damaged_missing_and_unlisted_files_and_the_rest_is_looked_at(tmp_path):
    folder = make(tmp_path / "m4", {"de": texts(), "fr": texts(), "ru": texts(CYRILLIC)})
    train_file = folder / "de" / "train-00000-of-00001.tsv.gz"
    data = bytearray(train_file.read_bytes())
    data[40] ^= 1
    train_file.write_bytes(data)
    (folder / "fr" / "test-00000-of-00001.tsv.gz").unlink()
    (folder / "ru" / "extra.txt").write_text("")
    details = {
        (one.check, one.language, one.split): one.detail
        for one in examine(folder).findings
        if one.check in ("file", "unlisted")
    }
    sha = json.loads((folder / "manifest.json").read_text())["languages"]["de"]["splits"]["train"]
    assert details.pop(("file", "de", "train")).endswith(
        f", the manifest says {sha['shards'][0]['sha256']}"
    )
    assert details == {
        ("file", "fr", "test"): f"{folder}/fr/test-00000-of-00001.tsv.gz cannot be read"
        " (No such file or directory)",
        ("unlisted", "", ""): "ru/extra.txt",
    }
    (damaged,) = [one for one in examine(folder, hashes=False).findings
                  if (one.check, one.language) == ("file", "de")]  # fmt: skip
    assert damaged.detail.startswith(f"{train_file}: damaged (")


def test_a_manifest_that_contradicts_itself(tmp_path):
    folder = make(tmp_path / "m4", {"de": texts()})

    def edit(manifest):
        manifest["languages"]["de"] |= {"kept": 90, "script": "Cyrl"}
        manifest["languages"]["nb"] = manifest["languages"]["de"] | {"splits": {}, "kept": 0}

    change_manifest(folder, edit)
    details = [(f.language, f.detail) for f in examine(folder).findings if f.check == "manifest"]
    assert details == [
        ("de", "its splits have 100 rows, 'kept' says 90"),
        ("de", "100 rows were read, but 90 kept and 0 removed"),
        ("de", "its script is Cyrl; German is written in Latn"),
        ("nb", "100 rows were read, but 0 kept and 0 removed"),
        ("nb", "the code 'nb' is an alias of 'no'"),
        ("nb", "its script is Cyrl; Norwegian is written in Latn"),
    ]


def test_vocabularies_that_do_not_fit_or_cannot_be_read(tmp_path):
    folder = make(tmp_path / "m4", {"ru": texts(CYRILLIC)})
    (folder / "vocabulary").mkdir()
    source, target = (folder / "vocabulary" / f"{side}.model" for side in ("source", "target"))
    train([*NUMBERS, "and"] * 2, source, size=25, character_coverage=1.0)
    target.write_bytes(b"no model")
    broken = [one.detail for one in examine(folder).findings if one.check == "vocabulary"]
    assert len(broken) == 1
    assert broken[0].startswith(f"vocabulary: '{target}' is not a SentencePiece model")
    target.write_bytes(source.read_bytes())
    (unknown,) = [one for one in examine(folder).findings if one.check == "vocabulary"]
    assert unknown.language == "ru"
    assert "% of the tokens are unknown (" in unknown.detail


def test_processes_find_the_same(tmp_path):
    languages = {"de": texts(), "ru": texts(CYRILLIC)}
    languages["ru"]["train"] += languages["de"]["test"][:1]
    folder = make(tmp_path / "m4", languages)
    assert found(folder, processes=2) == found(folder) != []


def test_languages_choose_what_is_looked_at(tmp_path, capsys):
    languages = {"de": texts(), "ru": texts(CYRILLIC)}
    languages["ru"]["train"].append(("", "empty"))
    folder = make(tmp_path / "m4", languages)
    assert run(["doctor", str(folder)]) == 1
    assert run(["doctor", str(folder), "--languages=deu_Latn"]) == 0
    with pytest.raises(SystemExit, match="2"):
        run(["doctor", str(folder), "--languages="])
    assert capsys.readouterr().err.endswith(
        "argument --languages: no code is given; leave the flag out, or give de,fr\n"
    )
    assert run(["doctor", str(folder), "--languages=xx"]) == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 doctor: --languages: 'xx' is not in {folder}; did you mean de, ru?\n"
    )


def test_json_has_every_finding(tmp_path, capsys):
    languages = {"de": texts()}
    languages["de"]["train"].append(("", "empty"))
    folder = make(tmp_path / "m4", languages)
    assert run(["doctor", str(folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (empty,) = [one for one in report["findings"] if one["check"] == "empty"]
    assert empty == {
        "fault": True, "check": "empty", "language": "de", "split": "train", "rows": 1, "of": 41,
        "exact": None, "detail": "", "example": "row 41: '' = 'empty'",
        "title": CHECKS["empty"].title, "advice": CHECKS["empty"].advice,
    }  # fmt: skip


def test_many_languages_of_one_check_are_a_paragraph(tmp_path, capsys):
    codes = ["af", "az", "ca", "cs", "cy", "da", "de", "es", "et", "eu"]
    languages = {code: texts() for code in codes}
    for number, code in enumerate(codes):
        languages[code]["train"] += [("", "x")] * number
    folder = make(tmp_path / "m4", languages)
    run(["doctor", str(folder)])
    out = capsys.readouterr().out
    assert "45 rows in 9 languages: eu 9 (18.37%), et 8 (16.67%)," in out
    assert " and 1 more (--all)\n" in out
    run(["doctor", str(folder), "--all"])
    assert "(--all)" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make_it", "fault"),
    [
        (lambda path: None, "no such file or directory"),
        (
            lambda path: (make(path, {"de": texts()}) / "manifest.json").unlink(),
            "has shards and no manifest.json, so preparing it did not end; give the same gshard-m4"
            " prepare again, and it goes on",
        ),
        (
            lambda path: (make(path, {"de": texts()}) / "manifest.json").write_text("{"),
            "not JSON (",
        ),
    ],
)
def test_what_cannot_be_read_at_all(tmp_path, capsys, make_it, fault):
    make_it(tmp_path / "m4")
    assert run(["doctor", str(tmp_path / "m4")]) == 2
    assert fault in capsys.readouterr().err


def test_unfinished_runs_are_named(tmp_path, capsys):
    (tmp_path / "begun" / ".prepare" / "cleaned").mkdir(parents=True)
    assert run(["doctor", str(tmp_path / "begun")]) == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 doctor: {tmp_path}/begun: has an unfinished run (.prepare) and no"
        " manifest.json, so preparing it did not end; give the same gshard-m4 prepare again, and it"
        " goes on\n"
    )
    folder = make(tmp_path / "m4", {"de": texts()})
    (folder / ".prepare").mkdir()
    (folder / ".prepare" / "run.json").write_text("{}")
    assert found(folder) == [("unfinished run", "", "", 0, None)]
    assert examine(folder).faults == ()


def test_a_corpus_as_downloaded(tmp_path, capsys):
    (tmp_path / "de.tsv").write_text("rot\tred\n" * 9, encoding="utf-8")
    assert run(["doctor", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        f"{tmp_path}: as downloaded, 1 language, 9 rows",
        "",
        "note  layout: the layout of the files",
        "      tsv: columns source and English: xx.tsv, xx.train.tsv, NAME.xx-en.tsv, xx/*.tsv;"
        " 1 files",
    ]


def test_what_cleaning_would_remove_of_a_corpus_as_downloaded(tmp_path, monkeypatch, capsys):
    from gshard_m4.doctor import raw_rows

    (tmp_path / "de.tsv").write_text("".join(f"rot {n}\tred {n}\n" for n in range(30)))
    rows = ["rot\tred\n", "red\tred\n", "дом\tred\n", "red\tred\n"]
    (tmp_path / "fr.tsv").write_text("".join(rows) * 5, encoding="utf-8")
    (tmp_path / "ru.tsv").write_text("Haus\thouse\n" * 20)
    monkeypatch.setattr(raw_rows, "_SAMPLE", 20)
    examined = examine(tmp_path)
    (ru,) = examined.faults
    assert (ru.check, ru.language, ru.rows, ru.of) == ("would be removed", "ru", 20, 20)
    (fr,) = [one for one in examined.findings if one.language == "fr"]
    assert fr.detail == (
        f"about 75.0% of {tmp_path}/fr.tsv (copy 50.0%, wrong script 25.0%), by 20 rows"
    )
    assert run(["doctor", str(tmp_path), "--processes=2", "--quiet"]) == 1
    assert f"      fr: {fr.detail}\n" in capsys.readouterr().out


def test_empty_files_of_a_corpus_as_downloaded(tmp_path):
    (tmp_path / "de.tsv").write_text("rot\tred\n")
    (tmp_path / "fr.tsv").write_text("")
    (empty,) = examine(tmp_path).faults
    assert (empty.check, empty.language) == ("damaged input", "fr")
    assert empty.detail == f"{tmp_path}/fr.tsv is empty"


def test_all_that_is_wrong_with_a_corpus_as_downloaded(tmp_path, capsys):
    folder = tmp_path / "opus"
    for name, text in {
        "de-en/opus.de-en-train.de": "rot\nblau\n",
        "de-en/opus.de-en-train.en": "red\n",
        "en-fr/opus.en-fr-train.fr": "rouge\n",
        "en-fr/opus.en-fr-train.en": "red\n",
        "en-qq/opus.en-qq-train.qq": "rot\n",
        "en-qq/opus.en-qq-train.en": "red\n",
        "en-oc/opus.en-oc-train.oc": "roge\n",
        "en-oc/opus.en-oc-train.en": "red\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "en-fr" / "opus.en-fr-train.fr").write_bytes("rougé\n".encode("latin-1"))
    assert run(["doctor", str(folder), "--processes=1"]) == 1
    out = capsys.readouterr().out
    assert "note  layout: the layout of the files\n      opus-100: " in out
    assert "unknown language 'qq'" in out
    assert "line 1: byte 0xe9 is not UTF-8" in out
    assert "opus.de-en-train.en has 1; line 2 has no partner" in out
    assert "Occitan (oc) is not one of M4's languages" in out
    assert out.splitlines()[-1] == "2 faults, 2 notes"


def test_a_folder_of_no_layout_and_an_unknown_one(tmp_path, capsys):
    (tmp_path / "x.pdf").write_text("")
    assert run(["doctor", str(tmp_path)]) == 2
    assert "fits no layout" in capsys.readouterr().err
    assert run(["doctor", str(tmp_path), "--source=opus"]) == 2
    assert "--source=opus is not known; there are opus-100, nllb, " in capsys.readouterr().err


def test_compressed_files_are_read(tmp_path):
    with gzip.open(tmp_path / "de.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("rot\tred\n")
    examined = examine(tmp_path)
    assert (examined.kind, examined.languages, examined.rows) == ("as downloaded", 1, 1)


def test_repeated_keys_are_all_but_the_first():
    keys = np.array([5, 3, 5, 5, 3, 9], np.uint64)
    assert sorted(rows._repeated(keys).tolist()) == [2, 3, 4]
    assert rows._repeated(np.array([], np.uint64)).tolist() == []


def test_help_imports_the_standard_library_only():
    code = (
        "import sys, gshard_m4.cli\n"
        "try: gshard_m4.cli.run(['doctor', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'sentencepiece', 'numpy', 'tqdm', 'grain', 'sacrebleu'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert "exit codes: 0 no fault" in done.stdout
