from dataclasses import replace

import pytest

from gshard_m4 import languages
from gshard_m4.evaluation.baseline import from_scores, read_baseline, with_baseline
from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.metrics import Asked
from gshard_m4.evaluation.score_files import to_csv, to_json
from gshard_m4.evaluation.summary import summary
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError

REFERENCES = ["the cat sat on the mat", "a red rose in a vase", "one two three four five"] * 4
GOOD = [text.replace("cat", "dog") for text in REFERENCES]
BAD = [text.replace("the", "a").replace("o", "u") for text in REFERENCES]


@pytest.fixture
def scored(write_split):
    """A function that scores what is said in each language."""
    splits = iter("abcdefgh")

    def score(said, references=REFERENCES, **options):
        tasks = {
            f"m4_x_{code}_en": [("s", *row) for row in zip(references, texts, strict=True)]
            for code, texts in said.items()
        }
        (split,) = read_translations(write_split(next(splits), tasks))
        options = {"identify": False, "min_phrases": 1} | options
        return evaluate([replace(split, name="test")], **options)

    return score


def faults_of(scores, against):
    with pytest.raises(InputError) as raised:
        with_baseline(scores, against)
    return list(raised.value.faults)


def test_differences_to_a_run_are_of_the_languages_that_both_have(scored):
    system, other = scored({"de": GOOD, "fr": GOOD, "it": BAD}), scored({"de": BAD, "it": BAD})
    found = with_baseline(system, from_scores(other, "old"))
    by_code = {one.code: one for one in found.splits[0].languages}
    theirs = {one.code: one for one in other.splits[0].languages}
    assert by_code["de"].baseline["bleu"] == theirs["de"].bleu
    assert by_code["de"].delta["bleu"] == by_code["de"].bleu - theirs["de"].bleu > 0
    assert by_code["it"].delta == {"bleu": 0, "chrfpp": 0}
    assert by_code["fr"].delta == by_code["fr"].baseline == {}
    headline = found.splits[0].headline
    assert headline.known["delta_bleu"] == 2
    assert headline.mean["delta_bleu"] == by_code["de"].delta["bleu"] / 2
    assert found.baseline is not None
    assert (found.baseline.name, found.baseline.kind) == ("old", "run")


def test_a_report_on_disk_is_a_baseline(scored, tmp_path):
    other = replace(scored({"de": BAD}), name="old")
    (tmp_path / "scores.json").write_text(to_json(other), encoding="utf-8")
    against = read_baseline(tmp_path, languages.find)
    assert against == from_scores(other, "old")


def test_a_table_of_numbers(scored, tmp_path):
    path = tmp_path / "bilingual.csv"
    path.write_text("language,BLEU,chrF++,note\ndeu,10,,\nfr,,55.5,\nes,1,2,\n")
    system = scored({"de": GOOD, "fr": GOOD, "it": GOOD})
    found = with_baseline(system, read_baseline(path, languages.find))
    by_code = {one.code: one for one in found.splits[0].languages}
    assert by_code["de"].delta == {"bleu": (by_code["de"].bleu or 0) - 10}
    assert by_code["fr"].delta == {"chrfpp": (by_code["fr"].chrfpp or 0) - 55.5}
    assert by_code["it"].delta == {}
    assert found.splits[0].headline.known["delta_chrfpp"] == 1


def test_a_table_that_is_wrong(tmp_path):
    path = tmp_path / "bilingual.csv"
    path.write_text("language,bleu\nde,ten\nxx,3\nfr,2\nfra,2\n")
    with pytest.raises(InputError) as raised:
        read_baseline(path, languages.find)
    assert raised.value.faults == (
        f"{path} line 2: bleu must be a number or blank, not 'ten'",
        f"{path} line 3: unknown language 'xx', not one of M4's 102",
        f"{path} line 5: 'fra' is fr, which is there already",
    )


def test_other_signatures_are_not_compared(scored):
    system = scored({"de": GOOD}, asked=Asked(("bleu",), "intl"))
    other = scored({"de": GOOD})
    ours, theirs = system.signatures["bleu"], other.signatures["bleu"]
    assert faults_of(system, from_scores(other, "old")) == [
        f"BLEU of the baseline old is not computed like here: {theirs} there, {ours} here"
    ]


