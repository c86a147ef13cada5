import csv
import io
import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from gshard_m4.evaluation import bands, baseline, significance
from gshard_m4.evaluation import merged as merging
from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.metrics import Asked
from gshard_m4.evaluation.ranking import best_and_worst
from gshard_m4.evaluation.score_files import read_scores, to_csv, to_json
from gshard_m4.evaluation.scores import Metric
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.input_error import InputError

CODES = ["af", "am", "ar", "de", "el", "es", "fr", "he", "hi", "it", "ja", "ko", "yo"]


@pytest.fixture
def splits(write_split):
    """Thirteen languages, the first with the best scores; the last has few phrases."""
    tasks = {
        f"m4_x_{code}_en": [("x", "red rose", "red rose")] * (30 - rank)
        + [("x", "red rose", "dog")] * (5 + rank - (10 if code == "yo" else 0))
        for rank, code in enumerate(CODES)
    }
    return read_translations(write_split("test", tasks, decoder={"beam_size": 4}))


@pytest.fixture
def scores(splits):
    return evaluate(splits, min_phrases=30)


@pytest.fixture
def full(splits, scores):
    """Scores with everything that can be added to them."""
    scores = bands.with_sizes(replace(scores, name="new", command="x"), {"af": 9, "am": 2}, "s")
    scores = baseline.with_baseline(scores, baseline.from_scores(scores, "old"))
    asked = significance.questions(splits, splits)[:2]
    tests, how = significance.answer(asked, Asked(), "bootstrap", samples=10)
    return significance.with_significance(scores, tests, how)


def faults_of(path):
    with pytest.raises(InputError) as raised:
        read_scores(path)
    return [fault.removeprefix(str(path)) for fault in raised.value.faults]


def test_no_language_is_both_among_the_best_and_the_worst(scores):
    best, worst = best_and_worst(scores.splits[0])
    assert [one.code for one in best] == CODES[:10]
    assert [one.code for one in worst] == ["ko", "ja"]
    best, worst = best_and_worst(scores.splits[0], count=3)
    assert [one.code for one in best] == CODES[:3]
    assert [one.code for one in worst] == ["ko", "ja", "it"]


def test_json_holds_every_number_with_its_signature(scores):
    document = json.loads(to_json(scores))
    assert (document["schema"], document["schema_version"]) == ("gshard-m4 scores", 2)
    assert document["versions"]["gshard-m4"] == version("gshard-m4")
    assert document["signatures"] == scores.signatures
    assert set(scores.signatures) == {"chrfpp", "bleu"}
    split = document["splits"]["test"]
    assert (split["checkpoint_step"], split["decoder"]) == (2050, {"beam_size": 4})
    assert split["macro"]["languages"] == 12
    assert split["macro"]["mean"]["chrfpp"] == scores.splits[0].macro.mean["chrfpp"]
    assert split["macro_few"]["median"]["exact"] == scores.splits[0].macro_few.median["exact"]
    first = split["languages"][0]
    assert (first["code"], first["name"], first["script"]) == ("af", "Afrikaans", "Latn")
    assert first["chrfpp"] == scores.splits[0].languages[0].chrfpp


def test_json_reads_back(full, scores, tmp_path):
    for number, written in enumerate((scores, full)):
        path = tmp_path / f"{number}" / "scores.json"
        path.parent.mkdir()
        path.write_text(to_json(written), encoding="utf-8")
        assert read_scores(path) == read_scores(path.parent) == written


def test_files_that_are_no_scores(tmp_path, scores):
    path = tmp_path / "scores.json"
    assert faults_of(path) == [
        " does not exist; give a scores.json of gshard-m4 evaluate, or the folder that it is in"
    ]
    path.write_text("{")
    assert faults_of(path)[0].startswith(" is not JSON (")
    for text in ("[]", '{"schema": "x"}'):
        path.write_text(text)
        assert faults_of(path) == [" is not a scores.json: its 'schema' is not 'gshard-m4 scores'"]
    path.write_text('{"schema": "gshard-m4 scores", "schema_version": 1}')
    assert faults_of(path) == [
        " has schema_version 1, this gshard-m4 reads 2; evaluate those translations again"
    ]


def test_scores_that_were_edited_wrongly(tmp_path, scores):
    document = json.loads(to_json(scores))
    split = document["splits"]["test"]
    del split["title"], split["languages"][1]["code"]
    split["languages"][0] |= {"bleu": "high", "phrases": 1.5, "few_phrases": 0, "worst": {}}
    split["macro"]["mean"] = [1]
    document["min_phrases"] = True
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(document))
    assert faults_of(path) == [
        ": min_phrases must be a whole number, not bool",
        ": splits[0].title is missing",
        ": splits[0].macro.mean must be an object, not list",
        ": splits[0].languages[0].phrases must be a whole number, not float",
        ": splits[0].languages[0].few_phrases must be true or false, not int",
        ": splits[0].languages[0].bleu must be a number, not str",
        ": splits[0].languages[0].worst must be a list, not dict",
        ": splits[0].languages[1].code is missing",
    ]


