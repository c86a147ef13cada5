import json

import pytest

from gshard_m4.evaluation.replacing import output_faults, replace_results
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


@pytest.mark.parametrize(
    "earlier", ["{", "[]", '{"schema": []}', '{"written": 3}', '{"written": [3]}']
)
def test_files_of_another_program_are_not_overwritten(tmp_path, earlier):
    for name in ("scores.json", "report.html", "mine"):
        (tmp_path / name).write_text(earlier)
    with pytest.raises(InputError) as raised:
        replace_results(tmp_path, {"report.html": "", "new": ""} | listing("new"), "scores.json")
    assert list(raised.value.faults) == [
        f"--output={tmp_path} has report.html, scores.json of another program or run, which is not "
        "overwritten; give another folder, or remove that"
    ]
    assert names(tmp_path) == ["mine", "report.html", "scores.json"]
    assert (tmp_path / "report.html").read_text() == earlier


def test_a_report_without_a_list_is_still_replaced(tmp_path):
    (tmp_path / "report.html").write_text("")
    (tmp_path / "scores.json").write_text('{"schema": "gshard-m4 scores"}')
    replace_results(tmp_path, {"report.html": "new"} | listing("report.html"), "scores.json")
    assert (tmp_path / "report.html").read_text() == "new"


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as raised:
        replace_results(tmp_path / "file" / "report", listing(), "scores.json")
    assert list(raised.value.faults) == [
        f"cannot write to --output={tmp_path}/file/report: {tmp_path}/file is a file"
    ]
    with pytest.raises(InputError) as raised:
        replace_results(tmp_path / "file", listing(), "scores.json")
    assert list(raised.value.faults) == [f"--output={tmp_path}/file is a file; give a folder"]


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    assert list(output_faults(tmp_path / "a" / "b", ["x"], "scores.json")) == [
        f"cannot write to --output={tmp_path}/a/b: {tmp_path} may not be written"
    ]
