import json

import pytest

from gshard_m4.evaluation.replacing import replace_results
from gshard_m4.input_error import InputError


def listing(*names):
    return {"scores.json": json.dumps({"written": names})}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_only_what_the_earlier_run_wrote_is_removed(tmp_path):
    (tmp_path / "mine.png").write_text("")
    earlier = {"a.png": b"", "b.png": b""} | listing("a.png", "b.png")
    replace_results(tmp_path, earlier, "scores.json")
    replace_results(tmp_path, {"b.png": b"new"} | listing("b.png"), "scores.json")
    assert names(tmp_path) == ["b.png", "mine.png", "scores.json"]
    assert (tmp_path / "b.png").read_bytes() == b"new"


def test_names_that_lead_elsewhere_are_left_alone(tmp_path):
    (tmp_path / "report").mkdir()
    (tmp_path / "mine").write_text("")
    (tmp_path / "report" / "scores.json").write_text('{"written": ["../mine"]}')
    replace_results(tmp_path / "report", listing(), "scores.json")
    assert names(tmp_path) == ["mine", "report"]


@pytest.mark.parametrize("earlier", ["{", "[]", '{"written": 3}', '{"written": [3]}'])
def test_a_listing_that_is_none_removes_nothing(tmp_path, earlier):
    (tmp_path / "scores.json").write_text(earlier)
    replace_results(tmp_path, listing(), "scores.json")
    assert names(tmp_path) == ["scores.json"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to --output="):
        replace_results(tmp_path / "file" / "report", listing(), "scores.json")
