import re

import pytest

from gshard_m4 import languages


def test_there_are_102_languages_with_different_codes_names_and_aliases():
    assert len(languages.LANGUAGES) == 102
    assert len({language.name for language in languages.LANGUAGES}) == 102
    spellings = [s for language in languages.LANGUAGES for s in (language.code, *language.aliases)]
    assert len(set(spellings)) == len(spellings)
    assert all(languages.find(language.name) is language for language in languages.LANGUAGES)
    assert all(
        languages.find(spelling) is language
        for language in languages.LANGUAGES
        for spelling in (language.code, *language.aliases)
    )


def test_every_code_of_m4_is_known():
    old = """af sq am ar hy az eu be bn bs bg my ca ceb zh co hr cs da nl eo et tl fi fr fy gl ka de
        el gu ht ha haw iw hi hmn hu is ig id ga it ja jw kn kk km ko ku ky lo lv lt lb mk mg ms ml
        mt mi mr mn ne no ny ps fa pl pt pa ro ru sm gd sr st sn sd si sk sl so es su sw sv tg ta te
        th tr uk ur uz vi cy xh yi yo zu la"""
    assert {languages.find(code).code for code in old.split()} == {
        language.code for language in languages.LANGUAGES
    }


@pytest.mark.parametrize(
    ("alias", "code"),
    [
        ("iw", "he"),
        ("jw", "jv"),
        ("tl", "fil"),
        ("nb", "no"),
        ("in", "id"),
        ("ji", "yi"),
        ("mo", "ro"),
        ("arb_Arab", "ar"),
        ("zho_Hans", "zh"),
        ("kor_Hang", "ko"),
        ("jpn_Jpan", "ja"),
        ("npi_Deva", "ne"),
        ("kmr_Latn", "ku"),
        ("fra-CA", "fr"),
        ("zho-CN", "zh"),
        ("srp-Cyrl", "sr"),
        ("pt_BR", "pt"),
        ("es-419", "es"),
        ("DE", "de"),
        ("<2de>", "de"),
        ("Scottish Gaelic", "gd"),
    ],
)
def test_other_codes_of_a_language_are_found(alias, code):
    assert languages.find(alias).code == code


def test_unknown_languages_are_refused_with_near_ones():
    message = "unknown language 'germn', not one of M4's 102; did you mean de (German)?"
    with pytest.raises(ValueError, match=re.escape(message)):
        languages.find("germn")
    message = "unknown language 'qqqq', not one of M4's 102"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        languages.find("qqqq")


@pytest.mark.parametrize("code", ["de_nonsense", "de--", "", "en", "nn", "yue", "zh-CNN"])
def test_what_is_no_code_of_m4_is_refused(code):
    with pytest.raises(ValueError, match=f"^unknown language {code!r}"):
        languages.find(code)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("zh_TW", "'zh_TW' is Chinese in the script Hant; M4's 'zh' is written in Hans"),
        ("zho_Hant", "'zho_Hant' is Chinese in the script Hant; M4's 'zh' is written in Hans"),
        ("sr@latin", "'sr@latin' is Serbian in the script Latn; M4's 'sr' is written in Cyrl"),
        ("uz-Cyrl", "'uz-Cyrl' is Uzbek in the script Cyrl; M4's 'uz' is written in Latn"),
    ],
)
def test_other_scripts_are_kept_apart(code, message):
    with pytest.raises(ValueError, match=f"^language {re.escape(message)}: keep the two apart$"):
        languages.find(code)
