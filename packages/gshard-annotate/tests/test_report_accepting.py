"""Surprises that the user accepts, in reports and their differences."""

import dataclasses
import pathlib

import pytest

from gshard_annotate.inspector import diff
from gshard_annotate.inspector.report import Report

REPORT = Report.from_json(pathlib.Path(__file__).with_name("report.json").read_text("utf-8"))
GATHER, WO_0, WO_1 = REPORT.surprises


def surprising(*sentences):
    """A report whose exchanges have these surprises."""
    one = REPORT.exchanges[0]
    exchanges = (dataclasses.replace(one, surprise=sentence) for sentence in sentences)
    return dataclasses.replace(REPORT, exchanges=tuple(exchanges), values=())


def said(report):
    return report.text().split("\n\n")[1]


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        (["wi is split on 'expert'"], [WO_0, WO_1]),
        (["all-gather*used replicated"], [WO_0, WO_1]),
        (["params['layers'][0]['wo']"], [GATHER, WO_1]),
        (["params['layers'][*]['wo'] f32[64,512,512]"], [GATHER]),
        (["all-gather", "asked for P('expert', None, None)"], []),
    ],
)
def test_a_part_of_a_sentence_accepts_it(patterns, left):
    report = REPORT.accepting(*patterns)
    assert report.surprises == left
    assert sorted(left + report.accepted) == sorted(REPORT.surprises)
    assert report.notes == REPORT.notes


def test_what_is_accepted_is_counted_and_listed_on_the_page():
    some, all_of_them = REPORT.accepting("all-gather"), REPORT.accepting("all-gather", "'wo'")
    assert said(some).startswith("SURPRISES (2), and 1 that you accept\n")
    assert said(all_of_them) == "NO SURPRISES but 3 that you accept"
    page = all_of_them.html()
    assert "What was compiled is what was asked for or accepted." in page
    assert "<summary>3 accepted</summary><ul><li>all-gather of 64 MiB at layers.py:88: " in page


def test_accepted_exchanges_stand_among_the_others_by_bytes():
    kinds = [one.collective.kind for one in REPORT.accepting("all-gather").exchanges]
    assert kinds == [one.collective.kind for one in REPORT.exchanges]
    small = dataclasses.replace(REPORT.exchanges[-1], surprise="all-reduce: why?")
    report = dataclasses.replace(REPORT, exchanges=(small, *REPORT.exchanges[:-1]))
    assert report.accepting("why?").exchanges[0].collective.kind == "all-gather"


def test_a_pattern_that_fits_nothing_is_noted():
    report = REPORT.accepting("all-gather", "all-gathre")
    note = "no surprise fits what is accepted: 'all-gathre'"
    assert report.notes == (*REPORT.notes, note)
    assert report.text().endswith(note)
    assert diff(REPORT, report).text().endswith(f"NEW NOTES\n  1. {note}")


@pytest.mark.parametrize("pattern", ["", "*", " * "])
def test_a_pattern_that_fits_everything_is_refused(refused, pattern):
    with refused(
        f"accept: pattern {pattern!r} would accept every surprise; give a part of the sentence"
    ):
        REPORT.accepting(pattern)


def test_what_is_no_pattern(refused):
    patterns: list = [3]
    with refused("accept: 3 (int) is no pattern; give a part of the sentence", TypeError):
        REPORT.accepting(*patterns)


def test_surprises_of_another_size_are_neither_new_nor_gone():
    before = surprising(
        "all-gather of 8 KiB at a.py:3: w is split", "all-gather of 2 KiB at a.py:5: v is split"
    )
    after = surprising(
        "all-gather of 16 KiB at a.py:4: w is split", "all-gather of 2 KiB at a.py:9: v is split"
    )
    found = diff(before, after).surprises
    assert found == ([], [], ["all-gather of 16 KiB at a.py:4: w is split (was 8 KiB)"])
    assert "SURPRISES OF ANOTHER SIZE (1)\n  1. all-gather of 16 KiB" in diff(before, after).text()
    assert not any(diff(before, before).surprises)


def test_one_more_of_the_same_is_new():
    gather = "all-gather of 8 KiB at a.py:3: w is split"
    before, after = surprising(gather), surprising(gather, gather, gather)
    assert diff(before, after).surprises == ([gather, gather], [], [])
    assert f"NEW SURPRISES (2)\n  1. {gather} (2 times)\n" in diff(before, after).text()


def test_a_surprise_that_is_new_makes_a_difference():
    before, after = surprising(""), surprising("all-gather of 8 KiB at a.py:3: w is split")
    assert diff(before, after)
    assert not diff(after, after)


def test_layers_that_change_alike_are_one_row():
    gather, there, *_ = REPORT.exchanges
    layers = [
        dataclasses.replace(
            there, collective=dataclasses.replace(there.collective, op_name=f"layer{i}")
        )
        for i in range(4)
    ]
    larger = [
        dataclasses.replace(one, collective=dataclasses.replace(one.collective, bytes=8192))
        for one in layers
    ]
    value = REPORT.values[0]
    wide = [
        dataclasses.replace(value, name=f"params['layers'][{i}]['wi']", compiled="P()")
        for i in range(4)
    ]
    narrow = [dataclasses.replace(one, compiled=value.compiled) for one in wide]
    before = dataclasses.replace(REPORT, exchanges=(gather, *layers), values=tuple(narrow))
    after = dataclasses.replace(REPORT, exchanges=(gather, *larger), values=tuple(wide))
    parts = diff(before, after).text().split("\n\n")
    collectives = next(part for part in parts if part.startswith("COLLECTIVES"))
    title, _, *rows = collectives.splitlines()
    assert (title, len(rows)) == ("COLLECTIVES: 4 changed", 1)
    assert "48 × 4 KiB  48 × 8 KiB" in rows[0]
    values = next(part for part in parts if part.startswith("VALUES"))
    title, _, *rows = values.splitlines()
    assert (title, len(rows)) == ("VALUES: 4 changed", 1)
    assert "4 × params['layers'][*]['wi']" in rows[0]
    page = diff(before, after).html()
    assert page.count("<td>changed</td>") == 2
