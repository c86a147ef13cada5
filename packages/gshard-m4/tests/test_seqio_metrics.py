import functools
import json

import pytest

from gshard_m4.cli import run
from gshard_m4.evaluation.metrics import Asked
from gshard_m4.seqio_metrics import signatures, translation_metrics

ROWS = [
    ("ein Haus", "the old house on the hill", "the old house on a hill"),
    ("rot", "red", "red "),
    ("ein Satz", "it is a long sentence, and it ends.", "It's a long sentence and it ends"),
    ("leer", "nothing at all", ""),
] * 12


def test_numbers_and_signatures_are_those_of_evaluate(write_split, tmp_path):
    folder = write_split("test", {"m4_de_en": ROWS})
    assert run(["evaluate", f"--translations={folder}", f"--output={tmp_path}/report"]) == 0
    report = json.loads((tmp_path / "report" / "scores.json").read_text(encoding="utf-8"))
    (language,) = report["splits"]["test"]["languages"]
    scores = translation_metrics([row[1] for row in ROWS], [row[2] for row in ROWS])
    assert scores == {name: language[name] for name in ("bleu", "chrfpp", "exact")}
    assert signatures(Asked()) == {
        metric["key"]: metric["signature"] for metric in report["metrics"]
    }


def test_other_metrics_can_be_bound():
    ter = functools.partial(translation_metrics, asked=Asked(names=("ter", "chrf++")))
    assert list(ter(["a b"], ["a b"])) == ["ter", "chrfpp"]
    assert ter(["a b"], ["a b"])["ter"] == 0.0


@pytest.mark.parametrize(("targets", "predictions"), [([], []), (["a"], []), (["a"], ["b", "c"])])
def test_what_cannot_be_scored(targets, predictions):
    message = (
        f"translation_metrics: {len(targets)} targets and {len(predictions)} predictions; there"
        " must be as many of both, at least one"
    )
    with pytest.raises(ValueError, match=rf"^{message}$"):
        translation_metrics(targets, predictions)
