"""What files say that is not what they seem: pairs, headers, columns, folders, archives."""

import bz2
import gzip
import lzma
import re
import zipfile

import pytest

from gshard_m4 import languages, sources
from gshard_m4.input_error import InputError
from gshard_m4.preparing.plan import Source, plan
from gshard_m4.preparing.settings import Settings
from gshard_m4.preparing.surveying import survey

PAIR = "Der Hund schläft.\tThe dog is sleeping.\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def parts_of(root, kind=None):
    """(language, split) of every part, and what was left out; no faults."""
    layout = sources.BY_KIND[kind or sources.detect(root)]
    found = sources.scan(root, layout, sources.resolver(any_language=True))
    assert found.faults == []
    return [(part.language, part.split) for part in found.parts], found.left_out


def rows_of(root):
    scan = sources.scan(root, sources.BY_KIND["tsv"], sources.resolver())
    assert scan.faults == []
    return [row for part in scan.parts for row in sources.rows(part)]


def fault_of(root):
    with pytest.raises(InputError) as error:
        rows_of(root)
    (fault,) = error.value.faults
    return fault.replace(f"{root}/", "")


@pytest.mark.parametrize(
    "code",
    ["pt-br", "zh-tw", "fr-ca", "es-mx", "de_AT", "de-FR", "sr-el", "no-nn", "hi_in", "de-de"],
)
def test_a_region_is_no_second_language(code):
    assert not languages.names_two_languages(code)


@pytest.mark.parametrize("code", ["de-fr", "de_fr", "DE-FR", "deu-fra", "cs-sk", "ru-uk", "zh-ja"])
def test_two_languages_are_a_pair(code):
    assert languages.names_two_languages(code)


def test_pairs_without_english_are_left_out_by_name(tmp_path):
    write(tmp_path, {"de-fr.tsv": PAIR, "cs_sk.tsv": PAIR, "pt-br.tsv": PAIR, "en_de.tsv": PAIR})
    found, left_out = parts_of(tmp_path)
    assert found == [("de", "train"), ("pt", "train")]
    assert left_out == [f"{name}.tsv: of a pair without English" for name in ("cs_sk", "de-fr")]
    assert rows_of(tmp_path)[0][:2] == ("The dog is sleeping.", "Der Hund schläft.")
    (tmp_path / "en_de.tsv").unlink()
    (tmp_path / "pt-br.tsv").unlink()
    with pytest.raises(InputError) as error:
        plan([Source(tmp_path)])
    assert error.value.faults == (
        "no file of the input has an English side",
        "left out: cs_sk.tsv: of a pair without English",
        "left out: de-fr.tsv: of a pair without English",
    )


def test_swapped_takes_a_file_as_well_as_a_language(tmp_path):
    write(tmp_path, {"de.train.tsv": PAIR, "de.test.tsv": PAIR})
    (train, test) = sorted(plan([Source(tmp_path)], swapped=["de.test.tsv"]).languages["de"],
                           key=lambda part: part.split == "test")  # fmt: skip
    assert (train.swapped, test.swapped) == (False, True)
    with pytest.raises(InputError) as error:
        plan([Source(tmp_path)], swapped=["dx.tsv"])
    assert error.value.faults == (
        "--swapped: dx.tsv is neither a language nor a file of the input",
    )


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("url\tsource\ttarget", "http\tHund\tdog"),
        ("id source target", "1 Hund dog"),
        ("target lang source", "dog de Hund"),
        ("German\tEnglish", "Hund\tdog"),
        ("en\tde", "dog\tHund"),
        ("score\teng_Latn\tdeu_Latn", "1.0\tdog\tHund"),
        ("source\ttarget\torigin", "Hund\tdog\tx"),
    ],
)
def test_a_header_says_which_columns_are_the_sides(header, row, tmp_path):
    write(tmp_path, {"de.tsv": "\n".join((header, row)).replace(" ", "\t")})
    origin = "x" if "origin" in header else "tsv"
    assert rows_of(tmp_path) == [("Hund", "dog", origin)]


