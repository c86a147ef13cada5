import re
from dataclasses import replace

import pytest

from gshard_m4.evaluation.scores import (
    Baseline,
    Metric,
    OtherLanguage,
    Paired,
    SentenceScore,
    Significance,
)
from gshard_m4.evaluation.translations import Split, Task, Translation
from gshard_m4.languages import find
from gshard_m4.report import cells, page
from gshard_m4.report.columns import columns_of, tip_of, value_of

PAIRED = {"chrfpp": Paired(0.004, 0.012, 51.0, 1.25, 48.0, 1.5)}
LANGUAGES = {
    "de": {"chrfpp": 51.0, "train_rows": 1200, "band": "high", "baseline": {"chrfpp": 48.0},
           "delta": {"chrfpp": 3.0}, "paired": PAIRED, "merged": {"comet": 0.8125}},
    "ar": {"chrfpp": 41.0, "train_rows": 9000, "band": "high", "wrong_language": 0.125,
           "identified": 48, "other_languages": (OtherLanguage(1, 1, "fr"),)},
    "yo": {"chrfpp": 31.0, "train_rows": 7, "band": "low", "bleu_four_grams": 0,
           "worst": (SentenceScore(0, 0, 0.0), SentenceScore(2, 2, 4.5))},
    "fr": {"chrfpp": 61.0},
}  # fmt: skip


def tasks(*codes):
    found = []
    for code in codes:
        rows = [
            Translation(0, None, "a red rose", "", None),
            Translation(1, None, "a red rose", "une </td> rose $css ${body}", True),
            Translation(2, None, "a red rose", "زهرة", None),
        ]
        found.append(Task(f"m4_x_{code}_en", find(code), tuple(rows)))
    return tuple(found)


def translations():
    return [Split("test", {}, 7, tasks(*LANGUAGES), not_scored=("xh",))]


@pytest.fixture
def scores(make_scores):
    metrics = (
        Metric("bleu", "BLEU", "tok:13a"),
        Metric("chrfpp", "chrF++", "nc:6|nw:2"),
        Metric("ter", "TER", "tok:tercom", higher_is_better=False),
        Metric("comet", "COMET", "wmt22", merged=True),
    )
    return make_scores(
        LANGUAGES,
        metrics=metrics,
        baseline=Baseline("bilin<gual>", "a table of numbers", {"chrfpp": "nc:6|nw:2"}),
        significance=Significance("bootstrap", 1000, {"chrfpp": "bs:1000|seed:12345"}, 4),
        bands_from="counts.tsv",
        files={"counts.tsv": "ab12"},
        name="MoE",
        command="gshard-m4 evaluate --output=/tmp/r",
    )


def test_columns_are_those_that_some_language_has_a_value_for(scores):
    found = [column.title for column in columns_of(scores, scores.splits[0])]
    assert found == [
        "Training pairs", "Phrases", "chrF++", "chrF++ of baseline", "Δ chrF++", "p chrF++",
        "± chrF++", "BLEU", "COMET", "Exact %", "Not English %", "Empty %", "Copied %", "Cut %",
        "Repeated %", "Over-long %", "Tokenised %", "Short refs %",
    ]  # fmt: skip


def test_lower_is_better_sorts_upwards(make_scores):
    ter = Metric("ter", "TER", "tok:tercom", higher_is_better=False)
    made = make_scores({"de": {"ter": 40.0}}, metrics=(ter,))
    (column,) = [each for each in columns_of(made, made.splits[0]) if each.key == "ter"]
    assert column.ascending
    assert column.leading


def test_values_of_a_language(scores):
    by_code = {one.code: one for one in scores.splits[0].languages}
    german = by_code["de"]
    keys = ("chrfpp", "baseline_chrfpp", "delta_chrfpp", "p_chrfpp", "ci_chrfpp", "comet")
    assert [value_of(german, key) for key in keys] == [51.0, 48.0, 3.0, 0.012, 1.25, 0.8125]
    assert value_of(by_code["yo"], "bleu") is None
    assert value_of(by_code["ar"], "p_chrfpp") is None
    assert tip_of(german, "p_chrfpp") == "0.004 before the correction for the number of languages"
    assert tip_of(by_code["ar"], "wrong_language") == "of 48 long enough to tell; taken for fr"


def test_table_has_most_training_text_first_and_unknown_last(scores):
    text = page(scores, translations())
    table = text[text.index('<table class="scores">') :]
    assert re.findall(r'<tr data-code="(\w+)"', table)[:4] == ["ar", "de", "yo", "fr"]
    row = re.search(r'<tr data-code="de".*?</tr>', table)
    assert row is not None
    assert [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td.*?</td>", row[0])][:12] == [
        "de", "Latn", "high", "1,200", "50", "\u200751.0",
        "48.0", "+3.0", "0.012", "± 1.2", "20.0", "0.812",
    ]  # fmt: skip
    assert '<td class="number" data-v="">–</td>' in table
    assert 'Band</th><th scope="col" title="counts.tsv"' in table
    assert 'aria-sort="descending">Training pairs</th>' in table


