import pytest

from gshard_m4 import languages
from gshard_m4.evaluation.bands import bands_of, with_sizes, with_table_bands
from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.tables import read_sizes, read_table
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError
from gshard_m4.prepared.small import write_prepared

ROWS = [("a", "one two three four", "one two three four")]


def faults_of(read, *arguments):
    with pytest.raises(InputError) as raised:
        read(*arguments)
    return list(raised.value.faults)


@pytest.fixture
def scores(write_split):
    tasks = {f"m4_x_{code}_en": ROWS for code in ("de", "fr", "is", "mt", "yo", "zu")}
    return evaluate(read_translations(write_split("test", tasks)), identify=False)


def test_bands_by_rank_have_the_papers_proportions():
    sizes = {f"l{number}": 1000 - number for number in range(102)}
    bands = list(bands_of(sizes).values())
    assert bands == ["high"] * 25 + ["mid"] * 52 + ["low"] * 25
    assert bands_of({"a": 3, "b": 9, "c": 3, "d": 1}) == {
        "b": "high",
        "a": "mid",
        "c": "mid",
        "d": "low",
    }


def test_bands_by_bounds():
    sizes = {"a": 9, "b": 10, "c": 99, "d": 100}
    assert bands_of(sizes, (10, 100)) == {"a": "low", "b": "mid", "c": "mid", "d": "high"}


def test_sizes_are_shown_with_the_ends_of_their_bands(scores):
    sizes = {"de": 900, "fr": 800, "is": 70, "mt": 60, "yo": 5}
    found = with_sizes(scores, sizes, "sizes.json", (10, 500)).splits[0]
    assert [(band.name, band.smallest, band.largest) for band in found.bands] == [
        ("high", 800, 900),
        ("mid", 60, 70),
        ("low", 5, 5),
    ]
    assert [band.macro.languages for band in found.bands] == [2, 2, 1]
    by_code = {one.code: one for one in found.languages}
    assert (by_code["is"].train_rows, by_code["is"].band) == (70, "mid")
    assert (by_code["zu"].train_rows, by_code["zu"].band) == (None, None)
    assert with_sizes(scores, sizes, "x").bands_from == (
        "training rows in x, by rank as in M4, 25:52:25"
    )


def test_bands_of_the_table_of_languages(scores):
    found = with_table_bands(scores)
    table = {one.code: one.band for one in languages.LANGUAGES}
    assert {one.code: one.band for one in found.splits[0].languages} == {
        code: table[code] for code in ("de", "fr", "is", "mt", "yo", "zu")
    }
    assert all(band.smallest is None for band in found.splits[0].bands)


def test_sizes_from_json_csv_tsv_and_prepared_data(tmp_path):
    (tmp_path / "a.json").write_text('{"deu": 12, "iw": 3}')
    (tmp_path / "a.csv").write_text("rows,language\r\n12,deu\r\n3,iw\r\n")
    (tmp_path / "a.tsv").write_text("language\trows\nde\t12\nhe\t3\n")
    pairs = [("ein Hund", "a dog"), ("zwei Hunde", "two dogs")]
    write_prepared(tmp_path / "p", {"de": {"train": pairs, "test": pairs}}, name="made")
    for name in ("a.json", "a.csv", "a.tsv"):
        assert read_sizes(tmp_path / name, languages.find) == {"de": 12, "he": 3}
    for path in (tmp_path / "p", tmp_path / "p" / "manifest.json"):
        assert read_sizes(path, languages.find) == {"de": 2}


def test_sizes_that_are_wrong(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"de": -1, "fr": true, "xx": 2, "it": "4", "ita": 5}')
    assert faults_of(read_sizes, path, languages.find) == [
        f"{path}: rows of de must be a whole number of at least 0, not -1",
        f"{path}: rows of fr must be a whole number of at least 0, not True",
        f"{path}: unknown language 'xx', not one of M4's 102",
        f"{path}: 'ita' is it, which is there already",
    ]
    path.write_text("[]")
    assert faults_of(read_sizes, path, languages.find) == [f"{path}: not a JSON object but list"]
    path.write_text("{}")
    assert faults_of(read_sizes, path, languages.find) == [f"{path} has no languages"]
    none = tmp_path / "none.json"
    assert faults_of(read_sizes, none, languages.find) == [
        f"{none} cannot be read: No such file or directory"
    ]


def test_tables_that_are_wrong(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("language,bleu\nde,3,4\n\nfr\n")
    assert faults_of(read_table, path) == [
        f"{path} line 2: 3 columns, 2 are named in the first line",
        f"{path} line 4: 1 columns, 2 are named in the first line",
    ]
    path.write_text("de,3\n")
    assert faults_of(read_table, path) == [
        f"{path}: the first line must name the columns, one of them language"
    ]
    path.write_text("language;bleu\nde;3\n")
    assert faults_of(read_table, path) == [
        f"{path}: the first line must name the columns, one of them language, with commas between "
        "them"
    ]
    path.write_text("language,bleu,BLEU\nde,3,4\n")
    assert faults_of(read_table, path) == [f"{path}: 2 columns are called 'bleu'; keep one of them"]
    path.write_bytes(b"language,bleu\nd\xe9,3\n")
    assert faults_of(read_table, path) == [f"{path}: byte 16 is not UTF-8"]


def test_tables_of_spreadsheets_are_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffLanguage,BLEU\r\nde,3\r\n".encode())
    assert read_table(path) == [(f"{path} line 2", {"language": "de", "bleu": "3"})]


def test_no_language_has_so_many_rows(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"de": ' + "9" * 400 + "}")
    assert faults_of(read_sizes, path, languages.find)[0].startswith(
        f"{path}: rows of de must be a whole number of at least 0, not 9999"
    )
