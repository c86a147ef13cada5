import csv
import io
import json
from importlib.metadata import version

import pytest

from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.score_files import to_csv, to_json
from gshard_m4.evaluation.scores import best_and_worst
from gshard_m4.evaluation.translations import read_translations

CODES = ["af", "am", "ar", "de", "el", "es", "fr", "he", "hi", "it", "ja", "ko", "yo"]


@pytest.fixture
def scores(write_split):
    """Thirteen languages, the first with the best scores; the last has few phrases."""
    tasks = {
        f"m4_x_{code}_en": [("x", "red rose", "red rose")] * (30 - rank)
        + [("x", "red rose", "dog")] * (5 + rank - (10 if code == "yo" else 0))
        for rank, code in enumerate(CODES)
    }
    folder = write_split("test", tasks, decoder={"beam_size": 4})
    return evaluate(read_translations(folder), min_phrases=30)


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
    assert set(document["signatures"]) == {"chrfpp", "bleu"}
    split = document["splits"]["test"]
    assert (split["checkpoint_step"], split["decoder"]) == (2050, {"beam_size": 4})
    assert split["macro"]["languages"] == 12
    assert split["macro"]["mean"]["chrfpp"] == scores.splits[0].macro.mean["chrfpp"]
    assert split["macro_few"]["median"]["exact"] == scores.splits[0].macro_few.median["exact"]
    first = split["languages"][0]
    assert (first["code"], first["name"], first["script"]) == ("af", "Afrikaans", "Latn")
    assert first["chrfpp"] == scores.splits[0].languages[0].chrfpp


def test_csv_has_a_row_for_each_language(scores):
    rows = list(csv.DictReader(io.StringIO(to_csv(scores))))
    assert [row["code"] for row in rows] == CODES
    assert float(rows[3]["chrfpp"]) == scores.splits[0].languages[3].chrfpp
    assert rows[0]["split"] == "test"
    assert rows[0]["bleu_signature"] == scores.signatures["bleu"]
