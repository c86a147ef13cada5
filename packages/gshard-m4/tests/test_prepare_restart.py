"""`gshard-m4 prepare --restart`: what is there stays until all of the new one is."""

import pytest

from gshard_m4.cli import run
from gshard_m4.prepared import open_prepared


@pytest.fixture
def prepare(tmp_path):
    """A function that prepares a folder of files into one output; the exit code."""

    def prepare(name, texts, *more):
        for file, text in texts.items():
            path = tmp_path / name / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        flags = [f"--input={tmp_path / name}", f"--output={tmp_path}/m4", "--processes=1"]
        return run(["prepare", *flags, "--quiet", *more])

    return prepare


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}  # fmt: skip


def test_the_old_one_stays_where_the_new_one_fails(prepare, tmp_path):
    output = tmp_path / "m4"
    assert prepare("old", {"de.tsv": "Haus\thouse\n", "fr.tsv": "maison\thouse\n"}) == 0
    before = files(output)
    broken = "".join(f"Baum {i}\ttree {i}\n" for i in range(500)) + "no tab\n"
    assert prepare("new", {"de.tsv": broken}, "--restart") == 2
    now = files(output)
    assert {name: now[name] for name in before} == before
    assert all(name.startswith(".prepare/") for name in now.keys() - before.keys())
    open_prepared(output, verify=True)
    assert prepare("new", {"de.tsv": "Baum\ttree\n"}, "--restart") == 0
    assert open_prepared(output, verify=True).counts("train") == {"de": 1}
    assert sorted(path.name for path in output.iterdir()) == [
        "de",
        "manifest.json",
        "prepare_report.json",
    ]


def test_files_that_no_manifest_names_stay(prepare, tmp_path):
    mine = tmp_path / "m4" / "mine" / "train-00000-of-00001.tsv.gz"
    assert prepare("old", {"de.tsv": "Haus\thouse\n"}) == 0
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    assert prepare("old", {"de.tsv": "Haus\thouse\n"}) == 0
    assert prepare("new", {"fr.tsv": "maison\thouse\n"}, "--restart") == 0
    assert mine.read_bytes() == b"mine"
    assert not (tmp_path / "m4" / "de").exists()


@pytest.mark.parametrize("moves", [1, 2, 3])
def test_a_restart_that_is_ended_while_it_takes_its_place(moves, prepare, tmp_path, monkeypatch):
    from gshard_m4.preparing import state

    output, done = tmp_path / "m4", []
    assert prepare("old", {"de.tsv": "Haus\thouse\n"}) == 0
    real = state._move

    def ends(path, place):
        done.append(path)
        if len(done) == moves:
            raise KeyboardInterrupt
        real(path, place)

    monkeypatch.setattr(state, "_move", ends)
    new = {"de.tsv": "Baum\ttree\n"}
    assert prepare("new", new, "--restart") == 130
    monkeypatch.setattr(state, "_move", real)
    assert not (output / "manifest.json").exists()
    assert prepare("new", new) == 0
    assert list(open_prepared(output, verify=True).pairs("de", "train")) == [("Baum", "tree")]
    assert not (output / ".prepare").exists()


def test_an_ended_restart_goes_on_with_what_is_finished(prepare, tmp_path, monkeypatch):
    from gshard_m4.preparing import pipeline

    assert prepare("old", {"de.tsv": "Haus\thouse\n"}) == 0
    new = {"de.tsv": "Baum\ttree\n", "fr.tsv": "arbre\ttree\n"}
    work, real = [], pipeline.clean_language

    def ends_at_the_second(task):
        work.append(task.code)
        if len(work) == 2:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(pipeline, "clean_language", ends_at_the_second)
    assert prepare("new", new, "--restart") == 130
    assert open_prepared(tmp_path / "m4", verify=True).counts("train") == {"de": 1}
    assert prepare("new", new, "--restart") == 0
    assert len(work) == 3
    assert open_prepared(tmp_path / "m4", verify=True).counts("train") == {"de": 1, "fr": 1}


def test_languages_of_an_ended_run_leave_no_folders(prepare, tmp_path, monkeypatch):
    from gshard_m4.preparing import command

    texts = {"de.tsv": "Haus\thouse\n", "fr.tsv": "maison\thouse\n"}
    monkeypatch.setattr(command.Work, "publish", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare("in", texts)
    monkeypatch.undo()
    assert prepare("in", texts, "--languages=de") == 0
    assert sorted(path.name for path in (tmp_path / "m4").iterdir()) == [
        "de",
        "manifest.json",
        "prepare_report.json",
    ]


def test_a_language_of_which_no_row_is_kept_is_a_fault(prepare, tmp_path, capsys):
    assert prepare("old", {"de.tsv": "Haus\thouse\n"}) == 0
    capsys.readouterr()
    new = {"de.tsv": "Baum\ttree\n", "ru.tsv": "Baum\ttree\nx\tx\nBaum\twell\n"}
    assert prepare("new", new, "--restart") == 2
    assert capsys.readouterr().err == (
        "gshard-m4 prepare: ru: none of its 3 rows is kept (wrong script 2, copy 1). Mend the input"
        " or the settings, or leave the language out with --languages\n"
    )
    assert open_prepared(tmp_path / "m4", verify=True).counts("train") == {"de": 1}


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("--max-ratio=nan", "--max-ratio: nan is no number from 1 on"),
        ("--max-ratio=inf", "--max-ratio: inf is no number from 1 on"),
        ("--max-ratio=0.5", "--max-ratio: 0.5 is no number from 1 on"),
        ("--languages=", "--languages: no code is given; leave the flag out, or give de,fr"),
    ],
)
def test_flags_that_cannot_be_used(flag, fault, prepare, capsys):
    with pytest.raises(SystemExit, match="2"):
        prepare("in", {"de.tsv": "Haus\thouse\n"}, flag)
    assert capsys.readouterr().err.splitlines()[-1] == f"gshard-m4 prepare: error: argument {fault}"