def test_many_faults_are_cut_short_and_newer_fields_may_be_missing(tmp_path, scores):
    document = json.loads(to_json(scores))
    path = tmp_path / "scores.json"
    for one in document["splits"]["test"]["languages"]:
        del one["tokenized"], one["worst"]
    path.write_text(json.dumps(document))
    assert read_scores(path).splits[0].languages[0].worst == ()
    for one in document["splits"]["test"]["languages"]:
        del one["code"]
    path.write_text(json.dumps(document))
    faults = faults_of(path)
    assert (len(faults), faults[-1]) == (11, ": 3 more faults")


def test_csv_has_a_row_for_each_language(scores):
    rows = list(csv.DictReader(io.StringIO(to_csv(scores))))
    assert [row["code"] for row in rows] == CODES
    assert float(rows[3]["chrfpp"]) == scores.splits[0].languages[3].chrfpp
    assert rows[0]["split"] == "test"
    assert rows[0]["bleu_signature"] == scores.signatures["bleu"]
    assert (rows[0]["spbleu"], rows[0]["train_rows"]) == ("", "")


def test_csv_has_baseline_and_test(full):
    rows = {row["code"]: row for row in csv.DictReader(io.StringIO(to_csv(full)))}
    one = next(one for one in full.splits[0].languages if one.code == "af")
    assert float(rows["af"]["baseline_chrfpp"]) == one.baseline["chrfpp"]
    assert (rows["af"]["delta_bleu"], rows["af"]["train_rows"]) == ("0.0", "9")
    assert (rows["af"]["p_bleu"], rows["af"]["p_holm_bleu"]) == ("1.0", "1.0")
    assert float(rows["af"]["mean_chrfpp"]) == one.paired["chrfpp"].mean
    assert float(rows["af"]["ci_chrfpp"]) == one.paired["chrfpp"].ci
    assert rows["yo"]["p_bleu"] == ""


def test_worst_sentences_are_those_of_sacrebleus_sentence_scores(write_split):
    from sacrebleu.metrics import CHRF

    said = ["red rose", "a red nose", "", "dog", "red roses"]
    rows = [("x", "a red rose", text) for text in said]
    scores = evaluate(read_translations(write_split("test", {"m4_de_en": rows})))
    found = [(one.row, one.id, one.chrfpp) for one in scores.splits[0].languages[0].worst]
    own = [CHRF(word_order=2).sentence_score(text, ["a red rose"]).score for text in said]
    assert found == sorted(((i, i, own[i]) for i in range(5)), key=lambda one: (one[2], one[0]))


def test_values_go_by_name(full):
    one = next(one for one in full.splits[0].languages if one.code == "af")
    assert (one.value("bleu"), one.value("delta_bleu"), one.value("comet")) == (one.bleu, 0, None)


@pytest.mark.parametrize(("names", "order"), [(("ter", "bleu"), "de fr"), (("bleu",), "fr de")])
def test_languages_are_in_order_of_the_metric_that_leads(write_split, names, order):
    reference = "one two three four five six"
    said = {"de": "one two three x y z", "fr": f"{reference} one two three four five"}
    tasks = {f"m4_{code}_en": [("s", reference, text)] for code, text in said.items()}
    splits = read_translations(write_split("test", tasks))
    scores = evaluate(splits, asked=Asked(names), identify=False)
    assert scores.leading is not None
    assert scores.leading.key == names[0]
    assert [one.code for one in scores.splits[0].languages] == order.split()
    best, worst = best_and_worst(scores.splits[0], 1)
    assert [one.code for one in best + worst] == order.split()


def test_a_merged_metric_alone_leads(splits):
    metric = Metric("wer", "WER", "s", higher_is_better=False, merged=True)
    found = {"de": 0.5, "af": 0.9, "fr": 0.1}
    merged = merging.Merged(Path("wer.json"), metric, dict(found))
    scores = merging.with_merged(evaluate(splits, asked=Asked(("exact",))), splits, [merged])
    assert [one.code for one in scores.splits[0].ranked][:4] == ["fr", "de", "af", "am"]
    best, worst = best_and_worst(scores.splits[0], 2, scores.leading)
    assert [one.code for one in best + worst] == ["fr", "de", "af"]


def test_scores_that_are_empty_or_no_numbers(tmp_path, scores):
    document = json.loads(to_json(scores))
    path = tmp_path / "scores.json"
    split = document["splits"]["test"]
    split["languages"][0] |= {"bleu": float("nan"), "chrfpp": 10**400}
    path.write_text(json.dumps(document))
    assert faults_of(path) == [
        f": splits[0].languages[0].{key} must be a number that is finite and not too large"
        for key in ("chrfpp", "bleu")
    ]
    split["languages"] = []
    path.write_text(json.dumps(document))
    assert faults_of(path) == [": the set test has no languages"]
    path.write_text(json.dumps(document | {"splits": {}}))
    assert faults_of(path) == [": it has no sets"]
