"""Small made-up copies of every layout, read as they are downloaded."""

import bz2
import gzip
import json
import lzma
import zipfile

import pytest

from gshard_m4 import sources
from gshard_m4.input_error import InputError

DE = ["Der Hund schläft.", "Die Katze trinkt Milch."]
EN = ["The dog is sleeping.", "The cat drinks milk."]
AM = ["ውሻው ተኝቷል።", "ድመቷ ወተት ትጠጣለች።"]


def write(root, files):
    """Writes files given as lines; compressed as their names say."""
    openers = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    for name, lines in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)
        with openers.get(path.suffix, open)(path, "wb") as file:
            file.write(text.encode())


def read(root, kind, **options):
    """(code, split) -> rows, and what was left out; no faults."""
    scan = sources.scan(root, sources.BY_KIND[kind], sources.resolver(**options))
    assert scan.faults == []
    found = {}
    for part in scan.parts:
        found.setdefault((part.language, part.split), []).extend(sources.rows(part))
    return found, scan.left_out


def rows(origin, source=DE, english=EN):
    return [(a, b, origin) for a, b in zip(source, english, strict=True)]


def tsv(*columns):
    return ["\t".join(cells) for cells in zip(*columns, strict=True)]


LAYOUTS = {
    "opus-100": (
        {
            "opus-100/supervised/am-en/opus.am-en-train.am": AM,
            "opus-100/supervised/am-en/opus.am-en-train.en": EN,
            "opus-100/supervised/am-en/opus.am-en-dev.am.gz": AM[:1],
            "opus-100/supervised/am-en/opus.am-en-dev.en.gz": EN[:1],
            "opus-100/supervised/de-en/opus.de-en-test.de": DE,
            "opus-100/supervised/de-en/opus.de-en-test.en": EN,
            "opus-100/zero-shot/ar-de/opus.ar-de-test.ar": AM,
            "opus-100/zero-shot/ar-de/opus.ar-de-test.de": DE,
        },
        {
            ("am", "train"): rows("opus-100", AM),
            ("am", "validation"): rows("opus-100", AM[:1], EN[:1]),
            ("de", "test"): rows("opus-100"),
        },
    ),
    "nllb": (
        {
            "amh_Ethi-eng_Latn.gz": tsv(AM, EN, ["1.1", "1.2"], ["1", "1"]),
            "eng_Latn-deu_Latn.tsv.gz": tsv(EN, DE, ["1.1", "1.2"], ["1", "1"]),
            "ace_Latn-ban_Latn.gz": tsv(DE, DE, ["1", "1"]),
        },
        {("am", "train"): rows("nllb", AM), ("de", "train"): rows("nllb")},
    ),
    "flores-200": (
        {
            "flores200_dataset/dev/deu_Latn.dev": DE,
            "flores200_dataset/dev/eng_Latn.dev": EN,
            "flores200_dataset/devtest/amh_Ethi.devtest": AM,
            "flores200_dataset/devtest/eng_Latn.devtest": EN,
            "flores200_dataset/metadata_dev.tsv": ["a\tb"],
        },
        {("de", "validation"): rows("flores-200"), ("am", "test"): rows("flores-200", AM)},
    ),
    "flores-plus": (
        {
            "dev/dev.deu_Latn": DE,
            "dev/dev.eng_Latn": EN,
            "devtest/amh_Ethi.jsonl": [json.dumps({"id": 1, "text": t}) for t in AM],
            "devtest/eng_Latn.jsonl": [json.dumps({"id": 1, "text": t}) for t in EN],
        },
        {("de", "validation"): rows("flores-plus"), ("am", "test"): rows("flores-plus", AM)},
    ),
    "ntrex-128": (
        {
            "NTREX-128/newstest2019-src.eng.txt": EN,
            "NTREX-128/newstest2019-ref.eng-US.txt": EN,
            "NTREX-128/newstest2019-ref.deu.txt": DE,
            "NTREX-128/newstest2019-ref-2.deu.txt": EN,
            "NTREX-128/newstest2019-ref.srp-Latn.txt": DE,
            "LICENSE.md": ["..."],
        },
        {("de", "test"): rows("ntrex-128")},
    ),
    "ted": (
        {
            "all_talks_train.tsv": ["talk\ten\tde\tam", *tsv("xy", EN, DE, ["__NULL__", AM[1]])],
            "all_talks_dev.tsv": ["talk\ten\tde\tam", f"x\t{EN[0]}\t{DE[0]}\t_ _ NULL _ _"],
        },
        {
            ("de", "train"): rows("ted"),
            ("am", "train"): rows("ted", AM[1:], EN[1:]),
            ("am", "validation"): [],
            ("de", "validation"): rows("ted", DE[:1], EN[:1]),
        },
    ),
    "tatoeba-challenge": (
        {
            "deu-eng/train.src.gz": DE,
            "deu-eng/train.trg.gz": EN,
            "eng-amh/test.src": EN,
            "eng-amh/test.trg": AM,
            "deu-eng/train.id.gz": ["a", "b"],
        },
        {
            ("de", "train"): rows("tatoeba-challenge"),
            ("am", "test"): rows("tatoeba-challenge", AM),
        },
    ),
    "wmt": (
        {
            "commoncrawl.de-en.de": DE,
            "commoncrawl.de-en.en": EN,
            "news-commentary-v18.de-en.tsv.gz": tsv(DE, EN),
            "dev/newstest2013-deen-src.de.sgm": [f"<seg id='1'>{t}</seg>" for t in DE],
            "dev/newstest2013-deen-ref.en.sgm": [f"<seg id='1'>{t}</seg>" for t in EN],
            "dev/newstest2014-deen-src.de.sgm": ["<doc>", '<seg id="1">A &amp; B</seg>'],
            "dev/newstest2014-deen-ref.en.sgm": ['<seg id="1">A and B</seg>', "</doc>"],
        },
        {
            ("de", "train"): [*rows("commoncrawl"), *rows("news-commentary-v18")],
            ("de", "validation"): rows("newstest2013"),
            ("de", "test"): [("A & B", "A and B", "newstest2014")],
        },
    ),
    "moses": (
        {
            "Books.de-en.de": DE,
            "Books.de-en.en": EN,
            "Tiny.en-am.am.bz2": AM,
            "Tiny.en-am.en.xz": EN,
            "dev.de": DE[:1],
            "dev.en": EN[:1],
            "newstest2014.de": DE,
            "newstest2014.en": EN,
            "README.md": ["about"],
        },
        {
            ("de", "train"): rows("Books"),
            ("am", "train"): rows("Tiny", AM),
            ("de", "validation"): rows("dev", DE[:1], EN[:1]),
            ("de", "test"): rows("newstest2014"),
        },
    ),
    "tsv": (
        {
            "de.train.tsv": tsv(DE, EN, ["a", "b"]),
            "am/test.tsv.gz": tsv(AM, EN),
            "news.en-ha.tsv": tsv(EN, DE, ["1.25", "1.5"]),
            "zh-CN.tsv": ["target\tsource\torigin", "The dog\t狗\tx"],
            "CC/fr_FR-en_XX.valid.tsv": tsv(DE, EN),
        },
        {
            ("de", "train"): [(DE[0], EN[0], "a"), (DE[1], EN[1], "b")],
            ("am", "test"): rows("tsv", AM),
            ("ha", "train"): rows("tsv"),
            ("zh", "train"): [("狗", "The dog", "x")],
            ("fr", "validation"): rows("tsv"),
        },
    ),
    "jsonl": (
        {
            "de-en.jsonl": [
                json.dumps({"translation": {"de": a, "en": b}}) for a, b in zip(DE, EN, strict=True)
            ],
            "test.am.jsonl.gz": [
                json.dumps({"source": a, "target": b, "origin": "o"})
                for a, b in zip(AM, EN, strict=True)
            ],
        },
        {("de", "train"): rows("jsonl"), ("am", "test"): rows("o", AM)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LAYOUTS)
def test_layout_is_detected_and_read(kind, tmp_path):
    files, expected = LAYOUTS[kind]
    write(tmp_path, files)
    assert sources.detect(tmp_path) == kind
    assert read(tmp_path, kind)[0] == expected


def test_parquet_of_the_hub(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pairs = [{"am": a, "en": b} for a, b in zip(AM, EN, strict=True)]
    (tmp_path / "am-en").mkdir()
    path = tmp_path / "am-en" / "train-00000-of-00001.parquet"
    parquet.write_table(pyarrow.table({"translation": pairs}), path)
    found, _ = read(tmp_path, "opus-100")
    assert found == {("am", "train"): rows("opus-100", AM)}
    assert sources.detect(tmp_path) == "parquet"
    for code, text in (("amh_Ethi", AM), ("eng_Latn", EN)):
        (tmp_path / "plus" / "dev").mkdir(parents=True, exist_ok=True)
        table = pyarrow.table({"text": text, "id": [1, 2]})
        parquet.write_table(table, tmp_path / "plus" / "dev" / f"{code}.parquet")
    found, _ = read(tmp_path / "plus", "flores-plus")
    assert found == {("am", "validation"): rows("flores-plus", AM)}


def test_members_of_zip_archives_are_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w") as archive:
        archive.writestr("CCMatrix.de-en.de", "".join(f"{t}\n" for t in DE))
        archive.writestr("CCMatrix.de-en.en.gz", gzip.compress(f"{EN[0]}\n{EN[1]}".encode()))
    assert sources.detect(tmp_path) == "moses"
    assert read(tmp_path, "moses")[0] == {("de", "train"): rows("CCMatrix")}


def test_only_line_feeds_end_lines(tmp_path):
    write(tmp_path, {"a.de": "eins\u2028zwei\x85drei\r\nvier", "a.en": "one two three\nfour\n"})
    assert read(tmp_path, "moses")[0] == {
        ("de", "train"): [
            ("eins\u2028zwei\x85drei", "one two three", "a"),
            ("vier", "four", "a"),
        ]
    }


def test_what_is_left_out_is_named(tmp_path):
    files, _ = LAYOUTS["ntrex-128"]
    write(tmp_path / "ntrex", files)
    _, left_out = read(tmp_path / "ntrex", "ntrex-128")
    name = "NTREX-128/newstest2019-"
    assert left_out == [
        f"{name}ref.eng-US.txt: the English side is {name}src.eng.txt",
        f"{name}ref-2.deu.txt: a further text of de ({name}ref.deu.txt)",
        f"{name}ref.srp-Latn.txt: Serbian (script Latn) (sr_Latn) is not one of M4's languages",
        "files that are no text of ntrex-128: LICENSE.md",
    ]
    write(tmp_path / "opus", LAYOUTS["opus-100"][0])
    assert read(tmp_path / "opus", "opus-100")[1] == [
        f"opus-100/zero-shot/ar-de/opus.ar-de-test.{code}: of a pair without English"
        for code in ("ar", "de")
    ]
    write(tmp_path / "moses", {"a.de": DE, "a.en": EN, "b.de": DE, "notes.germn": DE})
    assert read(tmp_path / "moses", "moses")[1] == [
        "files that are no text of moses: b.de, notes.germn"
    ]


def test_any_language_takes_other_scripts_and_languages(tmp_path):
    files, _ = LAYOUTS["ntrex-128"]
    write(tmp_path, {**files, "NTREX-128/newstest2019-ref.kin.txt": DE})
    found, _ = read(tmp_path, "ntrex-128", any_language=True)
    assert list(found) == [("de", "test"), ("rw", "test"), ("sr_Latn", "test")]
    found, left_out = read(tmp_path, "ntrex-128", wanted=["kinyarwanda"])
    assert list(found) == [("rw", "test")]
    assert left_out == [
        "NTREX-128/newstest2019-ref.eng-US.txt: the English side is"
        " NTREX-128/newstest2019-src.eng.txt",
        "files that are no text of ntrex-128: LICENSE.md",
    ]


def test_monolingual_data_are_refused(tmp_path):
    write(tmp_path, {"data/de/de_clean_0000.jsonl.gz": [json.dumps({"text": DE[0]})]})
    assert sources.detect(tmp_path) == "madlad-400"
    with pytest.raises(ValueError, match="MADLAD-400 is monolingual: documents of one language"):
        read(tmp_path, "madlad-400")
    write(tmp_path / "own", {"de.jsonl": [json.dumps({"text": DE[0]})]})
    with pytest.raises(InputError) as error:
        read(tmp_path / "own", "jsonl")
    assert str(error.value) == (
        f"{tmp_path}/own/de.jsonl line 1: has text; it has one text and no translation, so it is"
        " monolingual"
    )


def test_layouts_that_do_not_decide(tmp_path):
    write(tmp_path, {"de.tsv": tsv(DE, EN), "a.fr": DE, "a.en": EN})
    with pytest.raises(InputError) as error:
        sources.detect(tmp_path)
    assert str(error.value) == (
        f"{tmp_path} fits several layouts: moses (2 files), tsv (1 files); choose one with --source"
    )
    (tmp_path / "none").mkdir()
    write(tmp_path / "none", {"notes.doc": ["x"], "opus.tar.gz": ["x"]})
    with pytest.raises(InputError) as error:
        sources.detect(tmp_path / "none")
    lines = str(error.value).split("\n")
    assert lines[0] == (
        f"{tmp_path}/none/opus.tar.gz is an archive; unpack it into a folder of its own, mkdir opus"
        f" && tar xf {tmp_path}/none/opus.tar.gz -C opus, and give --input=opus"
    )
    assert lines[1] == f"{tmp_path}/none fits no layout; it has notes.doc. Known layouts:"
    assert lines[2].startswith("  opus-100           OPUS-100 (Zhang et al. 2020)")


def test_every_unknown_code_is_named_at_once(tmp_path):
    write(
        tmp_path,
        {
            "languages.tsv": ["a"],
            "German.tsv": tsv(DE, EN),
            "xq.tsv": tsv(DE, EN),
            "qz.tsv": tsv(DE, EN),
        },
    )
    layout = sources.BY_KIND["tsv"]
    scan = sources.scan(tmp_path, layout, sources.resolver())
    assert [fault.split(",")[0] for fault in scan.faults] == [
        "qz.tsv: unknown language 'qz'",
        "xq.tsv: unknown language 'xq'",
    ]
    assert scan.left_out == ["languages.tsv: no language in its name"]
    scan = sources.scan(tmp_path, layout, sources.resolver(skip_unknown=True))
    assert (scan.faults, len(scan.left_out), scan.parts[0].language) == ([], 3, "de")


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("de.tsv", "eins\tone\nzwei\n", "line 2: 1 column between tabs, at least 2 are needed"),
        ("de.jsonl", '{"source": "a", "target": "b"}\n{"source"', "line 2: no JSON ("),
        ("de.jsonl", '{"source": "a", "target": "b"}\n[1]', "line 2: no JSON object but list"),
        ("de.jsonl", '{"source": "a", "target": null}', "line 1: 'target' is null, no text"),
        ("de.jsonl", '{"x": "a", "y": "b"}', "line 1: has x, y; needs source and target, or de"),
        ("all_talks_dev.tsv", "t\ten\tde\nx\ty\n", "line 2: 2 columns, the first line has 3"),
    ],
)  # fmt: skip
def test_lines_that_are_not_what_the_layout_says(name, text, fault, tmp_path):
    write(tmp_path, {name: text})
    kind = sources.detect(tmp_path)
    with pytest.raises(InputError) as error:
        read(tmp_path, kind)
    assert str(error.value).startswith(f"{tmp_path}/{name} {fault}")


def test_damaged_and_wrongly_encoded_files(tmp_path):
    (tmp_path / "a.de").write_bytes("eins\nMünchen\n".encode("latin-1"))
    write(tmp_path, {"a.en": ["one", "Munich"]})
    with pytest.raises(InputError) as error:
        read(tmp_path, "moses")
    assert str(error.value) == (
        f"{tmp_path}/a.de line 2: byte 0xfc is not UTF-8; convert the file first"
        " (iconv -f ENCODING -t UTF-8)"
    )
    (tmp_path / "a.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n" * 999)[:40])
    (tmp_path / "a.de").unlink()
    write(tmp_path, {"a.en": ["one"] * 1998})
    with pytest.raises(ValueError, match=r"a.de.gz: after line \d+ the file breaks off"):
        read(tmp_path, "moses")


def test_zstandard_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    write(tmp_path, {"a.de.zst": ["x"], "a.en": ["y"]})
    with pytest.raises(InputError) as error:
        read(tmp_path, "moses")
    assert str(error.value) == (
        "a.de.zst is compressed with zstd; pip install zstandard, or: unzstd a.de.zst"
    )
