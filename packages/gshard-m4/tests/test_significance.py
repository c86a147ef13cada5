from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest, Result

from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.metrics import Asked
from gshard_m4.evaluation.significance import answer, holm, questions, with_significance
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError

REFERENCES = [f"the cat number {number} sat on the mat all day" for number in range(30)]
GOOD = [text.replace("all", "the") if i % 2 else text for i, text in enumerate(REFERENCES)]
BAD = [text.replace("sat", "was").replace("day", "night") for text in REFERENCES]


@pytest.fixture
def split_of(write_split):
    names = iter("abcd")

    def split_of(said, references=REFERENCES):
        tasks = {
            f"m4_x_{code}_en": [("s", *row) for row in zip(references, texts, strict=True)]
            for code, texts in said.items()
        }
        return [replace(read_translations(write_split(next(names), tasks))[0], name="test")]

    return split_of


@pytest.mark.parametrize(("method", "kind"), [("bootstrap", "bs"), ("randomization", "ar")])
def test_tests_are_sacrebleus_own(split_of, method, kind):
    asked = questions(split_of({"de": BAD}), split_of({"de": GOOD}))
    tests, how = answer(asked, Asked(), method, samples=100)
    systems: list[tuple[str, Sequence[str]]] = [("a", BAD), ("b", GOOD)]
    metrics = {"BLEU": BLEU(), "chrF2++": CHRF(word_order=2)}
    more = -1 if method == "bootstrap" else 0
    test = PairedTest(systems, metrics, [REFERENCES], kind, 100, n_ar_confidence=more)
    signatures, results = test()
    for key, name in (("bleu", "BLEU"), ("chrfpp", "chrF2++")):
        base, own = cast("list[Result]", results[name])
        found = tests["test", "de"][key]
        assert (found.p, found.p_holm) == (own.p_value, own.p_value)
        assert (found.mean, found.ci) == (own.mean, own.ci)
        assert (found.baseline_mean, found.baseline_ci) == (base.mean, base.ci)
        assert how.signatures[key] == signatures[name].format()
    assert f"{kind}:100" in how.signatures["bleu"]
    assert (how.method, how.samples, how.languages) == (method, 100, 1)


def test_only_languages_with_the_same_references_are_asked_about(split_of):
    base = split_of({"de": BAD, "fr": BAD})
    other = split_of({"it": BAD}, REFERENCES[::-1])
    both = [replace(base[0], tasks=base[0].tasks + other[0].tasks)]
    asked = questions(both, split_of({"de": GOOD, "it": GOOD, "es": GOOD}))
    assert [(one.split, one.code) for one in asked] == [("test", "de")]
    assert (asked[0].baseline[0], asked[0].system[0]) == (BAD[0], GOOD[0])


def test_correction_is_holms():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.5]) == [1, 1]
    assert holm([]) == []


def test_correction_is_over_the_languages_of_a_metric(split_of):
    said = {"de": GOOD, "fr": GOOD, "it": BAD}
    system = split_of(said)
    asked = questions(split_of({"de": BAD, "fr": BAD, "it": BAD}), system)
    tests, how = answer(asked, Asked(("chrf++",)), "bootstrap", samples=100)
    found = with_significance(evaluate(system), tests, how)
    by_code = {one.code: one.paired["chrfpp"] for one in found.splits[0].languages}
    raw = [by_code[code].p for code in said]
    assert [by_code[code].p_holm for code in said] == holm(raw)
    assert by_code["de"].p < 0.05
    assert found.significance == how


@pytest.mark.parametrize("method", ["bootstrap", "randomization"])
def test_equal_systems_do_not_differ(split_of, method):
    asked = questions(split_of({"de": BAD}), split_of({"de": BAD}))
    tests, _ = answer(asked, Asked(("bleu",)), method, samples=20)
    assert tests["test", "de"]["bleu"].p == 1


@pytest.mark.parametrize("method", ["bootstrap", "randomization"])
def test_what_a_metric_does_not_see_is_no_difference(split_of, method):
    """Spaces are nothing to BLEU, case is nothing to TER, and BLEU of single words is 0."""
    spaced, raised = [text + " " for text in BAD], [text.upper() for text in BAD]
    base = split_of({"de": BAD, "fr": BAD, "it": ["dog"] * len(BAD)})
    other = split_of({"de": spaced, "fr": raised, "it": ["cat"] * len(BAD)})
    tests, _ = answer(questions(base, other), Asked(("bleu", "ter")), method, samples=20)
    same = [tests["test", "de"]["bleu"], tests["test", "fr"]["ter"], tests["test", "it"]["bleu"]]
    assert [(one.p, one.p_holm) for one in same] == [(1, 1)] * 3


def test_processes_give_the_same(split_of):
    asked = questions(split_of({"de": BAD, "fr": GOOD}), split_of({"de": GOOD, "fr": GOOD}))
    one, _ = answer(asked, Asked(("chrf++",)), "bootstrap", samples=50)
    two, _ = answer(asked, Asked(("chrf++",)), "bootstrap", samples=50, processes=2)
    assert one == two


def test_nothing_to_test_is_said():
    with pytest.raises(InputError, match="no language with the same references in common"):
        answer([], Asked(), "bootstrap")
