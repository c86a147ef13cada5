import re
from html.parser import HTMLParser

import pytest

from gshard_m4.evaluation.evaluate import evaluate
from gshard_m4.evaluation.translations import read_translations
from gshard_m4.report import page
from gshard_m4.report.examples import spread

VOID = {"meta", "link", "input", "br", "wbr"}


class Page(HTMLParser):
    """Elements as (tag, attributes, text); fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.ids = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        self.ids.extend(value for name, value in attrs if name == "id")
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, _, text in self.open:
            text.append(data)

    def texts(self, tag, **attributes):
        return [
            "".join(text)
            for name, found, text in self.elements
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]


@pytest.fixture
def text(write_split):
    rows = {
        "de": [("Hund & Katze", "dog & cat", "dog & cat"), ("<b>", "b<script>", "<script>x")],
        "ar": [("كلب", "dog", "كلب"), ("وردة", "rose", "", True)],
        "yi": [("הונט", "dog", "dog")],
        "ja": [("赤い花", "a red flower in a vase", "a red flower in the sun")] * 3,
    }
    write_split("unseen", {"m4_sample_ja_en": rows["ja"]}, checkpoint_step=1000)
    folder = write_split(
        "test",
        {f"m4_sample_{code}_en": found for code, found in rows.items()},
        decoder={"beam_size": 4, "length_penalty": 0.6, "note": "<i>"},
    )
    splits = read_translations(folder.parent)
    scores = evaluate(splits, min_phrases=2)
    return page(scores, splits, command="gshard-m4 evaluate --translations='<t>'")


def test_page_is_well_formed_and_ids_are_unique(text):
    found = Page(text)
    assert len(set(found.ids)) == len(found.ids)
    links = {attributes["href"] for tag, attributes, _ in found.elements if tag == "a"}
    pictures = {each for each in found.ids if re.match("p[0-9]", each)}
    assert links == {f"#{each}" for each in found.ids if each != "find" and each not in pictures}
    named = [attributes["aria-labelledby"].split() for tag, attributes, _ in found.elements
             if tag == "svg"]  # fmt: skip
    assert {each for both in named for each in both} == pictures


def test_page_refers_to_nothing_outside_itself(text):
    assert not re.search(r"https?:|src=|@import|url\(", text)
    assert "default-src 'none'" in text


def test_texts_are_escaped(text):
    assert "<script>x" not in text
    assert "&lt;script&gt;x" in text
    assert "note = &lt;i&gt;" in text
    assert "--translations=&#x27;&lt;t&gt;&#x27;" in text


def test_sources_have_their_language_and_direction(text):
    found = Page(text)
    assert set(found.texts("td", lang="ar", dir="rtl")) == {"كلب", "وردة"}
    assert set(found.texts("td", lang="yi", dir="rtl")) == {"הונט"}
    assert set(found.texts("td", lang="ja", dir="ltr")) == {"赤い花"}
    assert not found.texts("td", lang="ar", dir="ltr")


def test_translations_are_marked(text):
    said = Page(text).texts("td", **{"class": "prediction"})
    assert "dog & cat✓ exact" in said
    assert "كلبcopied" in said
    assert "(empty)cut off" in said


def test_headline_and_bleu_remark(text):
    found = Page(text)
    assert found.texts("h1") == ["4 languages into English"]
    assert found.texts("h2")[:2] == ["Pairs", "Unseen English"]
    pairs, unseen = text.split('id="set-unseen"')
    assert "references are shorter than the four tokens" in pairs
    assert "references are shorter than the four tokens" not in unseen
    assert "Fewer than 2 phrases: scored all the same, averaged apart" in pairs
    assert "decoded at different steps (1,000, 2,050)" in text


def test_how_it_was_made(text):
    for expected in ("tok:13a|smooth:exp", "nc:6|nw:2", "beam_size = 4", "checkpoint step = 2050"):
        assert expected in text
    assert re.search(r"gshard-m4 \d+\.\d+.*, sacrebleu 2\.", text)


def test_undefined_bleu_is_a_dash(text):
    row = re.search(r'<tr data-code="yi".*?</tr>', text)
    assert row is not None
    assert Page(row[0]).texts("td")[2:6] == ["1", "100.0", "–", "100.0"]


def test_spread_takes_both_ends():
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread("abc", 8) == ["a", "b", "c"]
