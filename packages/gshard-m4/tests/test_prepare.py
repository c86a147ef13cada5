"""`gshard-m4 prepare` from files as downloaded to a directory that opens."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gshard_m4 import splits
from gshard_m4.cli import run
from gshard_m4.prepared import open_prepared

COUNTS = {"de": 400, "fr": 300, "ru": 200}
LETTERS = {"de": "äöüßqxyz", "fr": "éèàçqxyz", "ru": "абвгдежз"}
SPLITS = ("train", "validation", "test")


def word(number, letters):
    text = letters[number % 8]
    while number := number // 8:
        text += letters[number % 8]
    return text * 2


def sentence(number, letters):
    """A sentence of its own for every number, in made-up words."""
    return " ".join(word(number * step + step, letters) for step in (1, 3, 7, 11, 5, 13))


def pairs(code, count):
    """Made-up translations; sentence i of every language has the same English."""
    return [(sentence(i, LETTERS[code]), sentence(i, "abcdefgh")) for i in range(count)]


@pytest.fixture
def corpus(tmp_path):
    """A folder of Moses pairs in three languages, and its lines to change."""
    files = {code: pairs(code, count) for code, count in COUNTS.items()}

    def write():
        for code, rows in files.items():
            for side, name in ((0, code), (1, "en")):
                path = tmp_path / "corpus" / f"news.{code}-en.{name}"
                path.parent.mkdir(exist_ok=True)
                path.write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
        return tmp_path / "corpus"

    return files, write


def prepare(source, output, *more):
    return run(
        ["prepare", f"--input={source}", f"--output={output}", "--processes=1", "--quiet", *more]
    )


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def texts(prepared, code, split):
    return list(prepared.pairs(code, split))


def test_prepare_writes_a_directory_that_opens(corpus, tmp_path, capsys):
    files, write = corpus
    files["de"] += [
        files["de"][0],
        (files["de"][1][0].upper(), files["de"][1][1]),
        ("", "empty is the other side"),
        ("zu kurz", "far too long for what the source says, is it not"),
        ("<b>öä xz</b> &amp; qq", "bold, amp and qq"),
    ]
    assert prepare(write(), tmp_path / "out") == 0
    prepared = open_prepared(tmp_path / "out", verify=True)
    manifest = prepared.manifest
    de = manifest.languages["de"]
    assert (de.read, de.kept) == (405, 401 - de.removed.get("held out English elsewhere", 0))
    assert {reason: de.removed[reason] for reason in de.removed if "held" not in reason} == {
        "duplicate": 1,
        "empty": 1,
        "length ratio": 1,
        "near duplicate": 1,
    }
    assert ("öä xz & qq", "bold, amp and qq") in texts(prepared, "de", "train")
    assert prepared.counts("test") == {"de": 16, "fr": 12, "ru": 8}
    assert prepared.counts("validation") == {"de": 8, "fr": 6, "ru": 4}
    for entry in manifest.languages.values():
        assert entry.read == entry.kept + sum(entry.removed.values())
    assert manifest.name == "out"
    assert [source.kind for source in manifest.sources] == ["moses"]
    report = json.loads((tmp_path / "out" / "prepare_report.json").read_text())
    assert report["languages"]["de"]["repaired"] == {"HTML": 1, "Unicode form or spaces": 1}
    assert report["languages"]["de"]["drawn"] == {"test": 16, "validation": 8}
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["language", "read", "kept", "empty", "ratio", "dup", "near", "dup",
                              "held", "else", "train", "validation", "test"]  # fmt: skip
    assert out[-2].split()[:3] == ["3", "languages", "905"]
    assert out[-1] == f"{tmp_path}/out is prepared"


def test_no_held_out_sentence_is_in_training_text(corpus, tmp_path):
    _, write = corpus
    assert prepare(write(), tmp_path / "out") == 0
    prepared = open_prepared(tmp_path / "out")
    english = {code: {} for code in COUNTS}
    for code in COUNTS:
        rows = {split: texts(prepared, code, split) for split in SPLITS}
        sources = {split: {splits.key(a) for a, _ in rows[split]} for split in SPLITS}
        english[code] = {split: {splits.key(b) for _, b in rows[split]} for split in SPLITS}
        for held in (sources, english[code]):
            assert not held["train"] & (held["validation"] | held["test"])
            assert not held["validation"] & held["test"]
    held = set().union(*(e["validation"] | e["test"] for e in english.values()))
    assert not any(e["train"] & held for e in english.values())
    assert english["ru"]["test"] <= english["de"]["test"]


def test_english_of_other_languages_may_stay(corpus, tmp_path):
    _, write = corpus
    assert prepare(write(), tmp_path / "out", "--english-elsewhere=keep") == 0
    removed = [e.removed for e in open_prepared(tmp_path / "out").manifest.languages.values()]
    assert removed == [{}, {}, {}]


def test_bytes_depend_on_neither_processes_nor_order_of_lines(corpus, tmp_path):
    files, write = corpus
    assert prepare(write(), tmp_path / "one", "--name=x") == 0
    assert prepare(write(), tmp_path / "two", "--name=x", "--processes=2") == 0
    for rows in files.values():
        rows.reverse()
    assert prepare(write(), tmp_path / "reversed", "--name=x") == 0
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    backwards = contents(tmp_path / "reversed")
    names = [f"{code}/{split}-00000-of-00001.tsv.gz" for code in COUNTS for split in SPLITS]
    assert sorted(one) == sorted([*names, "manifest.json", "prepare_report.json"])
    shards = [name for name in one if name.endswith(".gz")]
    assert {n: one[n] for n in shards} == {n: two[n] for n in shards}
    assert {n: one[n] for n in shards} == {n: backwards[n] for n in shards}


def test_large_text_is_in_several_shards_with_the_same_rows(corpus, tmp_path, monkeypatch):
    from gshard_m4.preparing import settings

    _, write = corpus
    assert prepare(write(), tmp_path / "one") == 0
    original = settings.Settings.shards
    monkeypatch.setattr(settings.Settings, "shards", lambda self, rows: 4 if rows else 0)
    assert prepare(write(), tmp_path / "four") == 0
    assert original(settings.Settings(), 250_001) == 2
    one, four = open_prepared(tmp_path / "one"), open_prepared(tmp_path / "four")
    assert len(four.manifest.languages["de"].splits["train"].shards) == 4
    for code in COUNTS:
        assert texts(one, code, "train") == texts(four, code, "train")


def test_sets_of_the_source_stay_whole_and_in_order(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    test = [("Ja.", "Yes\u00a0!"), ("Ja.", "Yes\u00a0!"), ("<b>x</b>", "?"), ("", "gone")]
    train = [("JA", "yes, of course"), ("Nein", "yes"), ("gut so", "well done")]
    (corpus / "de.test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in test))
    (corpus / "de.train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in train))
    assert prepare(corpus, tmp_path / "out") == 0
    prepared = open_prepared(tmp_path / "out")
    assert texts(prepared, "de", "test") == test[:3]
    assert texts(prepared, "de", "train") == [("gut so", "well done")]
    assert prepared.manifest.languages["de"].removed == {
        "empty": 1,
        "held out English": 1,
        "held out source": 1,
    }
    assert prepare(corpus, tmp_path / "clean", "--clean-held-out") == 0
    assert texts(open_prepared(tmp_path / "clean"), "de", "test") == [("Ja.", "Yes !")] * 2


def test_what_held_out_sets_are_made_of_is_told(tmp_path, capsys):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = ["rot\tred\tone", "blau\tblue\tone", "Rot!\tred\ttwo", "gelb\tred\ttwo"]
    (corpus / "de.test.tsv").write_text("".join(f"{row}\n" for row in rows))
    (corpus / "de.train.tsv").write_text("grün\tgreen\n")
    assert prepare(corpus, tmp_path / "out") == 0
    assert open_prepared(tmp_path / "out").counts("test") == {"de": 4}
    lines = capsys.readouterr().out.splitlines()
    assert "de test: one 2, two 2; 1 row repeated, kept as published" in lines
    report = json.loads((tmp_path / "out" / "prepare_report.json").read_text())
    assert report["languages"]["de"]["held"] == {
        "test": {"origins": {"one": 2, "two": 2}, "repeated": 1, "repeated_english": 2}
    }


def test_held_out_sentences_with_entities_are_found_in_training_text(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "de.test.tsv").write_text("R&amp;B ist hier\tR&amp;B is here\n<i>Ja</i>\tyes\n")
    (corpus / "de.train.tsv").write_text(
        "R&amp;B ist hier\tsomething else\nwas ist das\tR&B is here\nJa\twell, yes\nrot\tred\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "de.tsv").write_text("R&amp;B ist hier\tother\nblau\tblue\n")
    none = ("--test-size=0", "--validation-size=0")
    assert prepare(corpus, tmp_path / "out") == 0
    assert prepare(tmp_path / "more", tmp_path / "two", f"--keep-out={tmp_path}/out", *none) == 0
    prepared = open_prepared(tmp_path / "out")
    assert texts(prepared, "de", "test")[0] == ("R&amp;B ist hier", "R&amp;B is here")
    assert texts(prepared, "de", "train") == [("rot", "red")]
    assert texts(open_prepared(tmp_path / "two"), "de", "train") == [("blau", "blue")]


def test_half_characters_of_json_are_counted_as_removed(tmp_path):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = [("rot", "red", "a"), ("bl\ud83d", "blue", "a"), ("gelb", "yellow", "\ude00")]
    for split in ("train", "test"):
        text = "".join(json.dumps(dict(zip(("source", "target", "origin"), row, strict=True)))
                       + "\n" for row in rows)  # fmt: skip
        (corpus / f"de.{split}.jsonl").write_text(text.replace("red", f"red {split}"))
        rows[0] = ("grün", "green", "b")
    assert prepare(corpus, tmp_path / "out") == 0
    entry = open_prepared(tmp_path / "out", verify=True).manifest.languages["de"]
    assert (entry.read, entry.kept, entry.removed) == (6, 2, {"control characters": 4})


def test_sets_of_another_directory_are_kept_out(corpus, tmp_path):
    files, write = corpus
    (tmp_path / "other").mkdir()
    rows = [files["de"][5], (sentence(999, "xyzäöüßq"), files["de"][6][1].upper())]
    text = "".join(f"{a}\t{b}\n" for a, b in rows)
    (tmp_path / "other" / "de.test.tsv").write_text(text)
    assert prepare(tmp_path / "other", tmp_path / "held") == 0
    none = ("--test-size=0", "--validation-size=0")
    assert prepare(write(), tmp_path / "out", f"--keep-out={tmp_path}/held", *none) == 0
    removed = {
        code: dict(entry.removed)
        for code, entry in open_prepared(tmp_path / "out").manifest.languages.items()
    }
    assert removed == {
        "de": {"held out English": 1, "held out source": 1},
        "fr": {"held out English elsewhere": 2},
        "ru": {"held out English elsewhere": 2},
    }


@pytest.mark.parametrize("across", ["remove", "keep"])
def test_sets_of_another_directory_are_not_drawn(across, corpus, tmp_path):
    _, write = corpus
    assert prepare(write(), tmp_path / "one", "--languages=de,fr") == 0
    one = open_prepared(tmp_path / "one")
    more = (f"--keep-out={tmp_path}/one", f"--english-elsewhere={across}")
    assert prepare(write(), tmp_path / "two", *more) == 0
    two = open_prepared(tmp_path / "two")
    held = {code: {pair[1] for split in SPLITS[1:] for pair in one.pairs(code, split)}
            for code in ("de", "fr")}  # fmt: skip
    held["ru"] = held["de"] | held["fr"] if across == "remove" else set()
    for code in COUNTS:
        drawn = {pair[1] for split in SPLITS[1:] for pair in two.pairs(code, split)}
        assert drawn
        assert not drawn & held[code]


def test_several_sources_go_into_one_directory(corpus, tmp_path):
    _, write = corpus
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "ger.tsv").write_text("eins zwei\tone two\n")
    code = run(
        ["prepare", f"--input={write()}", f"--input={tmp_path}/more", "--licence=MIT",
         "--licence=CC0", f"--output={tmp_path}/out", "--processes=1", "--languages=de"]
    )  # fmt: skip
    assert code == 0
    prepared = open_prepared(tmp_path / "out")
    sources = [(source.kind, source.licence) for source in prepared.manifest.sources]
    assert sources == [("moses", "MIT"), ("tsv", "CC0")]
    assert ("eins zwei", "one two") in texts(prepared, "de", "train")


def test_languages_that_lose_nearly_all_rows_are_named(corpus, tmp_path, capsys):
    files, write = corpus
    files["fr"][15:] = [(f"{english} {number}",) * 2 for number, (_, english)
                        in enumerate(files["fr"][15:])]  # fmt: skip
    none = ("--test-size=0", "--validation-size=0")
    assert prepare(write(), tmp_path / "out", *none) == 0
    assert "WARNING fr: 15 of 300 rows are kept (copy 285)" in capsys.readouterr().out.splitlines()


def test_dry_run_prints_the_plan_and_writes_nothing(corpus, tmp_path, capsys):
    _, write = corpus
    assert prepare(write(), tmp_path / "out", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "language     files  rows  splits",
        "de               2   400   train",
        "fr               2   300   train",
        "ru               2   200   train",
        "3 languages          900",
    ]
    assert not (tmp_path / "out").exists()


def test_a_finished_directory_is_not_made_again(corpus, tmp_path, capsys):
    files, write = corpus
    output = tmp_path / "out"
    assert prepare(write(), output) == 0
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert prepare(write(), output) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{output} is there already, of the same input and settings"
    )
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert prepare(write(), output, "--max-characters=600", "--test-size=4") == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 prepare: --output={output} was made with other settings: max_characters 1000,"
        " now 600; test_size 500, now 4. Give another --output, the same settings, or --restart to"
        " make it anew\n"
    )
    files["fr"].append(("rien ne va", "nothing works"))
    assert prepare(write(), output) == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 prepare: --output={output} is prepared from other input than now (files,"
        " layouts or licences have changed); give another --output, or --restart to make it anew\n"
    )
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    assert prepare(write(), output, "--restart", "--languages=fr") == 0
    assert open_prepared(output, verify=True).manifest.languages.keys() == {"fr"}
    assert list(output.glob("*/*.gz")) == list(output.glob("fr/*.gz"))


@pytest.mark.parametrize("stage", ["clean_language", "finish_language"])
def test_an_ended_run_goes_on_with_what_is_finished(stage, corpus, tmp_path, monkeypatch):
    from gshard_m4.preparing import pipeline

    _, write = corpus
    assert prepare(write(), tmp_path / "whole", "--name=x") == 0
    work, real = [], getattr(pipeline, stage)

    def ends_at_the_second(task):
        work.append(task)
        if len(work) == 2:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(pipeline, stage, ends_at_the_second)
    output = tmp_path / "out"
    assert prepare(write(), output, "--name=x") == 130
    assert not (output / "manifest.json").exists()
    assert prepare(write(), output, "--name=x") == 0
    assert len(work) == 4
    assert _shards(output) == _shards(tmp_path / "whole")
    assert not (output / ".prepare").exists()


def test_changed_input_of_an_ended_run_is_read_again(corpus, tmp_path, monkeypatch):
    from gshard_m4.preparing import pipeline

    files, write = corpus
    real = pipeline.finish_language
    monkeypatch.setattr(pipeline, "finish_language", lambda task: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(write(), tmp_path / "out")
    monkeypatch.setattr(pipeline, "finish_language", real)
    files["de"].append(("ein neuer", "a new one"))
    assert prepare(write(), tmp_path / "out") == 0
    assert ("ein neuer", "a new one") in texts(open_prepared(tmp_path / "out"), "de", "train")


def test_killed_at_any_time_leaves_nothing_that_is_taken_for_whole(corpus, tmp_path):
    files, write = corpus
    files |= {code: pairs(code, 1500) for code in COUNTS}
    source, output = write(), tmp_path / "out"
    assert prepare(source, tmp_path / "whole", "--name=x") == 0
    command = [sys.executable, "-m", "gshard_m4", "prepare", f"--input={source}", "--name=x",
               f"--output={output}", "--processes=2", "--quiet"]  # fmt: skip
    for seconds in (0.6, 1.1):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        if (output / "manifest.json").exists():
            open_prepared(output, verify=True)
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=True).returncode == 0
    assert _shards(output) == _shards(tmp_path / "whole")
    left = [name for name in os.listdir(output / "de") if "partial" in name]
    assert left == []


def _shards(folder):
    return {name: data for name, data in contents(folder).items() if name.endswith(".gz")}


def test_shards_are_what_zcat_reads(corpus, tmp_path):
    _, write = corpus
    assert prepare(write(), tmp_path / "out") == 0
    lines = gzip.decompress(
        (tmp_path / "out" / "de" / "train-00000-of-00001.tsv.gz").read_bytes()
    ).decode()
    rows = [tuple(line.split("\t")) for line in lines.removesuffix("\n").split("\n")]
    train = texts(open_prepared(tmp_path / "out"), "de", "train")
    assert rows == [(a, b, "news") for a, b in train]


def test_debian_is_fetched_and_each_package_is_a_source(tmp_path, monkeypatch, capsys):
    from gshard_m4 import debian

    asked = []
    package = {"kind": "debian/gettext", "path": "gnome 1.0", "licence": "GPL-2",
               "licence_source": "its copyright file", "hash": "ab"}  # fmt: skip

    def fetch(work, **options):
        asked.append((work, options))
        folder = work / "pairs"
        folder.mkdir(parents=True)
        (folder / "de.tsv").write_text("Datei öffnen\tOpen file\tgettext\n")
        (folder / "debian.json").write_text(json.dumps({"sources": [{**package, "rows": 1}]}))
        return folder

    monkeypatch.setattr(debian, "fetch", fetch)
    output = tmp_path / "out"
    flags = ["--source=debian", f"--output={output}", "--processes=1", "--quiet"]
    assert run(["prepare", *flags, "--languages=de"]) == 0
    options = {"languages": ("de",), "any_language": False, "processes": 1, "progress": False}
    assert asked == [(tmp_path / "out.debian", options)]
    prepared = open_prepared(output)
    assert [vars(source) for source in prepared.manifest.sources] == [package]
    rows = list(prepared.pairs("de", "train").with_origin())
    assert rows == [("Datei öffnen", "Open file", "gettext")]
    assert run(["prepare", *flags, "--dry-run"]) == 2
    assert capsys.readouterr().err == (
        "gshard-m4 prepare: --dry-run cannot tell of debian before it is downloaded\n"
    )


def test_preparing_imports_nothing_heavy(tmp_path):
    (tmp_path / "de.tsv").write_text("eins\tone\n")
    code = (
        "import sys; from gshard_m4.cli import run\n"
        f"assert run(['prepare', '--input={tmp_path}/de.tsv', '--output={tmp_path}/out']) == 0\n"
        "heavy = {'grain', 'jax', 'pyarrow', 'sacrebleu', 'sentencepiece', 'seqio', 'tensorflow',"
        " 'apache_beam', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
