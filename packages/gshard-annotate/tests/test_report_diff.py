import dataclasses
import json
import pathlib

import pytest

from gshard_annotate.inspector.differences import diff
from gshard_annotate.inspector.report import Report, Source

BEFORE = Report.from_json(pathlib.Path(__file__).with_name("report.json").read_text("utf-8"))


def changed(what, **parts):
    return dataclasses.replace(what, **parts)


def with_exchanges(*exchanges):
    return changed(BEFORE, exchanges=exchanges)


def moved(exchange, lines):
    line = exchange.source.line + lines
    cause = exchange.cause.replace(f":{exchange.source.line}", f":{line}")
    return changed(exchange, source=changed(exchange.source, line=line), cause=cause)


def said(difference):
    return [
        (one.what, one.known.collective.kind, one.known.collective.bytes)
        for one in difference.exchanges
    ]


def after():
    """The weight is used split: its gather is gone, one exchange runs twice as often."""
    _gather, there, back, reduce = BEFORE.exchanges
    wi, wo, *others = BEFORE.values
    return changed(
        BEFORE,
        exchanges=(
            changed(moved(there, 3), times=24),
            moved(back, 3),
            reduce,
            changed(reduce, mesh_axes=("data",), group_size=2),
        ),
        values=(wi, changed(wo, compiled=wo.asked, bytes_per_device=2**24, note=""), *others),
        memory=changed(BEFORE.memory, peak=184 * 2**20),
        cost=changed(BEFORE.cost, step_seconds=1.3e-3),
    )


TEXT = """\
forward: before and after

SURPRISES GONE (2)
  1. all-gather of 64 MiB at layers.py:88: wi is split on 'expert' but used replicated
  2. params['layers'][0]['wo'] f32[64,512,512]: asked for P('expert', None, None), compiled as P()

COLLECTIVES: 1 added, 1 removed, 1 changed
   kind        mesh axes         before       after  source        cause
~  all-to-all  data, expert  12 × 4 KiB  24 × 4 KiB  layers.py:43  annotate[expert,-,embed]
+  all-reduce  data                   –         4 B
-  all-gather  expert            64 MiB           –  layers.py:88

VALUES: 1 changed
   role      name                       before                     after
~  argument  params['layers'][0]['wo']  whole, asked [expert,-,-]  [expert,-,-]

a device, a call    before    after
all-gather          64 MiB      0 B
all-reduce             4 B      8 B
all-to-all          96 KiB  144 KiB
all collectives   64.1 MiB  144 KiB
peak of memory     232 MiB  184 MiB
estimated step      2.5 ms   1.3 ms
"""


def test_text():
    assert diff(BEFORE, after()).text() == str(diff(BEFORE, after())) == TEXT.rstrip("\n")


def test_no_difference_is_said_plainly():
    same = diff(BEFORE, BEFORE)
    assert same.text() == "forward: before and after\n\nNO DIFFERENCE"
    assert not same
    assert json.loads(same.json())["differs"] is False


def test_lines_that_move_and_time_to_compile_are_no_difference():
    gather, there, back, reduce = BEFORE.exchanges
    exchanges = (moved(gather, 5), moved(there, 5), moved(back, 5), reduce)
    assert not diff(BEFORE, changed(BEFORE, exchanges=exchanges, compile_seconds=9.0))
    noted = changed(gather, surprise=gather.surprise.replace(":88", ":93"))
    text = diff(BEFORE, with_exchanges(noted, there, back, reduce)).text()
    assert text.endswith("NO DIFFERENCE")


def test_whole_dimensions_at_the_end_of_a_sharding_are_no_difference():
    wi, *others = BEFORE.values
    same = changed(wi, asked="P('expert')", compiled="P('expert')")
    assert not diff(BEFORE, changed(BEFORE, values=(same, *others)))


def test_collectives_are_matched_by_line_then_by_operation():
    _, there, *_ = BEFORE.exchanges
    twins = with_exchanges(there, moved(there, 1))
    again = changed(there, collective=changed(there.collective, bytes=8192))
    difference = diff(twins, with_exchanges(again, moved(there, 1)))
    (one,) = difference.exchanges
    assert (one.before, one.after) == (there, again)


def test_a_collective_of_another_kind_or_over_other_axes_is_another_one():
    _, there, *_ = BEFORE.exchanges
    gather = changed(there, collective=changed(there.collective, kind="all-gather"))
    narrow = changed(there, mesh_axes=("expert",), group_size=4)
    assert said(diff(with_exchanges(there), with_exchanges(gather))) == [
        ("added", "all-gather", 4096),
        ("removed", "all-to-all", 4096),
    ]
    assert said(diff(with_exchanges(there), with_exchanges(narrow))) == [
        ("added", "all-to-all", 4096),
        ("removed", "all-to-all", 4096),
    ]


