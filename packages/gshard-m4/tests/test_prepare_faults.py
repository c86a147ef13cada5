"""What `gshard-m4 prepare` refuses: one line a fault, exit code 2, nothing written."""

import fcntl

import pytest

from gshard_m4 import languages
from gshard_m4.cli import run

PROSE = "this is the house that was built by them and it has not been there for all of the time"
OTHER = "das ist ein Haus, welches jemand gebaut hat und nun steht es nicht mehr lange hier herum"


@pytest.fixture
def prepare(tmp_path, capsys):
    """A function that writes files, prepares them, and gives the faults."""

    def prepare(files, *more, output="out"):
        for name, content in files.items():
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(data)
        there = sorted(tmp_path.rglob("*"))
        flags = [f"--input={tmp_path}/in", f"--output={tmp_path}/{output}", "--processes=1"]
        assert run(["prepare", *flags, "--quiet", *more]) == 2
        assert sorted(tmp_path.rglob("*")) == there
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = captured.err.splitlines()
        assert all(line.startswith("gshard-m4 prepare: ") for line in lines)
        faults = [line.removeprefix("gshard-m4 prepare: ") for line in lines]
        return [fault.replace(f"{tmp_path}/", "") for fault in faults]

    return prepare


def test_all_faults_of_the_files_come_at_once(prepare):
    faults = prepare(
        {
            "a.de": "eins\nzwei\n\ndrei\nvier\n",
            "a.en": "one\ntwo\nthree\nfour\n",
            "b.fr": b"un\nd\xe9j\xe0\n",
            "b.en": "one\nalready\n",
            "c.ru": f"{PROSE}\n" * 9,
            "c.en": "это дом, который построил кто-то другой\n" * 9,
        }
    )
    assert faults == [
        "in/b.fr line 2: byte 0xe9 is not UTF-8; convert the file first"
        " (iconv -f ENCODING -t UTF-8)",
        "de: in/a.de has 5 lines, in/a.en has 4; line 5 has no partner; the first line that is"
        " empty on one side only is 3. Download both again, or mend the sides",
        "ru: the English side of in/c.ru and in/c.en is written in Cyrl; if the sides are swapped,"
        " give --swapped=ru",
    ]


def test_swapped_sides_in_the_same_script_are_found_by_frequent_words(prepare, tmp_path):
    files = {"de.tsv": f"{PROSE}\t{OTHER}\n" * 5}
    assert prepare(files) == [
        "de: 80% of the words of the de side of in/de.tsv are frequent English ones, 0% of those"
        " of the English side; if the sides are swapped, give --swapped=de"
    ]
    flags = [f"--input={tmp_path}/in", f"--output={tmp_path}/out", "--processes=1", "--swapped=de"]
    assert run(["prepare", *flags]) == 0


def test_empty_files(prepare):
    assert prepare({"de.train.tsv": "Haus\thouse\n", "de.test.tsv": ""}) == [
        "in/de.test.tsv is empty; download it again, or take it out"
    ]


def test_unknown_codes_are_named_with_near_ones(prepare):
    faults = prepare({"germn.tsv": "a\tb\n", "xqq.tsv": "a\tb\n", "de.tsv": "a\tb\n"})
    assert faults == [
        f"in: germn.tsv: {unknown('germn')}",
        f"in: xqq.tsv: {unknown('xqq')}",
        "--skip-unknown leaves files of unknown languages out, --languages selects",
    ]
    assert "did you mean de (German)" in faults[0]


def unknown(code):
    with pytest.raises(ValueError, match=code) as error:
        languages.find(code, variants=True, others=True)
    return str(error.value)


def test_languages_that_are_not_there(prepare):
    assert prepare({"de.tsv": "a\tb\n"}, "--languages=fr,de") == [
        "--languages: fr not found in the input, which has de"
    ]
    (fault,) = prepare({"de.tsv": "a\tb\n"}, "--languages=germn")
    assert fault.startswith("--languages: unknown language 'germn', not one of M4's 102")


def test_input_without_a_layout(prepare):
    faults = prepare({"notes.doc": "text"})
    assert faults[0] == "in fits no layout; it has notes.doc. Known layouts:"
    assert len(faults) == 14
    assert prepare({"de.tsv": "a\tb\n"}, "--source=ntrex-128") == [
        "in has no files of --source=ntrex-128 (NTREX-128: newstest2019-src.eng.txt,"
        " newstest2019-ref.xxx.txt); it has de.tsv, notes.doc"
    ]
    assert prepare({}, "--source=opus100")[0] == "unknown --source=opus100; known:"


def test_monolingual_input(prepare):
    (fault,) = prepare({"de/de_noisy_0000.jsonl": "{}\n"})
    assert fault.startswith("in: MADLAD-400 is monolingual")


def test_flags_that_do_not_go_together(prepare, capsys):
    assert run(["prepare", "--source=tsv", "--source=moses", "--name=A b"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "gshard-m4 prepare: --input is missing: the folder to read (--source=debian downloads its"
        " own)",
        "gshard-m4 prepare: 2 --source for 0 --input; give one each, or none",
        "gshard-m4 prepare: --name=A b must be of a-z, 0-9 and _",
        "gshard-m4 prepare: --output is missing: the folder to write",
    ]


def test_output_that_is_something_else(prepare, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    (tmp_path / "file").write_text("")
    files = {"de.tsv": "a\tb\n"}
    assert prepare(files, output="file") == ["--output=file is a file; give a folder"]
    assert prepare(files, output="in/out") == [
        "--output=in/out is inside --input=in; give a folder apart"
    ]
    for more in ((), ("--restart",)):
        assert prepare(files, *more, output="mine") == [
            "--output=mine holds thesis.tex and is no prepared directory; give a new folder"
        ]
    (tmp_path / "busy" / ".prepare").mkdir(parents=True)
    with (tmp_path / "busy" / ".prepare" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prepare(files, output="busy") == [
            "another process prepares --output=busy at this moment"
        ]


def test_keep_out_and_runner_say_what_they_need(prepare, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "apache_beam", None)
    files = {"de.tsv": "Haus\thouse\n"}
    assert prepare(files, "--keep-out=none") == [
        "--keep-out: none: no such directory; give the --output of gshard-m4 prepare"
    ]
    assert prepare(files, "--runner=DirectRunner") == [
        "--runner=DirectRunner needs Apache Beam: pip install 'gshard-m4[beam]'"
    ]


def test_list_prints_the_layouts(capsys):
    assert run(["prepare", "--source=list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["opus-100", "nllb", "flores-200", "flores-plus", "ntrex-128", "ted",
                     "tatoeba-challenge", "wmt", "moses", "tsv", "jsonl", "parquet",
                     "debian"]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--input={0}/m4"], "is --input too"),
        (["--input={0}/m4/../m4/de"], "has --input={0}/m4/../m4/de inside"),
        (["--input={0}"], "is inside --input={0}"),
        (["--input={0}/in", "--keep-out={0}/m4"], "is --keep-out too"),
    ],
)
def test_an_output_that_is_read_as_well_stays(flags, fault, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "de.tsv").write_text("Haus\thouse\n")
    quiet = ["--processes=1", "--quiet"]
    assert run(["prepare", f"--input={tmp_path}/in", f"--output={tmp_path}/m4", *quiet]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    given = [flag.format(tmp_path) for flag in flags]
    capsys.readouterr()
    assert run(["prepare", *given, f"--output={tmp_path}/m4", "--restart", *quiet]) == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 prepare: --output={tmp_path}/m4 {fault.format(tmp_path)}; give a folder apart\n"
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
