import dataclasses
import pathlib

import pytest

from gshard_annotate.inspector import quantities
from gshard_annotate.inspector.columns import Column, shorten, table
from gshard_annotate.inspector.cuts import Cut, brief, copies, cuts, same
from gshard_annotate.inspector.report import Operation, Report, Source

HERE = pathlib.Path(__file__).parent
REPORT = Report.from_json((HERE / "report.json").read_text("utf-8"))
PLAIN = dataclasses.replace(
    REPORT,
    chip=None,
    mesh={"model": 1},
    exchanges=(),
    values=(),
    memory=dataclasses.replace(REPORT.memory, aliased=1024, limit=None),
    cost=dataclasses.replace(
        REPORT.cost,
        bytes_accessed=0.0,
        compute_seconds=None,
        memory_seconds=None,
        collective_seconds=None,
        step_seconds=None,
    ),
    notes=(),
)


PLAIN_TEXT = """\
forward
mesh model=1 (1 CPU device), no chip named, so no times, compiled in 1.23 s

NO SURPRISES: what was compiled is what was asked for

COLLECTIVES: none

VALUES: none

MEMORY of a device: 232 MiB
  arguments 160 MiB, results 4 KiB (1 KiB of it in donated arguments), temporaries 72 MiB

WORK of a device: 1.5 GFLOP, 0 B accessed
"""


def test_text_is_what_print_shows():
    assert f"{REPORT.text()}\n" == f"{REPORT}\n" == (HERE / "report.txt").read_text("utf-8")


def test_text_without_collectives_values_chip_and_surprises():
    assert PLAIN.text() == PLAIN_TEXT.rstrip("\n")


OPERATIONS = (
    Operation("experts", "dot_general", False, False, 3, 5_000_000, 2**20, 0.01),
    Operation("experts", "max", False, False, 3, 0, 2**10, 0.002),
    Operation("experts", "dot_general", False, True, 3, 5_000_000, 2**20, 0.008),
    Operation("", "copy", True, False, 1, 0, 2**11, 0.003),
)
SCOPES = """\
TIME BY SCOPE, without collectives
scope       pass        mostly          work  accessed   time  share
experts     forward     dot_general  5 MFLOP     1 MiB  12 ms   24 %
experts     recomputed  dot_general  5 MFLOP     1 MiB   8 ms   16 %
(no scope)  backward    copy                     2 KiB   3 ms    6 %
"""


def test_work_by_scope_and_pass():
    cost = dataclasses.replace(REPORT.cost, step_seconds=0.05)
    text = dataclasses.replace(REPORT, cost=cost, operations=OPERATIONS).text()
    assert SCOPES in text
    untimed = [dataclasses.replace(one, seconds=None) for one in OPERATIONS]
    text = dataclasses.replace(PLAIN, operations=tuple(untimed)).text()
    assert (
        "WORK BY SCOPE, without collectives\nscope       pass        mostly          work" in text
    )
    assert "time" not in text.partition("WORK BY SCOPE")[2]


def test_many_scopes_are_counted():
    many = [Operation(f"s{i:02}", "add", False, False, 1, 0, 99 - i, 0.001) for i in range(23)]
    text = dataclasses.replace(REPORT, operations=tuple(many)).text()
    assert "s19" in text
    assert "s20" not in text
    assert "… and 3 more, smaller: report.json()" in text


def test_memory_above_the_limit_is_said():
    memory = dataclasses.replace(REPORT.memory, limit=128 * 2**20)
    text = dataclasses.replace(REPORT, memory=memory).text()
    assert "MEMORY of a device: 232 MiB of 128 MiB (181 %); IT DOES NOT FIT\n" in text


def test_thousands_of_values_are_grouped_and_the_rest_is_counted():
    small = [
        dataclasses.replace(REPORT.values[0], name=f"scale_{'abc'[i % 3]}[{i}]", bytes_per_device=i)
        for i in range(3000)
    ]
    text = dataclasses.replace(REPORT, values=(*small, *REPORT.values)).text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert "… and 2,966 more, smaller and as asked: report.json()" in lines
    assert len(lines) < 70
    assert "VALUES: 3,008, 2 otherwise than asked" in lines
    scales = [line.split()[1] for line in lines if "scale" in line]
    assert (scales[0], scales[-1], len(scales)) == ("scale_b[2965]", "scale_c[2999]", 35)
    assert sum(line.startswith("!  argument") for line in lines) == 1


