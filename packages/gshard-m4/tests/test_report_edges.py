"""Reports of little, of much, and of what is not usually computed: each is a page all the same."""

import re
from html.parser import HTMLParser

import pytest

from gshard_m4.evaluation.experts import Experts
from gshard_m4.evaluation.scores import Metric
from gshard_m4.evaluation.translations import Split, Task, Translation
from gshard_m4.languages import LANGUAGES, find
from gshard_m4.report import comparison_page, page

TER = Metric("ter", "TER", "tok:tercom", higher_is_better=False)
COMET = Metric("comet", "COMET", "wmt22", merged=True)
VOID = {"meta", "link", "input", "br", "wbr"}


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def translations(codes, experts=None, said="rose"):
    row = Translation(0, "Rose", "a rose", said, False)
    tasks = tuple(Task(f"m4_x_{code}_en", find(code), (row,)) for code in codes)
    return Split("test", {}, 7, tasks, experts)


@pytest.mark.parametrize(
    ("languages", "fields"),
    [
        ({"de": {}}, {}),
        ({"de": {"train_rows": 0}, "fr": {"train_rows": 0}}, {}),
        ({"de": {"train_rows": 5}, "fr": {"train_rows": 5}, "yo": {"train_rows": 5}}, {}),
        ({"de": {}, "fr": {}}, {"metrics": ()}),
        ({"de": {"ter": 40.0}, "fr": {"ter": 140.0}}, {"metrics": (TER,)}),
        (
            {"de": {"merged": {"comet": 0.8}}, "fr": {"merged": {"comet": -0.2}}},
            {"metrics": (COMET,)},
        ),
        ({"de": {"few_phrases": True}}, {}),
        ({"de": {"chrfpp": None}, "fr": {"chrfpp": 3.0}}, {}),
        (
            {
                "de": {
                    "exact": 1.0,
                    "short": 1.0,
                    "chrfpp": 100.0,
                    "bleu": 0.0,
                    "bleu_four_grams": 0,
                }
            },
            {},
        ),
        (
            {"de": {"copied": None, "truncated": None, "wrong_language": None, "identified": None}},
            {},
        ),
    ],
)
def test_page_is_well_formed(make_scores, languages, fields):
    scores = make_scores(languages, **fields)
    text = page(scores, [translations(languages)])
    Tags(text)
    assert (
        "nan" not in re.sub("<script>.*</script>|<style>.*</style>", "", text, flags=re.S).lower()
    )
    Tags(comparison_page([scores, scores]))


def test_lowest_is_best_where_lower_is_better(make_scores):
    scores = make_scores({"de": {"ter": 40.0}, "fr": {"ter": 140.0}}, metrics=(TER,))
    text = page(scores, [translations(["de", "fr"])])
    rows = re.findall(r'<tr data-code="(\w+)"', text)
    assert rows == ["de", "fr"]
    assert "Lowest TER" in text
    assert 'data-ascending aria-sort="ascending">TER</th>' in text


def test_scores_up_to_one_have_three_decimals(make_scores):
    languages = {"de": {"merged": {"comet": 0.81251}}, "fr": {"merged": {"comet": -0.2}}}
    text = page(make_scores(languages, metrics=(COMET,)), [translations(languages)])
    assert ">0.813</td>" in text
    assert '<dd class="value">0.306</dd>' in text


def test_experts_come_by_size_with_names(make_scores):
    shares = {"yo": ((0.2, 0.8),), "zh_Hant": ((1.0, 0.0),), "de": ((0.5, 0.5),)}
    experts = Experts(("encoder/<1>",), 2, shares)
    scores = make_scores({"de": {"train_rows": 9}, "yo": {"train_rows": 90}, "fr": {}})
    text = page(scores, [translations(["de", "yo", "fr"], experts)])
    Tags(text)
    table = text[text.index("Numbers of encoder/&lt;1&gt;") :]
    names = re.findall('<th scope="row">([^<]*)</th>', table)
    assert names == ["Yoruba", "German"]
    assert (
        "Languages are in order of training text, the most on top. Experts were not recorded for "
        "French. Recorded but not scored here, and so not drawn: Chinese"
    ) in text


def test_experts_of_other_languages_only_are_named(make_scores):
    experts = Experts(("one",), 2, {"yo": ((0.2, 0.8),)})
    text = page(make_scores({"de": {}}), [translations(["de"], experts)])
    Tags(text)
    assert "Recorded but not scored here, and so not drawn: Yoruba." in text
    assert "data:image/png" not in text


@pytest.mark.parametrize(
    "said", ["</script><script>alert(1)</script>", "${css} $$ {{x}}", "&lt;", "\u202e"]
)
def test_hostile_text_stays_text(make_scores, said):
    text = page(make_scores({"de": {}}, name=said, command=said), [translations(["de"], said=said)])
    Tags(text)
    assert text.count("<script>") == 1
    if "$" in said:
        assert said in text


def test_hundred_and_two_languages_in_one_small_page(make_scores):
    codes = [language.code for language in LANGUAGES]
    sizes = {code: {"train_rows": 10 * (place + 1)} for place, code in enumerate(codes)}
    text = page(make_scores(sizes), [translations(codes)])
    assert len(text) < 500_000
    assert text.count('class="name" transform=') == 4 * 102
