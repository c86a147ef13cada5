"""The same rows on Apache Beam's local runner, byte for byte; needs `gshard-m4[beam]`."""

import pytest

from gshard_m4.cli import run
from gshard_m4.prepared import open_prepared

pytest.importorskip("apache_beam")
pytestmark = pytest.mark.filterwarnings("default")  # Beam's own imports warn


def sentence(number, words):
    return " ".join(words[number * step % len(words)] + str(number) for step in (1, 3, 7, 11, 5))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two languages without held-out sets, and one with a test set, all with some to remove."""
    folder = tmp_path_factory.mktemp("beam") / "corpus"
    folder.mkdir()
    english = ["the", "of", "and", "is", "are", "house", "tree", "dog", "cat", "bird"]
    words = {
        "de": ["Haus", "Baum", "Hund", "Katze", "Vogel", "und", "ist"],
        "ja": ["犬", "猫", "家", "木", "鳥"],
        "ru": ["дом", "кот", "пёс", "сад", "лес"],
    }
    for code, own in words.items():
        rows = [(sentence(i, own), sentence(i, english)) for i in range(300)]
        rows += [rows[3], (rows[4][0].upper() + "!", rows[4][1]), ("", "empty"), ("x", "x")]
        rows += [(f"{rows[5][0]} {own[0]}", rows[5][1]), ("<b>a</b> b", "a < b")]
        text = "".join(f"{a}\t{b}\n" for a, b in rows)
        (folder / f"{code}.train.tsv").write_text(text, encoding="utf-8")
    held = "".join(f"{sentence(i, words['ja'])}\t{sentence(i, english)}\n" for i in range(280, 310))
    (folder / "ja.test.tsv").write_text(held, encoding="utf-8")
    return folder


def prepare(corpus, output, *more):
    flags = [f"--input={corpus}", f"--output={output}", "--name=x", "--processes=1", "--quiet"]
    return run(["prepare", *flags, *more])


def without_command(folder):
    """Every file; the manifest and the report without the command line."""
    return {
        path.relative_to(folder).as_posix(): [
            line for line in path.read_bytes().split(b"\n") if not line.startswith(b' "command"')
        ]
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("shards", [1, 4])
def test_beam_gives_the_same_bytes(shards, corpus, tmp_path, monkeypatch):
    from gshard_m4.preparing import settings

    monkeypatch.setattr(settings.Settings, "shards", lambda self, rows: shards)
    assert prepare(corpus, tmp_path / "here") == 0
    assert prepare(corpus, tmp_path / "beam", "--runner=DirectRunner") == 0
    assert without_command(tmp_path / "here") == without_command(tmp_path / "beam")
    languages = open_prepared(tmp_path / "beam", verify=True).manifest.languages
    assert all(len(entry.splits["train"].shards) == shards for entry in languages.values())
    assert sum(entry.removed["duplicate"] for entry in languages.values()) == 3
    assert sum(sum(entry.removed.values()) for entry in languages.values()) > 30


def test_beam_keeps_the_same_sentences_out(corpus, tmp_path):
    assert prepare(corpus, tmp_path / "held", "--languages=de") == 0
    keep_out = f"--keep-out={tmp_path}/held"
    assert prepare(corpus, tmp_path / "here", keep_out) == 0
    assert prepare(corpus, tmp_path / "beam", keep_out, "--runner=DirectRunner") == 0
    assert without_command(tmp_path / "here") == without_command(tmp_path / "beam")
    held, beam = open_prepared(tmp_path / "held"), open_prepared(tmp_path / "beam")
    kept_out = {pair for split in ("validation", "test") for pair in held.pairs("de", split)}
    drawn = {pair for split in ("validation", "test") for pair in beam.pairs("de", split)}
    assert len(kept_out) == len(drawn) == 18
    assert not kept_out & drawn


def test_unknown_runner(corpus, tmp_path, capsys):
    assert prepare(corpus, tmp_path / "out", "--runner=NoSuchRunner") == 2
    assert capsys.readouterr().err.startswith("gshard-m4 prepare: --runner=NoSuchRunner: ")


def test_faults_of_lines_reach_the_user(corpus, tmp_path, capsys):
    folder = tmp_path / "bad"
    folder.mkdir()
    good = "".join(f"Haus {i}\thouse {i}\n" for i in range(500))
    (folder / "de.tsv").write_text(f"{good}no tab\n")
    assert prepare(folder, tmp_path / "out", "--runner=DirectRunner") == 2
    assert capsys.readouterr().err == (
        f"gshard-m4 prepare: {folder}/de.tsv line 501: 1 column between tabs, at least 2 are"
        " needed\n"
    )
    assert not (tmp_path / "out" / "manifest.json").exists()
