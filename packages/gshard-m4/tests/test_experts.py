import json

import pytest

from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError

ROWS = [("Hund", "dog", "dog")]
GOOD = {"layers": ["encoder_1", "decoder_1"], "num_experts": 2, "languages": {
    "deu": [[0.25, 0.75], [1, 0]]}}  # fmt: skip


@pytest.fixture
def folder(write_split):
    write_split("unseen", {"m4_de_en": ROWS})
    return write_split("test", {"m4_de_en": ROWS}).parent


def faults_of(folder, document):
    path = folder / "test" / "experts.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(InputError) as raised:
        read_translations(folder)
    assert all(fault.startswith(f"{path}") for fault in raised.value.faults)
    return [fault.removeprefix(f"{path}") for fault in raised.value.faults]


def test_shares_are_read_beside_the_translations(folder):
    (folder / "test" / "experts.json").write_text(json.dumps(GOOD))
    test, unseen = read_translations(folder)
    assert unseen.experts is None
    assert test.experts is not None
    assert (test.experts.layers, test.experts.num_experts) == (("encoder_1", "decoder_1"), 2)
    assert test.experts.languages == {"de": ((0.25, 0.75), (1.0, 0.0))}


def test_one_file_for_all_sets(folder):
    (folder / "experts.json").write_text(json.dumps(GOOD))
    assert [split.experts is not None for split in read_translations(folder)] == [True, True]


def test_wrong_shares_are_named(folder):
    languages = {
        "de": [[0.5, 0.5]],
        "fr": [[0.5, 0.5], [1]],
        "it": [[0.5, 0.4], [1, 0]],
        "es": [[0.5, 0.5], [-1, 2]],
        "xx": [[0.5, 0.5], [0.5, 0.5]],
        "nl": GOOD["languages"]["deu"],
        "nld": GOOD["languages"]["deu"],
    }
    assert faults_of(folder, GOOD | {"languages": languages}) == [
        ": de: 2 lists are wanted, one a layer, not 1",
        ": fr: layer 1: 2 shares are wanted, one an expert, not 1",
        ": it: layer 0: shares sum to 0.900, not 1",
        ": es: layer 1: shares must be numbers from 0 to 1",
        ": unknown language 'xx', not one of M4's 102",
        ": 'nld' is nl, which is there already",
    ]


def test_wrong_shape_is_named(folder):
    assert faults_of(folder, {"layers": [], "num_experts": 0}) == [
        ": 'layers' must be a list of names, one a layer with experts",
        ": 'num_experts' must be a whole number of at least 1, not 0",
        ": 'languages' must be an object: code -> a list of shares for every layer",
    ]
    assert faults_of(folder, []) == [": not a JSON object but list"]
    assert faults_of(folder, "{")[0].startswith(" is not JSON (")
