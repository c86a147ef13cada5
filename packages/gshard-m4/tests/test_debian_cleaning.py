import pytest

from gshard_m4.debian.cleaning import Cleaner


@pytest.mark.parametrize(
    ("english", "text", "pair"),
    [
        ("_Open File", "Datei ö_ffnen", ("Datei öffnen", "Open File")),
        ("&Print now...", "&Drucken...", ("Drucken...", "Print now...")),
        ("~Edit", "編集(~E)", ("編集", "Edit")),
        ("&File", "ファイル（&F）", ("ファイル", "File")),
        ("Search && replace", "Suchen && ersetzen", ("Suchen & ersetzen", "Search and replace")),
        ("<b>Bold</b> text", "Texte <b>gras</b>", ("Texte gras", "Bold text")),
        ("R&amp;D team", "Équipe R&amp;D", ("Équipe R&D", "R&D team")),
        ("Delete %d files?", "%d Dateien löschen?", ("%d Dateien löschen?", "Delete %d files?")),
        (
            "%1$s was sent by %2$s",
            "%2$s hat %1$s geschickt",
            ("%2$s hat %1$s geschickt", "%1$s was sent by %2$s"),
        ),
        ("  two\n lines ", "zwei\tZeilen", ("zwei Zeilen", "two lines")),
        ("e-mail", "E\u0301-mail", ("É-mail", "e-mail")),
    ],
)
def test_marks_and_tags_go_and_the_text_stays(english, text, pair):
    assert Cleaner().pair(english, text) == pair


@pytest.mark.parametrize(
    ("english", "text", "reason"),
    [
        ("Delete %d files?", "Dateien löschen?", "placeholders"),
        ("{a} {b} {c} and {d} more text", "{a} {b} {c} {d}", "placeholders"),
        ("Firefox", "firefox", "copy of the English"),
        ("Yes", "<br>", "empty"),
        ("a", "b", "empty"),
        ("gtk-open", "öffnen", ""),
        ("gtk_open", "öffnen", "identifier or label of one word"),
        ("openFile", "öffnen", "identifier or label of one word"),
        ("Name:", "Nom :", "identifier or label of one word"),
        ("see http://a.b/ there", "siehe dort", "code"),
        ("a < b or so", "a oder b", "code"),
        ("Name", "a\\b", "code"),
        ("12:30 - 14", "halb eins", "few letters"),
        ("Yes", "1234 a", "few letters"),
        ("Größe öäü", "size", "not English"),
        ("word " * 300, "Wort", "too long"),
        ("word " * 130, "Wort", "too long"),
        ("word", "Wort " * 130, "too long"),
    ],
)
def test_what_is_taken_out_is_counted_by_reason(english, text, reason):
    cleaner = Cleaner()
    pair = cleaner.pair(english, text)
    assert (pair is None) == bool(reason)
    assert dict(cleaner.removed) == ({reason: 1} if reason else {})


def test_vowel_signs_are_letters():
    assert Cleaner().pair("New file", "ຟາຍໃໝ່ຟື້") == ("ຟາຍໃໝ່ຟື້", "New file")


def test_an_english_text_of_no_use_counts_once_for_every_translation():
    cleaner = Cleaner()
    for text in ("a", "b", "c"):
        assert cleaner.pair("12 - 14", text) is None
    assert dict(cleaner.removed) == {"few letters": 3}
