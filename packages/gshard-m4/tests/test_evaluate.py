import dataclasses
import random

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.translations import read_translations

WORDS = ["the", "red", "rose", "is", "not", "a", "“flag”", "dog,", "well-known", "1,000", "déjà"]


def phrases(seed, count):
    """Random (source, reference, prediction); predictions lose, change and keep words."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        words = draw.choices(WORDS, k=draw.randint(1, 9))
        said = [draw.choice(WORDS) if draw.random() < 0.3 else word for word in words]
        rows.append((f"x{number}", " ".join(words), " ".join(said[draw.randint(0, 1) :])))
    return rows


def scores_of(folder, **options):
    (split,) = evaluate(read_translations(folder), **options).splits
    return split, {one.code: one for one in split.languages}


def test_scores_are_those_of_sacrebleu_to_the_last_digit(write_split):
    tasks = {f"m4_x_{code}_en": phrases(code, 90) for code in ("de", "zh", "ar", "yo")}
    folder = write_split("test", tasks)
    _, found = scores_of(folder)
    for task, rows in tasks.items():
        one = found[task.split("_")[2]]
        references, predictions = [row[1] for row in rows], [row[2] for row in rows]
        assert one.bleu == BLEU().corpus_score(predictions, [references]).score
        assert one.chrfpp == CHRF(word_order=2).corpus_score(predictions, [references]).score
        assert 0 < (one.bleu or 0) < 100


def test_processes_give_the_same_scores(write_split):
    tasks = {f"m4_x_{code}_en": phrases(code, 9) for code in ("de", "zh", "ar", "yo", "it")}
    splits = read_translations(write_split("test", tasks))
    assert evaluate(splits, processes=2) == evaluate(splits)


def test_signatures_are_kept(write_split):
    scores = evaluate(read_translations(write_split("test", {"m4_de_en": phrases(1, 2)})))
    version = sacrebleu.__version__
    assert scores.signatures == {
        "chrfpp": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:{version}",
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}",
    }


def test_shares_by_hand(write_split):
    rows = [
        ("Hund", "dog", " dog "),  # exact, spaces aside
        ("Radio", "Radio", "Radio"),  # exact: a copy that is right is no copy
        ("Apfel", "apple", "Apfel"),  # copied
        ("Baum", "tree", " \t"),  # empty
        ("Haus", "house", "House", True),  # cut off; case counts
    ]
    _, found = scores_of(write_split("test", {"m4_de_en": rows}))
    one = found["de"]
    assert (one.phrases, one.exact, one.copied) == (5, 0.4, 0.2)
    assert (one.empty, one.truncated, one.short) == (0.2, 0.2, 1.0)


def test_bleu_without_four_tokens_is_zero_and_says_so(write_split):
    folder = write_split("test", {"m4_de_en": [("roter Apfel", "red apple", "red apple")] * 3})
    _, found = scores_of(folder)
    assert (found["de"].bleu, found["de"].bleu_four_grams, found["de"].chrfpp) == (0, 0, 100)


def test_languages_with_few_phrases_are_scored_and_averaged_apart(write_split):
    right, wrong = ("x", "one two three four", "one two three four"), ("x", "yes", "q")
    tasks = {
        "m4_de_en": [right] * 40,
        "m4_fr_en": [wrong] * 120,
        "m4_it_en": [right] * 20 + [wrong] * 20,
        "m4_yo_en": [right] * 39,
    }
    split, found = scores_of(write_split("test", tasks))
    assert [one.code for one in split.languages] == ["de", "it", "fr", "yo"]
    assert [one.few_phrases for one in split.languages] == [False, False, False, True]
    assert found["yo"].chrfpp == 100
    assert split.macro is not None
    assert split.macro_few is not None
    assert (split.macro.languages, split.macro.phrases) == (3, 200)
    assert split.macro.mean["exact"] == pytest.approx(0.5)  # over languages, not phrases
    assert split.macro.median["exact"] == 0.5
    expected = (100 + (found["it"].chrfpp or 0) + (found["fr"].chrfpp or 0)) / 3
    assert split.macro.mean["chrfpp"] == pytest.approx(expected)
    assert (split.macro_few.languages, split.macro_few.mean["exact"]) == (1, 1)
    assert split.headline is split.macro


def test_only_small_languages_still_have_a_headline(write_split):
    split, _ = scores_of(write_split("unseen", {"m4_de_en": phrases(1, 5)}))
    assert split.macro is None
    assert split.headline is split.macro_few
    assert [one.code for one in split.ranked] == ["de"]


def test_bound_of_few_phrases_can_be_set(write_split):
    split, _ = scores_of(write_split("test", {"m4_de_en": phrases(1, 5)}), min_phrases=5)
    assert split.macro_few is None


def test_sample_sets_are_named_for_what_they_show(write_split):
    for split in ("test", "unseen"):
        write_split(split, {"m4_sample_de_en": phrases(1, 3)})
    folder = write_split("dev", {"m4_sample_de_en": phrases(1, 3)}).parent
    splits = {split.name: split for split in evaluate(read_translations(folder)).splits}
    assert splits["test"].title == "Pairs"
    assert "were not seen in this language" in splits["test"].shows
    assert splits["unseen"].title == "Unseen English"
    assert "scores here are low" in splits["unseen"].shows
    assert (splits["dev"].title, splits["dev"].shows) == ("dev", "")


def test_other_corpora_are_not_described_as_the_sample(write_split):
    split, _ = scores_of(write_split("test", {"m4_ted_de_en": phrases(1, 3)}))
    assert dataclasses.asdict(split)["title"] == "test"