@pytest.mark.parametrize("header", ["id\tsentence\ttranslation", "French\tEnglish", "id\tfr\ten"])
def test_a_header_that_is_not_understood_is_no_text(header, tmp_path):
    write(tmp_path, {"de.tsv": f"{header}\n" + "x\ty\tz\n"})
    assert fault_of(tmp_path) == (
        f"de.tsv line 1 names the columns {header.casefold().replace(chr(9), ', ')};"
        " name those to take source and target, or de and en"
    )


def test_words_that_columns_are_called_are_text_on_their_own(tmp_path):
    write(tmp_path, {"de.tsv": "Quelle\tsource\nText\ttext\n", "fr.tsv": "texte\ttext\tx\n"})
    assert [row[:2] for row in rows_of(tmp_path)] == [
        ("Quelle", "source"), ("Text", "text"), ("texte", "text"),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "found"), [("a\tb\nc\td\te\n", 3), ("s\ttarget\tx\ny\tz\n", 2)])
def test_rows_of_another_width_are_a_fault(text, found, tmp_path):
    write(tmp_path, {"de.tsv": text})
    width = 5 - found
    assert fault_of(tmp_path) == (
        f"de.tsv line 2: {found} columns between tabs, the first line has {width}; take tabs out"
        rf" of texts, or keep the rows that fit: awk -F'\t' 'NF == {width}'"
    )


SAID = "this is the house that was built by them and it has not been there for all of the time"
FRENCH = "la maison et le jardin de notre petite ville ne sont pas grands mais ceux qui vivent ici"
GERMAN = "das Haus und der Garten unserer kleinen Stadt sind nicht groß, aber alle sagen es sei gut"


def survey_faults(root, rows, **options):
    """What the survey says to German rows of a TSV file."""
    write(root, {"de.tsv": "".join(f"{a} {i}\t{b} {i}\n" for i, (a, b) in enumerate(rows))})
    try:
        survey(plan([Source(root)], **options), Settings(), processes=1, quiet=True)
    except InputError as error:
        return [fault.replace(f"{root}/", "") for fault in error.faults]
    return []


def test_an_english_side_in_another_language_is_a_fault(tmp_path):
    assert survey_faults(tmp_path, [(GERMAN, SAID)] * 50) == []
    assert survey_faults(tmp_path, [(GERMAN, FRENCH)] * 50) == [
        "de: the English side of de.tsv is in French; name the columns source and target in a first"
        " line, or, if the sides are swapped, give --swapped=de"
    ]


def test_sides_that_change_further_down_are_found(tmp_path):
    rows = [(GERMAN, SAID)] * 800 + [(SAID, GERMAN)] * 400 + [(GERMAN, SAID)] * 100
    (fault,) = survey_faults(tmp_path, rows)
    assert fault.startswith("de: rows 801 to 1200: 80% of the words of the de side of de.tsv are")
    assert fault.endswith("; other rows are the right way round: mend the files")


def test_sides_that_were_turned_round_wrongly_say_so(tmp_path):
    (fault,) = survey_faults(tmp_path, [(GERMAN, SAID)] * 50, swapped=["de"])
    assert fault.endswith(
        "; it was turned round by --swapped; give the names of the swapped files alone"
    )


def test_the_survey_finds_faults_in_any_row(tmp_path):
    rows = [(GERMAN, SAID)] * 2000 + [(GERMAN, "a\tb")]
    (fault,) = survey_faults(tmp_path, rows)
    assert fault.startswith("de.tsv line 2001: 3 columns between tabs, the first line has 2;")


def sides(stem, *codes):
    return {f"{stem}.{code}": "x\n" for code in codes}


