import json

import pytest

from gshard_m4 import languages
from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.merged import read_merged, with_merged
from gshard_m4.evaluation.scores import Metric
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError

ROWS = [("a", "one two three four", "one two three four"), ("b", "yes", "no")]


@pytest.fixture
def read(tmp_path):
    def read(scores, **fields):
        document = {"name": "COMET-22", "signature": "wmt22-comet-da|2.2.7", "scores": scores}
        path = tmp_path / "comet.json"
        path.write_text(json.dumps(document | fields))
        return read_merged(path, languages.find)

    return read


@pytest.fixture
def splits(write_split):
    tasks = {f"m4_{code}_en": ROWS for code in ("de", "fr", "it", "yo")}
    return read_translations(write_split("test", tasks))


def faults_of(call, *arguments, **fields):
    with pytest.raises(InputError) as raised:
        call(*arguments, **fields)
    return [fault.rpartition("comet.json: ")[2] for fault in raised.value.faults]


def test_scores_by_language_row_and_id(read, splits):
    merged = read({"deu": 0.8, "fr": [0.5, 0.7], "it": {"0": 0.1, "1": 0.3}})
    found = with_merged(evaluate(splits), splits, [merged])
    by_code = {one.code: one for one in found.splits[0].languages}
    values = {code: by_code[code].value("comet_22") for code in ("de", "fr", "it", "yo")}
    assert values == {"de": 0.8, "fr": 0.6, "it": 0.2, "yo": None}
    headline = found.splits[0].headline
    assert headline.known["comet_22"] == 3
    assert headline.mean["comet_22"] == pytest.approx(1.6 / 3)
    assert found.metrics[-1] == Metric("comet_22", "COMET-22", "wmt22-comet-da|2.2.7", merged=True)


def test_error_rates_are_better_when_lower(read):
    assert not read({"de": 0.8}, higher_is_better=False).metric.higher_is_better


def test_files_that_are_wrong(read):
    assert faults_of(read, {"de": "0.8", "xx": 1, "fr": [], "fra": 1}) == [
        "the score of de must be a number, a list of numbers or an object id -> number",
        "unknown language 'xx', not one of M4's 102",
        "the score of fr must be a number, a list of numbers or an object id -> number",
        "'fra' is fr, which is there already",
    ]
    assert faults_of(read, {}, name="BLEU", signature=" ", higher_is_better=1) == [
        "'signature' must be a text: scores without a signature are not comparable",
        "'name' must not be 'BLEU', which is computed here",
        "'higher_is_better' must be true or false",
        "'scores' must be an object: language -> score",
    ]


def test_scores_of_other_phrases(read, splits):
    merged = read({"de": [0.5], "it": {"0": 0.1, "7": 0.3}})
    assert faults_of(with_merged, evaluate(splits), splits, [merged]) == [
        "de has 1 scores, the test set 2 phrases",
        "it: 1 ids have no score and 1 scores have no phrase, such as '1'",
    ]


def test_a_name_is_taken_once(read, splits):
    merged = read({"de": 0.5})
    assert faults_of(with_merged, evaluate(splits), splits, [merged, merged]) == [
        "there is a metric 'comet_22' already"
    ]


def test_languages_outside_the_set_are_named(read, splits):
    found = with_merged(evaluate(splits), splits, [read({"de": 0.5, "es": 0.5})])
    (remark,) = found.remarks
    assert remark.endswith("comet.json: not in the test set, and so not used: es")
    assert faults_of(with_merged, evaluate(splits), splits, [read({"es": 0.5})]) == [
        "no language of it is in the test set; it has es"
    ]


@pytest.mark.parametrize("name", ["chrF++", "exact", "p value", "delta x"])
def test_names_that_are_taken(read, name):
    assert faults_of(read, {"de": 1}, name=name) == [
        f"'name' must not be {name!r}, which is computed here"
    ]


def test_names_and_numbers_that_nothing_can_be_made_of(read, tmp_path):
    assert faults_of(read, {"de": 1}, name="日本") == [
        "'name' must have a letter from a to z or a digit, for columns, not '日本'",
    ]
    assert faults_of(read, {"de": 10**400}) == [
        "the score of de must be a number, a list of numbers or an object id -> number"
    ]
    path = tmp_path / "comet.json"
    path.write_text('{"name": "x", "signature": "s", "scores": {"de": 1, "de": 2}}')
    assert faults_of(read_merged, path, languages.find) == ["'de' is there more than once"]
