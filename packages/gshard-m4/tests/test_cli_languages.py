import json
import subprocess
import sys

from gshard_m4.cli import run
from gshard_m4.cli.languages import _padded


def printed(capsys, *arguments):
    assert run(["languages", *arguments]) == 0
    return capsys.readouterr().out.split("\n")


def test_the_table_has_a_line_for_each_language(capsys):
    header, *lines = printed(capsys)
    assert " ".join(header.split()) == "code name script family band size other codes"
    assert len(lines) == 102 + len(["", "102 of 102", ""])
    assert lines[-2] == "102 of 102"
    first = "af Afrikaans Latn Indo-European, Germanic mid 1.7 afr"
    assert " ".join(lines[0].split()) == first
    columns = {line.index(" mid ") for line in lines if " mid " in line}
    assert len(columns) == 1


def test_filters_are_taken_together_and_their_case_does_not_matter(capsys):
    found = printed(capsys, "--band=high", "--script=cyrl", "--family=slavic")
    assert [line.split()[0] for line in found[1:-3]] == ["ru", "uk"]
    assert found[-2] == "2 of 102"
    by_family = printed(capsys, "--family=Afro-Asiatic")
    assert [line.split()[0] for line in by_family[1:-3]] == ["am", "ar", "ha", "he", "mt", "so"]
    assert printed(capsys, "--family=Bantu", "--band=high") == ["no language fits", ""]


def test_codes_are_looked_up_in_their_order(capsys):
    header, *lines = printed(capsys, "jw", "<2ps>", "zho_Hans")
    assert header.startswith("given     code  name")
    assert [line.split()[:2] for line in lines[:3]] == [
        ["jw", "jv"], ["<2ps>", "ps"], ["zho_Hans", "zh"],
    ]  # fmt: skip


def test_any_language_takes_variants_and_languages_outside_m4(capsys):
    lines = printed(capsys, "--any-language", "zh-TW", "oci_Latn")
    assert lines[1].startswith("zh-TW     zh_Hant  Chinese (script Hant)  Hant    Sino-Tibetan")
    assert lines[2].startswith("oci_Latn  oc       Occitan                Latn    Indo-European")
    assert len(printed(capsys, "--any-language")) > 230


def test_json_has_all_that_is_known(capsys):
    (found,) = json.loads("\n".join(printed(capsys, "iw", "--json")))
    assert found == {
        "given": "iw",
        "code": "he",
        "name": "Hebrew",
        "script": "Hebr",
        "aliases": ["heb", "iw"],
        "family": "Afro-Asiatic",
        "branch": "Semitic",
        "mc4_tokens": 17.0,
        "band": "mid",
    }


def test_all_that_cannot_be_found_is_listed_at_once(capsys):
    given = ["languages", "germn", "de", "zh_TW", "en", "oc", "--script=Cyrilic", "--family=Slavik"]
    assert run(given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.split("\n") == [
        "gshard-m4 languages: unknown language 'germn', not one of M4's 102; did you mean"
        " de (German)?",
        "gshard-m4 languages: language 'zh_TW' is Chinese (script Hant), M4's 'zh' is in Hans:"
        " keep the two apart; --any-language (variants=True) takes it as 'zh_Hant'",
        "gshard-m4 languages: language 'en' is English, which all are translated into",
        "gshard-m4 languages: language 'oc' is Occitan, not one of M4's 102; --any-language"
        " (others=True) takes it all the same",
        "gshard-m4 languages: --script=Cyrilic is of no language; did you mean Cyrl?",
        "gshard-m4 languages: --family=Slavik is of no language; did you mean Slavic?",
        "",
    ]


def test_a_script_like_no_other_is_answered_with_all(capsys):
    assert run(["languages", "--script=Xyz"]) == 2
    assert capsys.readouterr().err.startswith(
        "gshard-m4 languages: --script=Xyz is of no language; Arab, Armn, Beng, Cyrl, Deva,"
    )


def test_wide_and_combining_characters_stay_in_their_columns():
    assert _padded("中文", 5, right=False) == "中文 "
    assert _padded("é", 3, right=True) == "  é"


def test_the_command_imports_the_standard_library_only():
    program = (
        "import sys; from gshard_m4.cli import run; run(['languages', 'iw']);"
        "print(sorted({'numpy', 'sacrebleu', 'grain', 'sentencepiece'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.endswith("[]\n")