def test_what_lies_beside_text_is_no_side(tmp_path):
    beside = dict.fromkeys(
        ("Books.de-en.ids", "Books.de-en.xml", "README", "LICENSE.md", "a.log"), "x\n"
    )
    write(tmp_path, {**sides("Books.de-en", "de", "en", "sh"), **beside})
    found, left_out = parts_of(tmp_path, "moses")
    assert found == [("de", "train"), ("sh", "train")]
    assert left_out == [f"files that are no text of moses: {', '.join(sorted(beside))}"]


def test_what_macos_adds_to_archives_is_passed_over(tmp_path):
    with zipfile.ZipFile(tmp_path / "corpus.zip", "w") as archive:
        for name in ("a.de", "a.en", "__MACOSX/._a.de", "sub/._a.en"):
            archive.writestr(name, b"\x00\x05\x16\xff" if "._" in name else b"x\n")
    assert sources.detect(tmp_path) == "moses"
    assert parts_of(tmp_path) == ([("de", "train")], [])


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("eval-corpus/de.tsv", "train"), ("my.test.sets/de.tsv", "train"),
        ("eval/de.tsv", "test"), ("tst2013/de.tsv", "test"), ("news/de.dev.tsv", "validation"),
    ],
)  # fmt: skip
def test_a_folder_decides_the_split_by_its_whole_name(name, split, tmp_path):
    write(tmp_path, {name: PAIR})
    assert parts_of(tmp_path) == ([("de", split)], [])


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path):
    write(tmp_path, {"elsewhere/fr.tsv": PAIR, "in/de.tsv": PAIR, "in/.git/ru.tsv": PAIR})
    (tmp_path / "in" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    assert parts_of(tmp_path / "in") == ([("de", "train"), ("fr", "train")], [])


def test_a_tar_archive_alone_gives_one_line(tmp_path):
    write(tmp_path, {"m4.tar.xz": b"x"})
    for root in (tmp_path, tmp_path / "m4.tar.xz"):
        with pytest.raises(InputError) as error:
            plan([Source(root)])
        assert error.value.faults == (
            f"{tmp_path}/m4.tar.xz is an archive; unpack it into a folder of its own, mkdir m4 &&"
            f" tar xf {tmp_path}/m4.tar.xz -C m4, and give --input=m4",
        )


def test_a_file_that_breaks_off_says_where(tmp_path):
    text = "".join(f"Satz {i * 7919 % 1000003}\tsentence {i * 31 % 997}\n" for i in range(9000))
    write(tmp_path, {"de.tsv.gz": gzip.compress(text.encode())[:-4000], "fr.tsv.gz": b"\x1f\x8b"})
    with pytest.raises(InputError) as error:
        survey(plan([Source(tmp_path)]), Settings(), processes=1, quiet=True)
    first, second = error.value.faults
    lines = re.fullmatch(r".*/de\.tsv\.gz: after line (\d+) the file breaks off; download it again",
                         first)  # fmt: skip
    assert lines is not None
    assert 5000 < int(lines[1]) < 9000
    assert second == f"{tmp_path}/fr.tsv.gz: the file breaks off; download it again"


def test_a_damaged_parquet_file_is_a_fault(tmp_path):
    pytest.importorskip("pyarrow")
    write(tmp_path, {"de.parquet": b"PAR1garbage", "fr.parquet": b""})
    with pytest.raises(InputError) as error:
        survey(plan([Source(tmp_path)]), Settings(), processes=1, quiet=True)
    assert [fault.split(" (")[0] for fault in error.value.faults] == [
        f"{tmp_path}/{code}.parquet: no parquet that can be read" for code in ("de", "fr")
    ]


def test_news_sets_of_wmt_are_found_once_each(tmp_path):
    segment = "<seg id='1'>x</seg>\n"
    sgm = ("2012-src.de", "2012-src.en", "2012-ref.de", "2012-ref.en", "2014-deen-src.de",
           "2014-deen-ref.en", "2014-ende-src.en", "2014-ende-ref.de", "2015-ende-src.en",
           "2015-ende-ref.de")  # fmt: skip
    write(
        tmp_path,
        {
            **sides("training/europarl-v7.de-en", "de", "en"),
            **sides("dev/newstest2013", "de", "en"),
            **{f"dev/newstest{name}.sgm": segment for name in sgm},
        },
    )
    assert sources.detect(tmp_path) == "wmt"
    scan = sources.scan(tmp_path, sources.BY_KIND["wmt"], sources.resolver())
    assert scan.faults == []
    assert sorted((part.split, part.files[0].name.split("/")[-1]) for part in scan.parts) == [
        ("test", "newstest2015-ende-ref.de.sgm"),
        ("train", "europarl-v7.de-en.de"),
        ("validation", "newstest2012-ref.de.sgm"),
        ("validation", "newstest2013.de"),
        ("validation", "newstest2014-deen-src.de.sgm"),
    ]
    assert [line.removeprefix("dev/newstest") for line in scan.left_out] == [
        "2012-src.en.sgm: the English side is dev/newstest2012-ref.en.sgm",
        "2012-src.de.sgm: a further text of de (dev/newstest2012-ref.de.sgm)",
        "2014-ende-ref.de.sgm: a further text of de (dev/newstest2014-deen-src.de.sgm)",
        "2014-ende-src.en.sgm: a further text of de (dev/newstest2014-deen-src.de.sgm)",
    ]


def test_an_encrypted_archive_and_links_to_nothing_are_faults(tmp_path):
    path = tmp_path / "de.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("de.tsv", PAIR)
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag of an encrypted member, in its header and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        survey(plan([Source(tmp_path)]), Settings(), processes=1, quiet=True)
    (fault,) = error.value.faults
    assert fault.startswith(f"cannot read {path}:de.tsv: File 'de.tsv' is encrypted")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError) as error:
        plan([Source(tmp_path)])
    assert error.value.faults == (f"{tmp_path}/gone is a link to nothing; mend it, or take it out",)


