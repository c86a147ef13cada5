import pytest

from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.texts import split_of
from gshard_m4.input_error import InputError

ENGLISH = ["a red rose", "the dog"]


def faults_of(*arguments):
    with pytest.raises(InputError) as raised:
        split_of(*arguments)
    return list(raised.value.faults)


def test_lists_of_strings_are_scored():
    said = {"iw": ["a red rose", "a dog"], "de": ENGLISH}
    split = split_of(said, ENGLISH, {"de": ["eine rote Rose", "der Hund"]})
    assert [task.language.code for task in split.tasks] == ["he", "de"]
    assert [task.rows[1].source for task in split.tasks] == [None, "der Hund"]
    exact = {one.code: one.exact for one in evaluate([split]).splits[0].languages}
    assert exact == {"he": 0.5, "de": 1}


def test_references_by_language():
    split = split_of({"de": ["x"], "fr": ["y"]}, {"de": ["a"], "fr": ["b"]}, name="dev")
    assert (split.name, [task.rows[0].reference for task in split.tasks]) == ("dev", ["a", "b"])


def test_every_fault_is_named():
    said = {"de": ["x"], "fr": ["y"], "it": "z", "xx": ["x"], "es": ["x"], "nl": ["x"], "pl": []}
    references = {
        "de": [["a"]],
        "fr": ["a", "b"],
        "it": ["a"],
        "xx": ["a"],
        "nl": [" "],
        "pl": [],
    }
    assert faults_of(said, references) == [
        "de: references must be strings, one a phrase, not list (references are one list here, not "
        "a list of streams)",
        "fr: 2 references, 1 predictions",
        "it: predictions are one string; give a list of strings",
        "unknown language 'xx', not one of M4's 102",
        "es: no references",
        "nl: a reference has no text",
        "pl: no phrases",
    ]
    assert faults_of({}, []) == ["there are no predictions"]


def test_one_language_under_two_codes_is_refused():
    assert faults_of({"iw": ENGLISH, "de": ENGLISH, "he": ENGLISH}, ENGLISH) == [
        "he: is he, as is 'iw'"
    ]
