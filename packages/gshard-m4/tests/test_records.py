import gzip

import pytest

from gshard_m4.evaluation.records import read_records


def read(tmp_path, name, data, role="prediction"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    faults = []
    records = read_records(path, role, faults)
    return records, [fault.removeprefix(str(path)) for fault in faults]


def fields(tmp_path, name, data, role="prediction"):
    records, faults = read(tmp_path, name, data, role)
    assert faults == []
    return [record.fields for record in records]


def test_plain_lines_end_at_newlines_only(tmp_path):
    found = fields(tmp_path, "de.txt", "a\u2028b\nc\x85d\r\n\n\x0ce")
    assert [one["prediction"] for one in found] == ["a\u2028b", "c\x85d", "", "\x0ce"]


def test_compressed_file_is_read_by_the_name_below(tmp_path):
    data = gzip.compress(b'{"prediction": "a"}\n')
    assert fields(tmp_path, "de.jsonl.gz", data) == [{"prediction": "a"}]


def test_field_names_that_people_use(tmp_path):
    line = '{"hypothesis": "a", "target": "b", "lang": "de", "id": "x1", "score": -0.5}\n'
    expected = {"prediction": "a", "reference": "b", "language": "de", "id": "x1"}
    assert fields(tmp_path, "a.jsonl", line) == [expected]
    assert fields(tmp_path, "b.jsonl", '{"text": "b"}\n', "reference") == [{"reference": "b"}]


def test_null_is_the_same_as_nothing(tmp_path):
    assert fields(tmp_path, "a.jsonl", '{"text": "b", "id": null}') == [{"prediction": "b"}]


def test_tsv_has_named_columns_and_no_quoting(tmp_path):
    data = 'id\ttext\tnote\ttruncated\n7\t"a\tx\ttrue\n8\tb\ty\tFALSE\n'
    assert fields(tmp_path, "a.tsv", data) == [
        {"id": "7", "prediction": '"a', "truncated": True},
        {"id": "8", "prediction": "b", "truncated": False},
    ]


def test_tsv_without_names_is_refused(tmp_path):
    _, faults = read(tmp_path, "a.tsv", "1\tfoo\n")
    assert faults == [
        " line 2: the line above must name the columns, one of them prediction, hypothesis, "
        "translation or text; known names are prediction, hypothesis, translation, reference, "
        "target, source, id, language, lang, truncated"
    ]


def test_tsv_faults(tmp_path):
    _, faults = read(tmp_path, "a.tsv", "text\ttruncated\na\tno\nb\nc\t1\td\n")
    assert faults == [
        " line 2: 'truncated' must be true or false, not 'no'",
        " line 3: 1 columns, 2 are named",
        " line 4: 3 columns, 2 are named",
    ]


def test_json_faults_are_all_named(tmp_path):
    lines = [
        '{"prediction": "a", "reference": ["x", "y"]}',
        '{"prediction": 2}',
        "[1]",
        "",
        '{"prediction": "\\ud83d"}',
        '{"prediction": "a", "truncated": 1, "id": true, "lang": 3}',
        "{",
        '{"reference": "a"}',
        '{"reference": "a"}',
    ]
    _, faults = read(tmp_path, "a.jsonl", "\n".join(lines))
    assert faults == [
        " line 1: 'reference' is a list; give one string a line (lists of references, a stream "
        "or a phrase each, are not read)",
        " line 2: 'prediction' must be a string, not int",
        " line 3: not a JSON object but list",
        " line 4: blank line",
        " line 5: text holds half of a surrogate pair; write it as UTF-8",
        " line 6: 'truncated' must be true or false, not int",
        " line 6: 'id' must be a whole number or a string, not bool",
        " line 6: 'language' must be a string, not int",
        " line 7: not valid JSON (Expecting property name enclosed in double quotes)",
        " line 8: no prediction; name it prediction, hypothesis, translation or text; also on "
        "line 9",
    ]


def test_wrong_encoding_names_line_and_byte(tmp_path):
    _, faults = read(tmp_path, "a.txt", "gut\nsch\xf6n\nb\xf6se".encode("latin-1"))
    assert faults == [
        " line 2: byte 4 (0xf6) is not UTF-8 (nor are other bytes on 1 more); save it as UTF-8"
    ]


def test_other_unicode_files(tmp_path):
    assert read(tmp_path, "a.txt", "a\n".encode("utf-16"))[1] == [" is UTF-16; save it as UTF-8"]
    assert read(tmp_path, "a.txt", "a\n".encode("utf-8-sig"))[1] == [
        " begins with a byte order mark; save it as UTF-8 without one"
    ]


def test_empty_and_broken_files(tmp_path):
    assert read(tmp_path, "a.txt", "") == ([], [" is empty"])
    assert read(tmp_path, "a.tsv", "text\n") == ([], [" is empty"])
    (fault,) = read(tmp_path, "a.gz", b"not gzip")[1]
    assert fault == " cannot be read: Not a gzipped file (b'no')"
    (fault,) = read(tmp_path, "b.gz", gzip.compress(b"some text")[:-3])[1]
    assert fault.startswith(" cannot be read: ")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("de.json", "write one JSON object a line and name it .jsonl"),
        (
            "de.CSV.gz",
            "save it as tab-separated text (no quotes) with a line of column names, named .tsv",
        ),
        ("de.sgm", "write its segments as plain text, one a line"),
        ("de.txt.xz", "unpack it, or compress it with gzip"),
    ],
)
def test_other_formats_are_not_taken_for_plain_text(tmp_path, name, advice):
    suffix = name.lower().removesuffix(".gz").rpartition(".")[2]
    assert read(tmp_path, name, "a\n") == ([], [f": .{suffix} is not read; {advice}"])


def test_json_that_is_named_otherwise_is_not_taken_for_phrases(tmp_path):
    line = '{"text": "a"}\n'
    assert read(tmp_path, "de.out", line * 2)[1] == [
        " has a JSON object in every line; name it .jsonl"
    ]
    assert len(fields(tmp_path, "de.out", line + "a\n")) == 2


def test_case_of_the_ending_is_free(tmp_path):
    assert fields(tmp_path, "de.TSV", "text\na\n") == [{"prediction": "a"}]


def test_a_text_that_is_there_twice_is_refused(tmp_path):
    _, faults = read(tmp_path, "a.jsonl", '{"text": "a", "hypothesis": "b"}\n{"id": 1, "id": 2}\n')
    assert faults == [
        " line 1: 'text' and 'hypothesis' both give the prediction; keep one",
        " line 2: 'id' and 'id' both give the id; keep one",
        " line 2: no prediction; name it prediction, hypothesis, translation or text",
    ]
    assert read(tmp_path, "a.tsv", "translation\ttext\na\tb\n")[1] == [
        " line 2: of the columns that the line above names, 'translation' and 'text' both give the "
        "prediction; keep one"
    ]
    assert read(tmp_path, "b.jsonl", '{"text": {"en": "b"}}')[1] == [
        " line 1: 'prediction' must be a string, not dict"
    ]