def test_a_collective_over_an_axis_that_grew_is_the_same():
    gather, *_ = BEFORE.exchanges
    grown = changed(gather, group_size=16, collective=changed(gather.collective, bytes=2**25))
    assert said(diff(with_exchanges(gather), with_exchanges(grown))) == [
        ("changed", "all-gather", 2**25)
    ]


def test_a_function_that_was_edited_keeps_its_collectives():
    _, there, *_ = BEFORE.exchanges
    renamed = changed(moved(there, 9), collective=changed(there.collective, op_name="jit(g)/dot"))
    assert not diff(with_exchanges(there), with_exchanges(renamed))


def test_collectives_without_source_and_operation_are_matched_by_what_they_do():
    bare = changed(
        BEFORE.exchanges[3], collective=changed(BEFORE.exchanges[3].collective, op_name="")
    )
    assert not diff(with_exchanges(bare, bare), with_exchanges(bare, bare))
    assert said(diff(with_exchanges(bare, bare), with_exchanges(bare))) == [
        ("removed", "all-reduce", 4)
    ]


def test_values_added_removed_and_of_another_shape():
    wi, wo, *_ = BEFORE.values
    larger = changed(wi, shape="f32[64,512,1024]")
    new = changed(wo, name="bias", source=Source("layers.py", 5))
    difference = diff(changed(BEFORE, values=(wi, wo)), changed(BEFORE, values=(larger, new)))
    assert [(one.what, one.known.name) for one in difference.values] == [
        ("changed", "params['layers'][0]['wi']"),
        ("added", "bias"),
        ("removed", "params['layers'][0]['wo']"),
    ]
    title, _, row, *_ = difference.text().split("VALUES: ")[1].splitlines()
    assert title == "1 added, 1 removed, 1 changed"
    assert " ".join(row.split()) == (
        "~ argument params['layers'][0]['wi'] f32[64,512,512] [expert,-,-] "
        "f32[64,512,1024] [expert,-,-]"
    )


@pytest.mark.parametrize(
    ("parts", "warning"),
    [
        ({"title": "step"}, "the functions differ: forward before, step after"),
        (
            {"mesh": {"data": 8}},
            "the meshes differ: data=2, expert=4 before, data=8 after",
        ),
        ({"platform": "tpu"}, "the platforms differ: cpu before, tpu after"),
        (
            {"chip": None},
            "the chips differ: TPU v3 core before, none after; times of the two are not comparable",
        ),
    ],
)
def test_reports_that_are_not_comparable_are_warned_of(parts, warning):
    difference = diff(BEFORE, changed(BEFORE, **parts))
    assert difference.warnings == (warning,)
    assert f"\n\nWARNING: {warning}\n" in difference.text()
    assert f'<p class="note">Warning: {warning}.</p>' in difference.html()


def test_many_changes_are_counted():
    _, there, *_ = BEFORE.exchanges
    many = [changed(moved(there, i), cause=f"split[{i}]") for i in range(50)]
    lines = diff(with_exchanges(), with_exchanges(*many)).text().splitlines()
    assert "COLLECTIVES: 50 added" in lines
    assert "… and 10 more: diff.json()" in lines
    assert max(map(len, lines)) <= 120


def test_json_has_both_sides_of_each_change():
    form = json.loads(diff(BEFORE, after()).json())
    assert (form["format"], form["version"], form["differs"]) == ("gshard-annotate diff", 1, True)
    assert [
        (one["what"], one["after"] and one["after"]["times"]) for one in form["collectives"]
    ] == [
        ("changed", 24),
        ("added", 1),
        ("removed", None),
    ]
    assert form["before"]["bytes_by_kind"] == {
        "all-gather": 2**26, "all-reduce": 4, "all-to-all": 24 * 4096,
    }  # fmt: skip
    assert form["after"]["memory"]["peak"] == 184 * 2**20


def test_page_begins_with_the_changes(tmp_path):
    path = diff(BEFORE, after()).write_html(tmp_path / "diff.html")
    text = path.read_text("utf-8")
    assert text.index("<h2>What changed</h2>") < text.index('id="surprises"')
    assert "<td>removed</td><td>all-gather</td><td>expert</td><td>64 MiB</td><td>–</td>" in text
    assert "<p>No difference.</p>" in diff(BEFORE, BEFORE).html()
