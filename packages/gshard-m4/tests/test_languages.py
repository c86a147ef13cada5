import re
from collections import Counter

import pytest

from gshard_m4 import languages
from gshard_m4.languages_table import FAMILIES


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
        ("farsi", "fa"),
        ("de_AT.UTF-8", "de"),
        ("sr_RS.UTF-8@cyrillic", "sr"),
        ("sr-ec", "sr"),
        ("sr@ijekavian", "sr"),
        ("ca@valencia", "ca"),
        ("zh_Hans_HK", "zh"),
        ("fr_XX", "fr"),
        ("de-1996", "de"),
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


@pytest.mark.parametrize(
    "code", ["de_nonsense", "de--", "", "zh-CNN", "calv", "zz_Latn", "map-bms"]
)
def test_what_is_no_code_is_refused(code):
    with pytest.raises(ValueError, match=f"^unknown language {code!r}"):
        languages.find(code)


@pytest.mark.parametrize(
    ("code", "name", "language", "variant"),
    [
        ("zh_TW", "Chinese (script Hant)", "'zh' is in Hans", "zh_Hant"),
        ("zho_Hant", "Chinese (script Hant)", "'zh' is in Hans", "zh_Hant"),
        ("sr@latin", "Serbian (script Latn)", "'sr' is in Cyrl", "sr_Latn"),
        ("sr-el", "Serbian (script Latn)", "'sr' is in Cyrl", "sr_Latn"),
        ("uz-Cyrl", "Uzbek (script Cyrl)", "'uz' is in Latn", "uz_Cyrl"),
        ("pa_PK", "Punjabi (script Arab)", "'pa' is in Guru", "pa_Arab"),
        ("be-x-old", "Belarusian (orthography tarask)", "'be' is in Cyrl", "be_tarask"),
    ],
)
def test_other_scripts_and_orthographies_are_kept_apart(code, name, language, variant):
    message = (
        f"language {code!r} is {name}, M4's {language}: keep the two apart;"
        f" --any-language (variants=True) takes it as {variant!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        languages.find(code)


@pytest.mark.parametrize(
    ("code", "own", "name", "script"),
    [
        ("zh-TW", "zh_Hant", "Chinese (script Hant)", "Hant"),
        ("srp_Latn", "sr_Latn", "Serbian (script Latn)", "Latn"),
        ("pa_PK", "pa_Arab", "Punjabi (script Arab)", "Arab"),
        ("be_tarask", "be_tarask", "Belarusian (orthography tarask)", "Cyrl"),
        ("de_Latn", "de", "German", "Latn"),
    ],
)
def test_variants_have_entries_of_their_own_where_they_are_asked_for(code, own, name, script):
    found = languages.find(code, variants=True)
    assert (found.code, found.name, found.script) == (own, name, script)
    assert languages.find(found.code, variants=True) == found
    assert found.band == (None if "_" in own else "high")


def test_languages_outside_m4_are_found_only_where_they_are_asked_for():
    found = languages.find("oci_Latn", others=True)
    assert (found.code, found.name, found.family, found.band) == (
        "oc", "Occitan", "Indo-European", None,
    )  # fmt: skip
    message = (
        "language 'oci_Latn' is Occitan, not one of M4's 102;"
        " --any-language (others=True) takes it all the same"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        languages.find("oci_Latn")
    message = "language 'kas_Deva' is Kashmiri (script Deva), 'ks' is in Arab: keep the two apart;"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        languages.find("kas_Deva", others=True)
    assert languages.find("kas_Deva", others=True, variants=True).code == "ks_Deva"
    count = len(languages.OTHER_LANGUAGES)
    message = f"unknown language 'ocitan', not one of M4's 102 nor of {count} others; did you mean"
    with pytest.raises(ValueError, match=f"^{re.escape(message)} oc .Occitan.*$"):
        languages.find("ocitan", others=True)


def test_codes_and_names_of_all_languages_differ():
    everything = (*languages.LANGUAGES, *languages.OTHER_LANGUAGES)
    spellings = [s for one in everything for s in (one.code, *one.aliases)]
    assert len(set(spellings)) == len(spellings)
    assert len({one.name.casefold() for one in everything}) == len(everything)
    assert all(
        languages.find(name, others=True) is one
        for one in everything
        for name in (one.code, one.name, *one.aliases)
    )


@pytest.mark.parametrize("code", ["en", "eng", "eng_Latn", "en-GB", "eng-IN", "<2en>", "English"])
def test_english_is_no_source_language(code):
    assert languages.is_english(code)
    message = f"language {code!r} is English, which all are translated into"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        languages.find(code, variants=True, others=True)


def test_other_languages_are_not_english():
    assert not any(map(languages.is_english, ["de", "ang", "en_Shaw", "enm", "", "en_nonsense"]))


def test_bands_are_those_of_m4_by_rank_in_mc4():
    counts = Counter(language.band for language in languages.LANGUAGES)
    assert counts == {"high": 25, "mid": 52, "low": 25}
    sizes = {
        band: [one.mc4_tokens for one in languages.LANGUAGES if one.band == band and one.mc4_tokens]
        for band in languages.BANDS
    }
    assert min(sizes["high"]) == 25 > max(sizes["mid"]) == 24
    assert min(sizes["mid"]) == 0.5 > max(sizes["low"]) == 0.4
    unknown = {one.code for one in languages.LANGUAGES if one.mc4_tokens is None}
    assert unknown == {"bs", "hr"}
    assert languages.find("hr").band == languages.find("bs").band == "mid"


def test_families_join_branches():
    found = languages.find("cy")
    assert (found.family, found.branch) == ("Indo-European", "Celtic")
    assert languages.find("eu").family == languages.find("eu").branch == "isolate"
    branches = {one.branch for one in (*languages.LANGUAGES, *languages.OTHER_LANGUAGES)}
    named = [branch for several in FAMILIES.values() for branch in several]
    assert set(named) <= branches
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("code", ["fr_en", "de_zz", "de.foo", "de_utf8"])
def test_two_letters_that_are_no_region_are_refused(code):
    with pytest.raises(ValueError, match=f"^unknown language {re.escape(repr(code))}"):
        languages.find(code)


@pytest.mark.parametrize(("code", "own"), [("scr", "hr"), ("scc", "sr"), ("bh", "bho")])
def test_withdrawn_codes_of_iso_639_are_known(code, own):
    assert languages.find(code, others=True).code == own