def test_another_test_set_is_not_compared(scored):
    system, other = scored({"de": GOOD, "fr": GOOD}), scored({"de": GOOD}, [*REFERENCES[1:], "x"])
    ours = next(one for one in system.splits[0].languages if one.code == "de").references_sha256
    theirs = other.splits[0].languages[0].references_sha256
    assert faults_of(system, from_scores(other, "old")) == [
        "test: the baseline old was scored on other references in 1 of 2 languages, such as de: "
        f"SHA-256 {theirs[:12]} there, {ours[:12]} here"
    ]


def test_a_set_that_the_baseline_does_not_have(scored):
    system, other = scored({"de": GOOD}), scored({"de": GOOD})
    other = replace(other, splits=(replace(other.splits[0], name="devtest"),))
    assert faults_of(system, from_scores(other, "old")) == [
        "the baseline old has the sets devtest, here are test"
    ]


def table(tmp_path, text):
    path = tmp_path / "bilingual.csv"
    path.write_text(text)
    return read_baseline(path, languages.find)


def two_sets(scores):
    return replace(scores, splits=(scores.splits[0], replace(scores.splits[0], name="dev")))


def test_a_baseline_without_a_difference_is_refused(scored, tmp_path):
    system = scored({"de": GOOD})
    assert faults_of(system, table(tmp_path, "language,BLEU4\nde,40\n")) == [
        "the baseline bilingual has no score of a language and a metric that are here: it has "
        "bleu4, of de; here are bleu, chrfpp"
    ]
    assert faults_of(system, table(tmp_path, "language,bleu\nzu,3\n")) == [
        "the baseline bilingual has no score of a language and a metric that are here: it has "
        "bleu, of zu; here are bleu, chrfpp"
    ]


def test_what_is_not_used_and_not_known_is_remarked(scored, tmp_path):
    found = with_baseline(
        scored({"de": GOOD, "fr": GOOD}), table(tmp_path, "language,bleu,BLEU4\nde,1,2\nzu,1,\n")
    )
    assert found.remarks == (
        "The baseline bilingual is a table of numbers: how they were computed and on which test "
        "set is not known, so it is not checked that they can be compared.",
        "In bilingual but not scored here: zu.",
        "Not computed here, and so not compared with bilingual: bleu4.",
    )
    said = summary(found).splitlines()
    assert "  no score in the baseline bilingual: French" in said
    assert said[-3:] == list(found.remarks)


def test_a_table_is_of_one_set_or_names_the_sets(scored, tmp_path):
    system = two_sets(scored({"de": GOOD}))
    assert faults_of(system, table(tmp_path, "language,bleu\nde,1\n")) == [
        "the baseline bilingual is of which of the 2 sets (test, dev)? Name it in a column set of "
        "the table, or score one set at a time"
    ]
    found = with_baseline(
        system, table(tmp_path, "language,set,bleu\nde,test,1\nde,dev,2\nde,old,3\n")
    )
    assert [split.languages[0].baseline for split in found.splits] == [{"bleu": 1}, {"bleu": 2}]
    assert found.remarks[-1] == (
        "Sets that are in the baseline bilingual only, and so not compared: old."
    )


def test_sets_without_a_baseline_are_remarked(scored):
    system = scored({"de": GOOD})
    found = with_baseline(two_sets(system), from_scores(system, "old"))
    assert found.remarks == ("Sets that are here only, and so not compared: dev.",)


def test_scores_csv_of_a_report_is_a_baseline_with_its_signatures(scored, tmp_path):
    other = scored({"de": BAD, "it": BAD})
    (tmp_path / "scores.csv").write_text(to_csv(other), encoding="utf-8")
    against = read_baseline(tmp_path / "scores.csv", languages.find)
    assert against == from_scores(other, tmp_path.name)


@pytest.mark.parametrize("cell", ["nan", "inf", "1e999"])
def test_scores_in_a_table_are_finite(tmp_path, cell):
    with pytest.raises(InputError, match=f"line 2: bleu must be a number or blank, not '{cell}'"):
        table(tmp_path, f"language,bleu\nde,{cell}\n")
