import dataclasses
import itertools
import pathlib
import re
from html.parser import HTMLParser

from gshard_annotate.inspector.page_figures import cut_drawing, memory_bar, mesh_drawing, step_bar
from gshard_annotate.inspector.report import Operation, Report, Source

REPORT = Report.from_json(pathlib.Path(__file__).with_name("report.json").read_text("utf-8"))
_VOID = {"wbr", "meta", "link", "input", "br", "rect"}


class _Elements(HTMLParser):
    """Every element that opens, with its attributes; fails when one does not close."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def elements(text):
    return _Elements(text).found


def test_page_is_well_formed_with_headings_in_order_and_links_that_lead_somewhere():
    found = elements(REPORT.html())
    levels = [int(tag[1]) for tag, _ in found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    anchors = [attrs["id"] for _, attrs in found if "id" in attrs]
    assert len(anchors) == len(set(anchors))
    links = [attrs["href"] for tag, attrs in found if tag == "a"]
    assert {"#collective-0", "#value-1"} <= set(links)
    assert {link.removeprefix("#") for link in links} <= set(anchors)


def test_page_names_nothing_outside_itself():
    text = REPORT.html()
    assert "default-src 'none'" in text
    assert re.findall(r"(?:https?:)?//[a-z]", re.sub(r"(?m)^ *//.*", "", text)) == []


def test_texts_of_the_program_are_escaped():
    evil = "<script>alert('x')</script>"
    source = Source(f"/home/{evil}.py", 3, evil)
    exchange, value = REPORT.exchanges[0], REPORT.values[1]
    made = dataclasses.replace(exchange.collective, kind=evil, shape=evil, op_name=evil)
    report = dataclasses.replace(
        REPORT,
        title=evil,
        platform=evil,
        chip=evil,
        mesh={evil: 2},
        notes=(evil,),
        exchanges=(
            dataclasses.replace(
                exchange, collective=made, mesh_axes=(evil,), source=source, cause=evil,
                surprise=evil,
            ),
        ),
        values=(
            dataclasses.replace(
                value, role=evil, name=evil, shape=evil, asked=evil, compiled=evil, note=evil,
                source=source,
            ),
        ),
        operations=(Operation(evil, evil, False, False, 1, 1, 1, 0.5),),
    )  # fmt: skip
    from gshard_annotate.inspector.differences import diff

    text = diff(REPORT, report).html()
    assert evil.lower() not in text.lower()
    assert [tag for tag, _ in elements(text)].count("script") == 1


def test_rows_that_surprise_say_so_in_words():
    rows = re.findall(r'<tr id="([\w-]+)" class="flagged">.*?</tr>', REPORT.html(), re.DOTALL)
    assert rows == ["collective-0", "value-1", "value-3"]
    assert REPORT.html().count(">surprise</span>") == 3


def test_page_without_surprises_collectives_values_and_chip():
    report = dataclasses.replace(
        REPORT,
        chip=None,
        values=(),
        exchanges=(),
        memory=dataclasses.replace(REPORT.memory, limit=None),
        cost=dataclasses.replace(REPORT.cost, step_seconds=None, collective_seconds=None),
    )
    text = report.html()
    assert "<h2>No surprises</h2>" in text
    assert "<h2>No collectives</h2>" in text
    assert "<h2>No values</h2>" in text
    assert "Estimated step," not in text
    elements(text)


def test_work_by_scope_is_a_table():
    operations = tuple(
        Operation(scope, "dot_general", False, False, 1, 7, 5, seconds)
        for scope, seconds in (("experts", 0.5), ("gating", 0.25))
    )
    report = dataclasses.replace(REPORT, operations=operations)
    assert re.findall(r'<tr id="(scope-\d)"><td><code>(\w+)</code>', report.html()) == [
        ("scope-0", "experts"),
        ("scope-1", "gating"),
    ]
    assert '<a href="#scopes">' in report.html()
    assert 'id="scopes"' not in REPORT.html()
    assert 'href="#scopes"' not in REPORT.html()


def test_many_surprises_are_folded():
    one = REPORT.exchanges[0]
    many = tuple(dataclasses.replace(one, surprise=f"surprise {i}") for i in range(25))
    text = dataclasses.replace(REPORT, exchanges=many, values=()).html()
    assert "<h2>25 surprises</h2>" in text
    assert '<summary>5 more</summary><ol class="surprises" style="--before:20">' in text


def test_cut_of_a_value():
    drawn = cut_drawing("f32[8,64]", "P('expert')", {"data": 2, "expert": 4})
    assert drawn == (
        '<span class="cut"><span class="dim"><i style="--n:4"></i>8 ÷ 4<small>expert</small></span>'
        '<span class="dim"><i style="--n:1"></i>64</span>'
        '<span class="copies">2 copies</span></span>'
    )
    assert cut_drawing("f32[8]", "{maximal device=0}", {"data": 2}) == ""


def test_mesh_drawing_of_one_three_and_many():
    assert "<b>data</b> 8" in mesh_drawing({"data": 8})
    three = mesh_drawing({"slice": 2, "data": 3, "expert": 4})
    assert three.count("<svg") == 2
    assert 'slice</b> 2 <span class="soft">blocks</span>' in three
    assert "shows a part" not in three
    assert "shows a part" in mesh_drawing({"data": 2048})
    assert "<b>device</b> 1" in mesh_drawing({})


def test_step_bar_has_the_work_and_each_kind_of_collective():
    text = step_bar(REPORT)
    assert re.findall(
        r'rect class="([\w-]+)" height="100%" x="([\d.]+)%" width="([\d.]+)%"', text
    ) == [
        ("work", "0.000", "27.960"),
        ("all-gather", "27.960", "48.000"),
        ("all-to-all", "75.960", "24.000"),
        ("all-reduce", "99.960", "0.040"),
    ]
    assert "compute alone takes 24.4 µs and memory alone 667 µs" in text
    assert "memory is the limit" in text


def test_memory_bar_counts_donated_results_once_and_marks_the_limit():
    memory = dataclasses.replace(
        REPORT.memory,
        arguments=600,
        results=500,
        aliased=400,
        temporaries=300,
        peak=1000,
        limit=800,
    )
    text = memory_bar(memory)
    assert re.findall(
        r'class="([\w-]+)" (?:height="100%" )?x="([\d.]+)%" width="([\d.]+)', text
    ) == [
        ("arguments", "0.000", "60.000"),
        ("results", "60.000", "10.000"),
        ("temporaries", "70.000", "30.000"),
        ("limit", "80.000", "2"),
    ]
    assert "Too much by 200 B: it will not fit." in text


def test_memory_bar_shows_what_is_used_when_the_limit_is_far_away():
    text = memory_bar(dataclasses.replace(REPORT.memory, limit=2**40))
    assert 'class="arguments" height="100%" x="0.000%" width="68.965%"' in text
    assert "The bar shows what is used; 1 TiB free." in text
