import io
import json
import struct
import zipfile

import pytest

from gshard_m4.debian import gettext as catalogues
from gshard_m4.debian import mozilla as packs
from gshard_m4.debian.descriptions import blocks
from gshard_m4.debian.locales import language_of
from gshard_m4.debian.readers import READERS


def catalogue(entries, order="<", charset="UTF-8"):
    """A compiled catalogue, as msgfmt writes it."""
    header = f"Content-Type: text/plain; charset={charset}\n"
    encoded = [(b"", header.encode())]
    encoded += [(message.encode(), text.encode(charset)) for message, text in entries]
    start = 28 + 16 * len(encoded)
    tables, strings = [b"", b""], b""
    for side in (0, 1):
        for entry in encoded:
            tables[side] += struct.pack(order + "2I", len(entry[side]), start + len(strings))
            strings += entry[side] + b"\0"
    numbers = (0x950412DE, 0, len(encoded), 28, 28 + 8 * len(encoded), 0, 0)
    return struct.pack(order + "7I", *numbers) + tables[0] + tables[1] + strings


def read(reader, files, english=()):
    """What a reader gives, and the files it could not read."""
    unreadable = []
    ours = READERS[reader].english(english, unreadable.append)
    found = [tuple(one) for one in READERS[reader].read(files, ours, unreadable.append)]
    return found, unreadable


@pytest.mark.parametrize(("order", "charset"), [("<", "UTF-8"), (">", "ISO-8859-1")])
def test_catalogues_give_messages_without_context_and_plurals_as_two(order, charset):
    content = catalogue(
        [
            ("_Open", "Ö_ffnen"),
            ("menu\x04Close", "Schließen"),
            ("%d file\0%d files", "%d Datei\0%d Dateien"),
            ("translator-credits", "Jemand"),
        ],
        order,
        charset,
    )
    found, unreadable = read("gettext", [("/usr/share/locale/de_AT/LC_MESSAGES/x.mo", content)])
    assert found == [
        ("de_AT", "_Open", "Ö_ffnen"),
        ("de_AT", "Close", "Schließen"),
        ("de_AT", "%d file", "%d Datei"),
        ("de_AT", "%d files", "%d Dateien"),
    ]
    assert unreadable == []


def test_a_language_with_one_form_has_the_plural_only():
    content = catalogue([("%d file\0%d files", "%d 個のファイル")])
    assert list(catalogues.messages(content)) == [("%d files", "%d 個のファイル")]


def test_catalogues_that_cannot_be_read_are_named():
    broken = catalogue([("a", "ä")])[:40]
    found, unreadable = read(
        "gettext",
        [
            ("/usr/share/locale/de/LC_MESSAGES/a.mo", broken),
            ("/usr/share/locale/de/LC_MESSAGES/b.mo", b"nothing of the kind"),
            ("/usr/share/x.mo/none", catalogue([])),
            ("/languages/pt_BR.mo", catalogue([("Yes", "Sim")])),
            ("/languages/admin-network-de.mo", catalogue([("No", "Nein")])),
            ("/locale/es_419/LC_MESSAGES/x.mo", catalogue([("No", "No.")])),
        ],
    )
    assert found == [("pt_BR", "Yes", "Sim"), ("de", "No", "Nein"), ("es_419", "No", "No.")]
    assert [line.split(": ")[0] for line in unreadable] == [
        "/usr/share/locale/de/LC_MESSAGES/a.mo",
        "/usr/share/locale/de/LC_MESSAGES/b.mo",
        "/usr/share/x.mo/none",
    ]
    assert unreadable[1].endswith(": no gettext catalogue")


def test_libreoffice_help_pairs_paragraphs_by_page_and_number_and_splits_sentences():
    def page(language, *paragraphs):
        body = "".join(f'<p id="par{n}" class="a">{text}</p>' for n, text in paragraphs)
        return f"/usr/lib/help/{language}/text/swriter/a.html", body.encode()

    english = [page("en-US", (1, "One. <b>Two</b>\n it is."), (2, "Alone."), (4, "Four"))]
    german = [
        page("de", (1, "Eins. Zwei ist es."), (2, "Allein. Sehr."), (3, "Drei")),
        page("de", (4, '<span class="switchinline">Mac</span>Vier')),
    ]
    found, unreadable = read("libreoffice_help", german, english)
    assert found == [
        ("de", "One.", "Eins."),
        ("de", "Two it is.", "Zwei ist es."),
        ("de", "Alone.", "Allein. Sehr."),
    ]
    assert unreadable == []


def test_help_that_is_not_utf_8_is_named_and_left_out():
    bad = ("/help/de/text/a.html", b'<p id="1">\xe4</p>')
    found, unreadable = read("libreoffice_help", [bad], [])
    assert found == []
    assert unreadable == [
        "/help/de/text/a.html: 'utf-8' codec can't decode byte 0xe4 in position 10:"
        " invalid continuation byte"
    ]


def test_mallard_pairs_pages_with_the_same_blocks():
    def page(language, body):
        text = f'<page xmlns="http://projectmallard.org/1.0/"><!-- c -->{body}</page>'
        return f"/usr/share/help/{language}/gnome-help/a.page", text.encode()

    files = [
        page("C", "<title>Files</title><p>Open <gui>it</gui>. Close it.</p>"),
        page("de", "<title>Dateien</title><p>Öffne <gui>es</gui>. Schließ es.</p>"),
        page("fr", "<title>Fichiers</title>"),
        ("/usr/share/help/es/gnome-help/a.page", b"<page>"),
    ]
    found, unreadable = read("mallard", files)
    assert found == [
        ("de", "Files", "Dateien"),
        ("de", "Open it.", "Öffne es."),
        ("de", "Close it.", "Schließ es."),
    ]
    assert unreadable == [
        "/usr/share/help/es/gnome-help/a.page: no element found: line 1, column 6"
    ]