def test_alike_collectives_are_one_line_and_the_rest_is_counted():
    one = REPORT.exchanges[1]
    layers = [dataclasses.replace(one, source=Source("layers.py", 100 + i // 2)) for i in range(80)]
    lines = dataclasses.replace(REPORT, exchanges=tuple(layers)).text().splitlines()
    rows = [line for line in lines if "all-to-all  data" in line]
    assert len(rows) == 30
    assert rows[0].split()[3:11] == ["4", "KiB", "24", "600", "µs", "24", "%", "layers.py:100"]
    assert "… and 20 more: report.json()" in lines


def test_many_surprises_are_counted():
    one = REPORT.exchanges[0]
    many = [dataclasses.replace(one, surprise=f"surprise {i}") for i in range(25)]
    text = dataclasses.replace(REPORT, exchanges=tuple(many), values=()).text()
    assert "SURPRISES (25)\n  1. surprise 0\n" in text
    assert "  20. surprise 19\n  … and 5 more: report.json()\n" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1536, "1.5 KiB"), (2**34, "16 GiB")],
)
def test_size(count, text):
    assert quantities.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.0, "0 ns"), (1.25e-3, "1.25 ms"), (0.9999e-3, "1000 µs"), (90.0, "90 s")],
)
def test_duration(seconds, text):
    assert quantities.duration(seconds) == text


def test_number_percent_and_plural():
    assert quantities.number(1.25e12, "FLOP") == "1.25 TFLOP"
    assert quantities.number(41.67) == "41.7"
    assert [quantities.percent(x) for x in (None, 0.0, 0.001, 0.125, 1.0)] == [
        "–", "0 %", "<1 %", "12 %", "100 %",
    ]  # fmt: skip
    assert [quantities.plural(n, "value") for n in (0, 1, 1200)] == [
        "0 values", "1 value", "1,200 values",
    ]  # fmt: skip


def test_place_has_as_many_folders_as_wanted():
    source = Source("/a/b/c.py", 7)
    assert [quantities.place(source, n) for n in (0, 1)] == ["c.py:7", "b/c.py:7"]
    assert quantities.place(None) == ""


def test_long_cells_lose_their_middle_and_empty_columns_go():
    columns = (Column("name", shrinks=1), Column("none"), Column("size", right=True))
    rows = [["a" * 10 + "b" * 30, "", "1 B"], ["c", "", "12 B"]]
    assert table(columns, rows, width=24).splitlines() == [
        "name                size",
        "aaaaaaaaa…bbbbbbbb   1 B",
        "c                   12 B",
    ]
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdef", 5) == "ab…ef"


MESH = {"data": 2, "expert": 4}


@pytest.mark.parametrize(
    ("shape", "sharding", "found"),
    [
        ("f32[8,64]", "P('expert')", [Cut(8, ("expert",), 4), Cut(64, (), 1)]),
        ("f32[8]", "P(('data', 'expert'))", [Cut(8, ("data", "expert"), 8)]),
        ("f32[6]", "P('expert:(2)2')", [Cut(6, ("expert:(2)2",), 2)]),
        ("f32[8]", "P()", [Cut(8, (), 1)]),
        ("f32[]", "P()", []),
        ("f32[8]", "P('model')", None),
        ("f32[8]", "P(None, 'data')", None),
        ("f32[8]", "P(UNCONSTRAINED)", None),
        ("f32[8]", "P(unreduced={'data'})", None),
        ("f32[8]", "P('data'", None),
        ("f32[8]", "{maximal device=0}", None),
        ("f32[8]", None, None),
        ("key", "P()", None),
    ],
)
def test_cuts(shape, sharding, found):
    assert cuts(shape, sharding, MESH) == found


def test_copies_are_the_devices_that_hold_the_same():
    found = cuts("f32[8,64]", "P('expert')", MESH)
    assert found is not None
    assert copies(found, MESH) == 2


def test_shardings_are_compared_by_what_they_say():
    assert same("P('data', None)", "P('data')")
    assert same("{weird}", "{weird}")
    assert not same("P('data')", "P(None, 'data')")
    assert not same(None, None)
    assert not same("P()", None)


def test_brief():
    assert brief("P(('data', 'expert'), None)", "f32[8,2,2]") == "[data+expert,-,-]"
    assert brief("P(None)", "f32[8]") == "whole"
    assert brief("{maximal device=0}", "f32[8]") == "{maximal device=0}"