@pytest.mark.parametrize(
    ("packed", "ending"), [(gzip.compress, "gz"), (bz2.compress, "bz2"), (lzma.compress, "xz")]
)
def test_damage_inside_compressed_data_is_a_fault(packed, ending, tmp_path):
    data = bytearray(packed("".join(f"Satz {i * 7919 % 10007}\tx\n" for i in range(900)).encode()))
    for place in range(1000, 1020):
        data[place] ^= 0xFF
    write(tmp_path, {f"de.tsv.{ending}": bytes(data)})
    with pytest.raises(InputError) as error:
        survey(plan([Source(tmp_path)]), Settings(), processes=1, quiet=True)
    (fault,) = error.value.faults
    where = r"de\.tsv\.\w+: (after line \d+ )?"
    assert re.fullmatch(rf".*/{where}the data are damaged \(.*\); download it again", fault)


@pytest.mark.parametrize(
    ("cut", "what"),
    [(slice(0, -9), "the file breaks off"), (slice(9, None), "the data are damaged")],
)
def test_zstd_that_breaks_off_is_no_shorter_text(cut, what, tmp_path):
    compress = pytest.importorskip("zstandard").ZstdCompressor().compress
    text = "".join(f"Satz {i * 7919 % 10007}\tx\n" for i in range(900)).encode()
    write(tmp_path, {"de.tsv.zst": compress(text) + compress(text)})
    assert len(rows_of(tmp_path)) == 1800
    write(tmp_path, {"de.tsv.zst": compress(text) + compress(text)[cut]})
    with pytest.raises(InputError) as error:
        survey(plan([Source(tmp_path)]), Settings(), processes=1, quiet=True)
    (fault,) = error.value.faults
    assert fault.startswith(f"{tmp_path}/de.tsv.zst: after line 900 {what}")
