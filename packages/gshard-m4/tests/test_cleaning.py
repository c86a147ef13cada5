import pytest
from hypothesis import given
from hypothesis import strategies as st

from gshard_m4 import splits
from gshard_m4.preparing import cleaning
from gshard_m4.preparing.cleaning import REASONS, REPAIRS, Cleaning, fault, repaired
from gshard_m4.preparing.keys import keys, keys_as_cleaned

HTML, INVISIBLE, FORM = REPAIRS


@pytest.mark.parametrize(
    ("text", "expected", "repairs"),
    [
        ("Plain text.", "Plain text.", set()),
        ("  two   spaces\tand a tab ", "two spaces and a tab", {FORM}),
        ("a\u00a0b\u3000c\u2028d\x85e", "a b c d e", {FORM}),
        ("u\u0308ber", "über", {FORM}),
        ("<b>bold</b> &amp; <br/>more", "bold & more", {HTML, FORM}),
        ("R&D, a < b, 5 <6", "R&D, a < b, 5 <6", set()),
        ("caf&eacute; &#228; &#x4e2d;", "café ä 中", {HTML}),
        ("Press <Ctrl>+<C>, <B>", "Press <Ctrl>+<C>, <B>", set()),
        ("List<String> <source> <title>", "List<String> <source> <title>", set()),
        ("<john@example.com>", "<john@example.com>", set()),
        ("if a <b and c> d", "if a <b and c> d", set()),
        ("?a=1&amp;b=2&copy=3 &notit;", "?a=1&b=2&copy=3 &notit;", {HTML}),
        ("a<BR>b<hr noshade><a href=x>c</A>", "a b c", {HTML, FORM}),
        ("<guilabel>Save</guilabel><x id='1'/> <foo/>", "Save", {HTML, FORM}),
        ("a&lt;br&gt;b &amp;amp;quot;", 'a b "', {HTML}),
        ("\u200bកម្ពុជា\u200b", "កម្ពុជា", {INVISIBLE}),
        ("\u202bשלום\u202c\ufeff", "שלום", {INVISIBLE}),
        ("می\u200cخواهم", "می\u200cخواهم", set()),
    ],
)
def test_repairs(text, expected, repairs):
    done = set()
    assert repaired(text, done) == expected
    assert done == repairs


PIECES = ["<", ">", "&", ";", "/", "amp", "lt", "gt", "#38", "#60", "br", "b", "x", "=", '"', "!--",
          "--", " ", "\u200b", "u\u0308"]  # fmt: skip


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_repaired_text_is_one_line_and_stays_as_it_is(text):
    once = repaired(text, set())
    assert not set(once) & set("\t\n\r\u2028\x85")
    assert repaired(once, set()) == once


@pytest.mark.parametrize(
    ("source", "english", "script", "reason"),
    [
        ("Der Hund schläft.", "The dog is sleeping.", "Latn", None),
        ("", "The dog", "Latn", "empty"),
        ("Der Hund", "", "Latn", "empty"),
        ("Der H\x02und", "The dog", "Latn", "control characters"),
        ("Der Hund", "The d\ufffdg", "Latn", "control characters"),
        ("\ue000 Der Hund", "The dog", "Latn", "control characters"),
        ("{{Hund}} schläft", "The dog", "Latn", "markup"),
        ("Der Hund </b", "The dog", "Latn", "markup"),
        ("Der Hund", "The dog " + "is " * 400, "Latn", "too long"),
        ("123 – 456", "123 – 456 dogs", "Latn", "no letters"),
        ("The dog.", "the DOG.", "Latn", "copy"),
        ("Open the file menu jetzt", "Open the file menu now", "Latn", "copy"),
        ("Hund öffnen", "Open dog", "Latn", None),
        ("The dog is here", "Собака здесь", "Latn", "wrong script"),
        ("The dog sleeps", "He is asleep by now", "Cyrl", "wrong script"),
        ("Собака Microsoft Windows", "Dog of Microsoft", "Cyrl", "wrong script"),
        ("Собака Windows", "Dog of Windows", "Cyrl", None),
        ("साबका собака собака", "Dogs and dogs", "Deva", "wrong script"),
        ("狗", "The dog is asleep", "Hans", None),
        ("狗狗狗 Windows", "The dog Windows", "Hans", None),
        ("犬がいる", "There is a dog", "Jpan", None),
        ("개가 있다", "There is a dog", "Kore", None),
        ("Ja.", "Yes, this is a rather long sentence.", "Latn", "length ratio"),
        ("Das ist ein ziemlich langer Satz, ja.", "Yes.", "Latn", "length ratio"),
        ("是的", "Yes, this is a long sentence.", "Hans", "length ratio"),
        ("是的是的", "Yes, this is a long sentence.", "Hans", None),
        ("Der \ud800Hund", "The dog", "Latn", "control characters"),
        ("這是一個測試", "This is a test", "Hans", "wrong script"),
        ("这是一个测试", "This is a test", "Hant", "wrong script"),
        ("这是一个测试", "This is a test", "Hans", None),
        ("你好", "Hello", "Hant", None),
        ("作家张爱玲、堃和囧都在这里", "The writer is here", "Hans", None),
    ],
)
def test_reasons(source, english, script, reason):
    if reason == "length ratio" and script == "Hans":
        english += " It is far too long."
    assert fault(source, english, script, Cleaning()) == reason
    assert reason is None or reason in REASONS


def test_limits_are_settings():
    rules = Cleaning(max_characters=10)
    assert fault("Der Hund schläft.", "The dog.", "Latn", rules) == "too long"
    assert fault("Der Hund.", "The dog.", "Latn", rules) is None
    rules = Cleaning(max_ratio=1.0, ratio_slack=0)
    assert fault("Der Hund.", "The dog.", "Latn", rules) == "length ratio"
    rules = Cleaning(copied_share=0.2)
    assert fault("der dog is weg", "The dog is gone", "Latn", rules) == "copy"


def test_ascii_text_is_judged_like_any_other():
    for source in ("Hund", "12", "Hund é"):
        slow = cleaning.scripts.script_counts(source)
        assert (cleaning._counts(source) == {}) == (slow == {})


def test_keys_ignore_case_spaces_and_punctuation():
    assert keys("Der Hund!", "The dog.") == keys("der  HUND", "the-dog")
    pair, source, english = keys("Der Hund", "The dog")
    assert source == keys("Der Hund", "A cat")[1]
    assert english == keys("Le chien", "The dog")[2]
    assert len({pair, source, english, keys("ab", "c")[0], keys("a", "bc")[0]}) == 5
    assert splits.key("Ａ\u200cक्षि ½") == "aक्षि12"


def test_held_out_text_has_the_keys_of_its_cleaned_form():
    assert keys_as_cleaned("<b>R&amp;B</b> hier", "R&amp;B here") == keys("R&B hier", "R&B here")
