import dataclasses
import json
import pathlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gshard_annotate.inspector.collectives import Collective
from gshard_annotate.inspector.report import (
    Cost,
    Exchange,
    Memory,
    Operation,
    Report,
    Source,
    Value,
)

TEXT = pathlib.Path(__file__).with_name("report.json").read_text("utf-8")
REPORT = Report.from_json(TEXT)

words = st.text(max_size=8)
counts = st.integers(0, 2**53)
numbers = st.floats(0, allow_infinity=False)
maybe = st.none() | numbers
sources = st.none() | st.builds(Source, words, counts, words)
collectives = st.builds(
    Collective, kind=words, shape=words, bytes=counts, computation=words, op_name=words
)
exchanges = st.builds(
    Exchange,
    collective=collectives,
    mesh_axes=st.lists(words, max_size=2).map(tuple),
    group_size=counts,
    times=counts,
    seconds=maybe,
    share=maybe,
    source=sources,
    cause=words,
    surprise=words,
)
values = st.builds(
    Value,
    role=words,
    name=words,
    shape=words,
    asked=st.none() | words,
    compiled=st.none() | words,
    bytes=counts,
    bytes_per_device=counts,
    times=counts,
    source=sources,
    note=words,
)
operations = st.builds(
    Operation,
    scope=words,
    primitive=words,
    backward=st.booleans(),
    recomputed=st.booleans(),
    times=counts,
    flops=counts,
    bytes_accessed=counts,
    seconds=maybe,
)
reports = st.builds(
    Report,
    title=words,
    platform=words,
    chip=st.none() | words,
    mesh=st.dictionaries(words, counts, max_size=3),
    values=st.lists(values, max_size=2).map(tuple),
    exchanges=st.lists(exchanges, max_size=2).map(tuple),
    memory=st.builds(Memory, counts, counts, counts, counts, counts, st.none() | counts),
    cost=st.builds(Cost, numbers, numbers, maybe, maybe, maybe, maybe),
    compile_seconds=numbers,
    notes=st.lists(words, max_size=2).map(tuple),
    operations=st.lists(operations, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(reports)
def test_json_round_trip_is_exact(report):
    assert Report.from_json(report.json()) == report


def test_json_of_version_1_stays_as_it_is():
    assert REPORT.json() == TEXT
    form = json.loads(TEXT)
    assert (form["format"], form["version"]) == ("gshard-annotate report", 1)


def test_a_report_with_operations_is_one_of_version_2():
    one = Operation("experts", "dot_general", False, True, 3, 5, 7, 0.5)
    form = json.loads(dataclasses.replace(REPORT, operations=(one,)).json())
    assert form["version"] == 2
    assert form["report"]["operations"] == [dataclasses.asdict(one)]


def edited(change):
    form = json.loads(TEXT)
    change(form)
    return json.dumps(form)


REFUSED = {
    "not json": (
        "{",
        "Report.from_json: not JSON (Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)); give what report.json() returned",
    ),
    "a list": (
        "[1]",
        "Report.from_json: the JSON is no report (list without a format instead of "
        "'gshard-annotate report'); give what report.json() returned",
    ),
    "another format": (
        '{"format": "gshard-annotate diff", "version": 1}',
        "Report.from_json: the JSON is no report (format 'gshard-annotate diff' instead of "
        "'gshard-annotate report'); give what report.json() returned",
    ),
    "a newer version": (
        edited(lambda form: form.update(version=3)),
        "Report.from_json: the report has version 3, this gshard-annotate reads versions 1 to 2; "
        "use the gshard-annotate that wrote it, or a newer one",
    ),
    "no report": (
        '{"format": "gshard-annotate report", "version": 1}',
        "Report.from_json: report is null; Report is needed",
    ),
    "wrong parts": (
        edited(
            lambda form: (
                form["report"]["memory"].update(peak="much"),
                form["report"]["exchanges"][1].pop("times"),
                form["report"]["values"][0].update(colour="red"),
                form["report"].update(mesh=[2, 4]),
            )
        ),
        "Report.from_json: 4 faults:\n"
        "  report.mesh is [2, 4]; dict is needed\n"
        "  report.values[0].colour is unknown\n"
        "  report.exchanges[1].times is missing\n"
        '  report.memory.peak is "much"; int is needed',
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_report_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Report.from_json(text)


def test_infinite_figures_are_refused():
    cost = dataclasses.replace(REPORT.cost, flops=float("inf"))
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        dataclasses.replace(REPORT, cost=cost).json()


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.json"
    assert REPORT.write_json(path) == path
    assert Report.from_json(path.read_text("utf-8")) == REPORT
    assert REPORT.write_html(str(tmp_path / "report.html")).read_text("utf-8") == REPORT.html()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["report.html", "report.json"]
    with pytest.raises(FileNotFoundError):
        REPORT.write_json(tmp_path / "absent" / "report.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        REPORT.write_json(tmp_path / "folder")
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "folder", "report.html", "report.json",
    ]  # fmt: skip


def test_what_is_accepted_survives_and_reports_from_before_it_are_read():
    accepted = REPORT.accepting("wi is split", "'wo'")
    assert (accepted.surprises, len(accepted.accepted)) == ([], 3)
    assert Report.from_json(accepted.json()) == accepted
    assert '"accepted"' not in TEXT