def test_what_must_be_known_is_said(scores):
    text = page(scores, translations())
    assert "French, Arabic, Yoruba have no score in the baseline bilin&lt;gual&gt;" in text
    assert "Languages in which more than 5% of the translations are" in text
    assert '<b>not in English</b> <a href="#language-ar">Arabic</a>&nbsp;12.5&nbsp;%' in text
    assert "median +3.0 · of 1 language<" in text


def test_bands_have_their_bounds_and_scripts_their_languages(scores):
    text = page(scores, translations())
    assert '<th scope="row">high</th><td class="plain">1,200 to 9,000</td>' in text
    assert '<th scope="row">low</th><td class="plain">7</td>' in text
    assert '<th scope="row">Latn</th><td class="plain">de, fr, yo</td>' in text


def test_worst_and_foreign_translations_are_shown(scores):
    text = page(scores, translations())
    lowest = text[text.index("Lowest chrF++ of a phrase") : text.index("Not in English <span")]
    assert 'dir="auto">زهرة</span><span class="mark">chrF++ 4.5</span>' in lowest
    foreign = text[text.index("Not in English <span") : text.index("By language")]
    assert '<span class="mark">taken for French</span>' in foreign


def test_translations_stay_text(scores):
    text = page(scores, translations())
    assert "une &lt;/td&gt; rose $css ${body}" in text
    assert "<gual>" not in text


def test_sources_that_are_not_known_have_no_column(scores):
    text = page(scores, translations())
    assert ">Source</th>" not in text


def test_how_it_was_made_has_signatures_files_and_test(scores):
    made = page(scores, translations()).split('id="made"')[1]
    for expected in (
        "<code>gshard-m4 evaluate --output=/tmp/r</code>",
        "<dt>TER signature</dt><dd><code>tok:tercom</code></dd>",
        "bilin&lt;gual&gt; (a table of numbers)<code>chrfpp: nc:6|nw:2</code>",
        "paired bootstrap, 1,000 samples a language; p-values are corrected for 4 languages (Holm)",
        "<dt>Resource bands</dt><dd>by counts.tsv</dd>",
        "<code>counts.tsv · SHA-256 ab12</code>",
    ):
        assert expected in made


def test_pictures_are_of_differences_where_there_is_a_baseline(scores):
    text = page(scores, translations())
    titles = re.findall(r"<title id=[^>]*>([^<]*)</title>", text)
    assert titles == [
        "Difference in chrF++ to the baseline, languages from most training text to least",
        "Difference in chrF++ to the baseline, languages from most training text to least",
        "chrF++ against training pairs",
        "BLEU, languages from most training text to least",
        "BLEU, languages from most training text to least",
        "BLEU against training pairs",
    ]
    assert "German (de): +3.0, 1,200 training pairs" in text
    assert "chrF++ of every language, 0 to 100" not in text
    assert "Left out, as their size is not known: fr." in text


def test_without_training_sizes_languages_are_ordered_by_mc4(make_scores):
    plain = make_scores({"yo": {}, "hr": {}, "de": {}})
    text = page(plain, [replace(translations()[0], tasks=tasks("yo", "hr", "de"))])
    assert "chrF++ of every language, 0 to 100" in text
    assert "chrF++, languages from most text in mC4 to least" in text
    assert "German (de): 40.0, 347,000,000,000 tokens in mC4" in text
    assert "← most tokens in mC4 (347B)" in text
    assert "Left out, as their size is not known: hr." in text
    assert "training" not in text[text.index("<svg") : text.index("Translations</h2>")]


def test_without_any_size_there_are_no_pictures(make_scores):
    text = page(make_scores({"hr": {}}), [replace(translations()[0], tasks=tasks("hr"))])
    assert "<svg" not in text
    assert "chrF++ of every language, 0 to 100" in text
    assert "<dt>Command</dt><dd>not recorded</dd>" in text


def test_significant_differences_are_counted(scores):
    text = page(scores, translations())
    assert (
        "<p>Against bilin&lt;gual&gt;: chrF++: 1 of 1 language significantly better, 0 worse "
        "(p &lt; 0.05 after Holm's correction).</p>"
    ) in text
    assert 'correction for the number of languages"><b>0.012</b></td>' in text


def test_test_that_can_find_nothing_is_said(make_scores):
    def said(samples, languages):
        tested = Significance("bootstrap", samples, {}, languages)
        made = make_scores({"de": {}}, significance=tested)
        return re.findall(
            "With [0-9,]+ samples[^<]*", page(made, [replace(translations()[0], tasks=tasks("de"))])
        )

    assert said(1000, 40) == []
    assert said(1000, 102) == [
        "With 1,000 samples and 102 languages no p-value can be below 0.102 after Holm's "
        "correction, however clear the difference: test with 2,040 samples or more."
    ]


def test_no_probability_is_shown_as_nothing():
    shown = [cells.probability(p) for p in (0.0002, 0.0012, 0.051)]
    assert shown == ["<b>&lt; 0.001</b>", "<b>0.001</b>", "0.051"]
