import sys

import pytest

from gshard_m4.evaluation import identify
from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.identify import Identifier
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("the house that was built of stone", "en"),
        ("Prices rose sharply in many cities last year", "en"),
        ("Die Preise sind letztes Jahr stark gestiegen", "de"),
        ("Les prix ont fortement augmenté l'année dernière", "fr"),
        ("Ang bahay na ito ay itinayo noong nakaraang taon", "fil"),
        ("цены сильно выросли в прошлом году", "ru"),
        ("цены выросли", "Cyrl"),
        ("三只猫", "Hani"),
        ("Die Preise sind gestiegen", None),
        ("rose", None),
        ("1 2 3 4 5 6 7", None),
        ("", None),
    ],
)
def test_language_of_a_text(text, language):
    assert Identifier().language(text) == language


def test_share_is_of_the_texts_that_can_be_told(write_split):
    english, german = "the cat sat on the mat", "Die Preise sind letztes Jahr stark gestiegen"
    said = [english, german, "kurz", "", "цены"]
    folder = write_split("test", {"m4_de_en": [("x", english, text) for text in said]})
    one = evaluate(read_translations(folder)).splits[0].languages[0]
    assert (one.identified, one.wrong_language) == (3, 2 / 3)
    assert [(other.row, other.language) for other in one.other_languages] == [
        (1, "de"),
        (4, "Cyrl"),
    ]
    one = evaluate(read_translations(folder), identify=False).splits[0].languages[0]
    assert (one.identified, one.wrong_language, one.other_languages) == (None, None, ())


def test_nothing_long_enough_is_no_share(write_split):
    folder = write_split("test", {"m4_de_en": [("x", "yes", "no")]})
    one = evaluate(read_translations(folder)).splits[0].languages[0]
    assert (one.identified, one.wrong_language) == (0, None)


def test_missing_package_is_named(monkeypatch):
    identify._model.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(InputError) as raised:
        Identifier()
    assert raised.value.faults == (
        "the wrong-language share needs py3langid, which is not installed: pip install py3langid, "
        "or leave the share out with --no-identify",
    )
