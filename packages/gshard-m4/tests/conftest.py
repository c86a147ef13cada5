"""Folders of translations as decoding writes them."""

import json

import pytest


@pytest.fixture
def write_split(tmp_path):
    """A function that writes one split: `write_split("test", {"m4_x_de_en": rows})`.

    A row is (source, reference, prediction) or those and `truncated`; fields of the manifest
    can be changed by keyword.
    """

    def write(split, tasks, /, **manifest):
        folder = tmp_path / "translations" / split
        folder.mkdir(parents=True)
        for task, rows in tasks.items():
            lines = []
            for number, (source, reference, prediction, *truncated) in enumerate(rows):
                row = {"id": number, "source": source, "reference": reference}
                row |= {"prediction": prediction, "score": -0.5, "truncated": truncated == [True]}
                lines.append(json.dumps(row, ensure_ascii=False) + "\n")
            (folder / f"{task}.jsonl").write_text("".join(lines), encoding="utf-8")
        fields = {"tasks": {task: len(rows) for task, rows in tasks.items()}, "split": split}
        fields |= {"decoder": {"beam_size": 4}, "checkpoint_step": 2050} | manifest
        (folder / "manifest.json").write_text(json.dumps(fields), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def make_scores():
    """A function that makes scores of one split: `make_scores({"de": {"chrfpp": 50.0}})`.

    What is not given of a language is the same for all; fields of `Scores` go by keyword.
    """
    from gshard_m4.evaluation.evaluate import averaged
    from gshard_m4.evaluation.scores import (
        LanguageScores,
        Metric,
        Scores,
        SplitScores,
        leading_of,
    )
    from gshard_m4.languages import find

    same = {"phrases": 50, "few_phrases": False, "chrfpp": 40.0, "exact": 0.1, "bleu": 20.0}
    same |= {"bleu_four_grams": 9, "spbleu": None, "ter": None, "short": 0.0, "empty": 0.0}
    same |= {"copied": 0.0, "truncated": 0.0, "repeated": 0.0, "over_long": 0.0}
    same |= {"wrong_language": 0.0, "identified": 50}
    metrics = (Metric("bleu", "BLEU", "tok:13a"), Metric("chrfpp", "chrF++", "nc:6|nw:2"))

    def make(languages, split="test", **fields):
        found = [
            LanguageScores(
                **({"code": code, "name": find(code).name, "script": find(code).script}
                   | {"task": f"m4_x_{code}_en"} | same | own)
            )
            for code, own in languages.items()
        ]  # fmt: skip
        one = SplitScores(split, split, "", 7, {}, None, None, tuple(found))
        kinds = fields.get("metrics", metrics)
        splits = (averaged(one, leading_of(kinds)),)
        return Scores(**({"metrics": metrics, "min_phrases": 40, "splits": splits} | fields))

    return make
