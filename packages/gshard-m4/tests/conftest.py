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