def test_fluent_has_values_attributes_and_continued_lines_but_no_selectors():
    text = "\n".join(
        [
            "# comment = no",
            "open = Open { $name } in { -brand-short-name }",
            '    or { "{" }',
            "    .title = A title",
            "    .accesskey = A",
            "count = { $n ->",
            "    [one] One",
            "   *[other] Many",
            "  }",
            "last =",
            "    At the end",
        ]
    )
    assert list(packs.fluent(text, "Thunderbird")) == [
        ("open", "Open {name} in Thunderbird or {"),
        ("open.title", "A title"),
        ("last", "At the end"),
    ]


def test_properties_have_continued_lines_and_escapes():
    text = "! no\n# no\na.b = \\u00e4 one \\\n   two\nc:d\\n e\nempty\n"
    assert list(packs.properties(text, "Firefox")) == [("a.b", "ä one two"), ("c", "d  e")]


def test_language_packs_are_paired_by_file_and_key():
    def pack(locale, files):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return f"/usr/lib/langpack-{locale}@thunderbird.mozilla.org.xpi", buffer.getvalue()

    english = [
        pack(
            "en-GB",
            {
                "localization/en-GB/a.ftl": "hi = Hello { -brand-short-name }\nno = Nothing",
                "chrome/en-GB/locale/en-GB/b.properties": "x=Colour",
                "c.txt": "hi = C",
            },
        )
    ]
    german = [
        pack(
            "de",
            {
                "localization/de/a.ftl": "hi = Hallo { -brand-short-name }",
                "chrome/de/locale/de/b.properties": "x=Farbe\ny=Neu",
            },
        ),
        ("/usr/lib/langpack-fr@firefox.xpi", b"no archive"),
    ]
    found, unreadable = read("mozilla", german, english)
    assert found == [
        ("de", "Hello Thunderbird", "Hallo Thunderbird"),
        ("de", "Colour", "Farbe"),
    ]
    assert unreadable == ["/usr/lib/langpack-fr@firefox.xpi: File is not a zip file"]


def test_mediawiki_messages_are_plain_and_paired_by_folder_and_key():
    def messages(name, **found):
        return f"/usr/share/mediawiki/{name}.json", json.dumps(found).encode()

    files = [
        messages("i18n/en", a="See [[Help:Me|the help]] '''now'''", b="{{PLURAL}}", c="Yes"),
        messages("i18n/de", a="Siehe [[Help:Me|Hilfe]] '''jetzt'''", b="b", c=["no"], d="D"),
        messages("i18n/qqq", a="Documentation"),
        messages("other/fr", c="Oui"),
        ("/usr/share/mediawiki/i18n/it.json", b"{"),
    ]
    found, unreadable = read("mediawiki", files)
    assert found == [("de", "See the help now", "Siehe Hilfe jetzt")]
    assert unreadable == [
        "/usr/share/mediawiki/i18n/it.json: Expecting property name enclosed in double quotes:"
        " line 1 column 2 (char 1)"
    ]


def test_descriptions_are_paired_by_hash_where_they_have_as_many_blocks():
    def index(language, *entries):
        name = f"/lists/deb_dists_stable_main_i18n_Translation-{language}"
        locale = language.replace("%5f", "_")
        stanzas = [
            f"Package: p\nDescription-md5: {md5}\nDescription-{locale}: {text}"
            for md5, text in entries
        ]
        return name, "\n\n".join(stanzas).encode()

    english = [index("en", ("a1", "Tool\n One. Two.\n .\n  * first\n  * second"), ("b2", "B\n C"))]
    others = [
        index("pt%5fBR", ("a1", "Programa\n Um. Dois.\n .\n  * primeiro\n  * segundo")),
        index("de", ("b2", "B"), ("c3", "neu")),
    ]
    found, unreadable = read("descriptions", others, english)
    assert found == [
        ("pt_BR", "Tool", "Programa"),
        ("pt_BR", "One.", "Um."),
        ("pt_BR", "Two.", "Dois."),
        ("pt_BR", "first", "primeiro"),
        ("pt_BR", "second", "segundo"),
    ]
    assert unreadable == []


def test_a_word_that_looks_like_a_bullet_begins_no_block():
    assert blocks("T\n isto e\n o pacote\n  o bala\n - outra") == [
        "T", "isto e o pacote", "bala", "outra",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("locale", "code"),
    [
        ("pt_BR", "pt"),
        ("sr@latin", "sr_Latn"),
        ("sr_RS@latin", "sr_Latn"),
        ("zh-hant", "zh_Hant"),
        ("zh_CN", "zh"),
        ("ku_IQ", "ckb"),
        ("pa_PK", "pnb"),
        ("nb", "no"),
        ("de-formal", "de"),
        ("oc", "oc"),
        ("als", "sq"),
        ("en_GB", None),
        ("en@quot", None),
        ("C", None),
        ("roa-tara", None),
        ("zz", None),
    ],
)
def test_locales_of_programs_are_languages(locale, code):
    found = language_of(locale)
    assert (found and found.code) == code


def test_als_is_alemannic_in_mediawiki():
    found = language_of("als", mediawiki=True)
    assert found is not None
    assert found.code == "gsw"
