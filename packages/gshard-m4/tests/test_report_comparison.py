import re

import pytest

from gshard_m4.evaluation.scores import Baseline, Paired, Significance
from gshard_m4.report import comparison_page
from gshard_m4.report.compared import compared

A = {
    "de": {"chrfpp": 50.0, "bleu": 30.0, "train_rows": 900, "band": "high"},
    "ar": {"chrfpp": 40.0, "bleu": 20.0, "train_rows": 70, "band": "mid"},
    "yo": {"chrfpp": 30.0, "bleu": 10.0, "train_rows": 5, "band": "low"},
    "fr": {"chrfpp": 60.0, "bleu": 31.0, "train_rows": 800, "band": "high"},
}
B = {
    "de": {"chrfpp": 52.0, "bleu": 29.0},
    "ar": {"chrfpp": 47.0, "bleu": 22.0},
    "yo": {"chrfpp": 36.0, "bleu": None},
}


@pytest.fixture
def systems(make_scores):
    return [make_scores(A, name="dense"), make_scores(B, name="MoE <2>")]


def test_everything_is_over_languages_that_all_systems_have(systems):
    (split,) = compared(systems)
    assert [row[0].code for row in split.rows] == ["de", "ar", "yo"]
    assert split.missing == ((), ("French",))
    assert (split.mean("chrfpp", 0), split.mean("chrfpp", 1)) == (40.0, 45.0)
    # Yoruba has no BLEU in the second system, so it counts in neither.
    assert (split.mean("bleu", 0), split.mean("bleu", 1)) == (25.0, 25.5)
    assert (split.mean("chrfpp", 1, band="low"), split.mean("chrfpp", 0, band="low")) == (
        36.0,
        30.0,
    )


def test_differences_are_to_the_first_system(systems):
    (split,) = compared(systems)
    (series,) = split.differences("chrfpp")
    assert [(point.code, point.value) for point in series.points] == [
        ("de", 2.0),
        ("ar", 7.0),
        ("yo", 6.0),
    ]
    assert (series.name, series.style) == ("MoE <2>", 1)
    assert [point.code for point in split.differences("bleu")[0].points] == ["de", "ar"]


def test_page_has_a_row_a_language_and_escapes_names(systems):
    text = comparison_page(systems, command="gshard-m4 compare A '<B>'")
    rows = re.findall(r'<tr data-code="(\w+)"', text)
    assert rows == ["de", "ar", "yo"]
    assert "2 systems, 3 languages into English" in text
    assert "Left out of everything below: MoE &lt;2&gt; has no French." in text
    assert "<2>" not in text
    assert "<B>" not in text
    row = re.search(r'<tr data-code="ar".*?</tr>', text)
    assert row is not None
    assert re.findall(r'data-v="([^"]*)"', row[0]) == [
        "2", "70", "50", "40.0", "47.0", "7.0", "20.0", "22.0", "2.0", "0.0", "0.0",
    ]  # fmt: skip
    assert text.count("<h3>MoE &lt;2&gt;: gains most") == 1
    assert "loses most" not in text


def test_tests_against_the_first_system_are_shown(systems, make_scores):
    paired = {"chrfpp": Paired(0.01, 0.03, 52.0, 1.0, 50.0, 1.1)}
    tested = make_scores(
        {"de": B["de"] | {"paired": paired, "delta": {"chrfpp": -2.0}}, "ar": B["ar"]},
        name="MoE",
        baseline=Baseline("dense", "scores", {}),
        significance=Significance("bootstrap", 1000, {}, 2),
    )
    text = comparison_page([systems[0], tested])
    assert "p chrF++ MoE</th>" in text
    assert "<p>MoE against dense: chrF++: 0 of 1 language significantly better, 1 worse" in text
    assert '<td class="number" data-v="0.03"><b>0.030</b></td>' in text
    other = make_scores(B, name="MoE", significance=Significance("bootstrap", 1000, {}, 2),
                        baseline=Baseline("something else", "scores", {}))  # fmt: skip
    assert "p chrF++" not in comparison_page([systems[0], other])


def test_systems_with_nothing_in_common(make_scores):
    with pytest.raises(ValueError, match="the systems have no language of a test set in common"):
        comparison_page([make_scores({"de": {}}, name="a"), make_scores({"fr": {}}, name="b")])


def test_tests_of_too_few_samples_are_named_once(systems, make_scores):
    tested = [
        make_scores(
            B,
            name=name,
            baseline=Baseline("dense", "scores", {}),
            significance=Significance("bootstrap", 100, {}, 90),
        )
        for name in ("one", "other")
    ]
    text = comparison_page([systems[0], *tested])
    assert text.count("With 100 samples and 90 languages no p-value can be below 0.891") == 1


def test_undefined_bleu_is_a_dash_in_the_table_and_zero_in_averages(make_scores):
    none = {"bleu": 0.0, "bleu_four_grams": 0}
    (split,) = compared([make_scores({"de": {}, "fr": none}), make_scores({"de": {}, "fr": {}})])
    assert (split.mean("bleu", 0), split.mean("bleu", 1)) == (10.0, 20.0)
    assert [point.value for point in split.series("bleu")[0].points] == [20.0, 0.0]
    text = comparison_page([make_scores({"fr": none}, name="a"), make_scores({"fr": {}}, name="b")])
    row = re.search(r'<tr data-code="fr".*?</tr>', text)
    assert row is not None
    assert '<td class="number" data-v="">–</td><td class="number" data-v="20.0">20.0</td>' in row[0]
    assert '<td class="number" data-v="20.0">+20.0</td>' in row[0]
