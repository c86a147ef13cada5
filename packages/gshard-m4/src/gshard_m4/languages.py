"""The 102 languages of M4, which are all translated into English, and the codes people meet.

Codes are those of Unicode CLDR: M4's `iw`, `jw` and `tl` are `he`, `jv` and `fil` here; `no` stays
`no` (its text is Bokmål), and `zh` is Chinese in simplified characters. Every other code for the
same language in the same script is an alias: ISO 639-1, 639-2 and 639-3, members of macrolanguages
that stand for the whole (`arb`, `pes`, `zsm`), FLORES (`zho_Hans`), NTREX (`fra-CA`), MADLAD
(`<2de>`), gettext (`de_AT.UTF-8`, `ca@valencia`), MediaWiki (`sr-ec`), tags with a region.

Kept apart are a language in another script or orthography (`zh_Hant`, `sr_Latn`, `be_tarask`; found
with `variants=True`, as entries of their own) and the languages outside M4 that public sets have
(`OTHER_LANGUAGES`; found with `others=True`). Commands take both with `--any-language`.

Resource bands are M4's 25 high, 52 middle and 25 low by rank (Arivazhagan et al., arXiv
1907.05019), ranked by size in mC4, since M4's own sizes are not published.
"""

import dataclasses
import difflib
import re
from typing import Literal

from gshard_m4.languages_others import OTHERS
from gshard_m4.languages_regions import REGIONS, SPOKEN_IN
from gshard_m4.languages_table import FAMILIES, M4
from gshard_m4.scripts import KNOWN as _KNOWN_SCRIPTS

ENGLISH = "en"
Band = Literal["high", "mid", "low"]
BANDS: tuple[Band, ...] = ("high", "mid", "low")
BAND_SIZES = {"high": 25, "mid": 52, "low": 25}
"""How many languages are in each band, from the largest down (arXiv 1907.05019)."""


@dataclasses.dataclass(frozen=True)
class Language:
    """A language: code, English name, script (ISO 15924), other codes for it, family and size.

    `mc4_tokens` is the size in billions of tokens, None where it is not known; `band` is None
    outside M4 and for another script of one of its languages.
    """

    code: str
    name: str
    script: str
    aliases: tuple[str, ...] = ()
    family: str = ""
    branch: str = ""
    mc4_tokens: float | None = None
    band: Band | None = None


def find(code: str, *, variants: bool = False, others: bool = False) -> Language:
    """The language that a code, alias, tag or English name stands for.

    Args:
        code: as it is found in the wild.
        variants: also another script or orthography of a language, with a code such as `zh_Hant`.
        others: also the languages outside M4 in `OTHER_LANGUAGES`.

    Raises:
        ValueError: for an unknown code (with the nearest names), for English, and, unless asked
            for, for another script than the language's own and for a language outside M4.
    """
    named = _BY_NAME.get(code.casefold()) or _OTHER_BY_NAME.get(code.casefold())
    language, script, orthography = (named, "", "") if named else _parse(code)
    if language is None:
        raise ValueError(_unknown(code, others=others))
    if language is _ENGLISH:
        raise ValueError(f"language {code!r} is English, which all are translated into")
    if language.band is None and not others:
        raise ValueError(
            f"language {code!r} is {language.name}, not one of M4's {len(LANGUAGES)};"
            " --any-language (others=True) takes it all the same"
        )
    suffix = script if script not in ("", language.script) else orthography
    if not suffix:
        return language
    variant = _variant(language, suffix)
    if not variants:
        raise ValueError(
            f"language {code!r} is {variant.name}, {_owner(language)} is in {language.script}: keep"
            f" the two apart; --any-language (variants=True) takes it as {variant.code!r}"
        )
    return variant


def is_english(code: str) -> bool:
    """Whether a code, tag or name is English of any region, in Latin letters."""
    if code.casefold() == "english":
        return True
    language, script, _ = _parse(code)
    return language is _ENGLISH and script in ("", "Latn")


def _owner(language: Language) -> str:
    return f"M4's {language.code!r}" if language.band else repr(language.code)


def _variant(language: Language, suffix: str) -> Language:
    """A language in another script, or another orthography."""
    is_script = suffix in _KNOWN_SCRIPTS
    return dataclasses.replace(
        language,
        code=f"{language.code}_{suffix}",
        name=f"{language.name} ({'script' if is_script else 'orthography'} {suffix})",
        script=suffix if is_script else language.script,
        aliases=(),
        mc4_tokens=None,
        band=None,
    )


def _parse(code: str) -> tuple[Language | None, str, str]:
    """A code's language, and its script and orthography where it names one; None if unknown."""
    tag = code[2:-1] if code.startswith("<2") and code.endswith(">") else code
    parts = re.split("[-_@]", _ENCODING.sub("", tag.casefold()))
    parts = _WHOLE_TAGS.get("-".join(parts), parts)
    stem, *subtags = parts
    language = _BY_ALIAS.get(stem) or _OTHER_BY_ALIAS.get(stem)
    if language is None:
        return None, "", ""
    script = implied = orthography = ""
    for subtag in subtags:
        if subtag in _SCRIPTS:
            script = _SCRIPTS[subtag]
        elif subtag in _SCRIPT_OF_SUBTAG.get(language.code, {}):
            implied = _SCRIPT_OF_SUBTAG[language.code][subtag]
        elif subtag in _ORTHOGRAPHIES.get(language.code, ()):
            orthography = subtag
        elif subtag not in _SAME_LANGUAGE and not _is_region(subtag):
            return None, "", ""
    return language, script or implied, orthography


def _is_region(subtag: str) -> bool:
    """ISO 3166's two letters, or three digits of the UN; xx says that there is none (mBART)."""
    return subtag in REGIONS or subtag == "xx" or re.fullmatch("[0-9]{3}", subtag) is not None


def names_two_languages(code: str) -> bool:
    """Whether a code such as `de-fr` is rather a pair of languages than a language in a region.

    `pt-br`, `fr-ca` and `de-FR` are languages in a region; French is a language and hardly anybody
    means the German of France by `de-fr`.
    """
    tag = code.replace("_", "-")
    first, _, second = tag.partition("-")
    if not (first and second.isalpha() and (second.islower() or code.isupper())):
        return False
    known = _BY_ALIAS | _OTHER_BY_ALIAS
    one, other = known.get(first.casefold()), known.get(second.casefold())
    if one is None or other is None or one is other or tag.casefold() in _NO_PAIRS:
        return False
    return second.casefold() not in SPOKEN_IN.get(one.code, ())


def _unknown(code: str, *, others: bool) -> str:
    spellings = _BY_ALIAS | _BY_NAME
    if others:
        spellings |= _OTHER_BY_ALIAS | _OTHER_BY_NAME
    stem = re.split("[-_@]", code.casefold())[0]
    near = difflib.get_close_matches(stem, list(spellings), n=12, cutoff=0.65)
    known = dict.fromkeys(spellings[n] for n in near if spellings[n] is not _ENGLISH)
    found = [f"{language.code} ({language.name})" for language in known][:4]
    ask = f"; did you mean {', '.join(found)}?" if found else ""
    nor = f" nor of {len(OTHER_LANGUAGES)} others" if others else ""
    return f"unknown language {code!r}, not one of M4's {len(LANGUAGES)}{nor}{ask}"


def _read_m4() -> tuple[Language, ...]:
    languages = [
        _language(code, name, script, branch, aliases, None if size == "-" else float(size))
        for code, name, script, branch, size, aliases in _cells(M4)
    ]
    sized = [one for one in languages if one.mc4_tokens is not None]
    sized.sort(key=lambda one: one.mc4_tokens or 0.0, reverse=True)
    high = {one.code for one in sized[: BAND_SIZES["high"]]}
    low = {one.code for one in sized[-BAND_SIZES["low"] :]}
    return tuple(
        dataclasses.replace(
            one, band="high" if one.code in high else "low" if one.code in low else "mid"
        )
        for one in languages
    )


def _language(
    code: str, name: str, script: str, branch: str, aliases: str, size: float | None = None
) -> Language:
    family = _FAMILY_OF.get(branch, branch)
    return Language(code, name, script, tuple(aliases.split()), family, branch, size)


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().split("\n")]


_FAMILY_OF = {branch: family for family, branches in FAMILIES.items() for branch in branches}
LANGUAGES = _read_m4()
OTHER_LANGUAGES = tuple(
    _language(code, name, script, branch, aliases)
    for code, name, script, branch, aliases in _cells(OTHERS)
)
_ENGLISH = Language(ENGLISH, "English", "Latn", ("eng",))

_BY_ALIAS = {a: language for language in LANGUAGES for a in (language.code, *language.aliases)}
_OTHER_BY_ALIAS = {
    alias: language
    for language in (*OTHER_LANGUAGES, _ENGLISH)
    for alias in (language.code, *language.aliases)
}
_NAMES = {
    "Bokmål": "no", "Cambodian": "km", "Chichewa": "ny", "Chinese (Simplified)": "zh",
    "Farsi": "fa", "Frisian": "fy", "Haitian": "ht", "Kirghiz": "ky", "Kurmanji": "ku",
    "Mandarin": "zh", "Norwegian Bokmål": "no", "Panjabi": "pa", "Sesotho": "st",
    "Sinhalese": "si", "Slovene": "sl", "Tagalog": "fil",
}  # fmt: skip
_BY_NAME = {language.name.casefold(): language for language in LANGUAGES} | {
    name.casefold(): _BY_ALIAS[code] for name, code in _NAMES.items()
}
_OTHER_BY_NAME = {language.name.casefold(): language for language in (*OTHER_LANGUAGES, _ENGLISH)}

# Hang is FLORES' script of Korean, the words are gettext's modifiers.
_SCRIPTS = {script.casefold(): script for script in _KNOWN_SCRIPTS} | {
    "arabic": "Arab", "bengali": "Beng", "cyrillic": "Cyrl", "devanagari": "Deva", "hang": "Kore",
    "ijekavianlatin": "Latn", "iqtelif": "Latn", "latin": "Latn",
}  # fmt: skip
# Regions that imply a script (Unicode CLDR, likelySubtags), and MediaWiki's ec and el.
_SCRIPT_OF_SUBTAG = {
    "az": {"iq": "Arab", "ir": "Arab", "ru": "Cyrl"},
    "ha": {"cm": "Arab", "sd": "Arab"},
    "kk": {"af": "Arab", "cn": "Arab", "ir": "Arab", "mn": "Arab", "tr": "Latn"},
    "ku": {"iq": "Arab", "ir": "Arab", "lb": "Arab"},
    "ky": {"cn": "Arab", "tr": "Latn"},
    "mn": {"cn": "Mong"},
    "ms": {"cc": "Arab"},
    "pa": {"pk": "Arab"},
    "sr": {"ec": "Cyrl", "el": "Latn", "me": "Latn"},
    "tg": {"pk": "Arab"},
    "ug": {"kz": "Cyrl", "mn": "Cyrl"},
    "uz": {"af": "Arab", "cn": "Cyrl"},
    "yue": {"cn": "Hans"},
    "zh": {"hk": "Hant", "mo": "Hant", "tw": "Hant"},
}
_ORTHOGRAPHIES = {"be": ("tarask",)}
# Subtags that change neither script nor what a translation system would have to learn anew.
_SAME_LANGUAGE = (
    "1901", "1996", "ekavsk", "euro", "formal", "ije", "ijekavian", "ijekavsk", "informal",
    "valencia",
)  # fmt: skip
_ENCODING = re.compile(
    r"\.(?:utf-?8|iso-?8859-?\d+|koi8-?[rtu]|cp-?\d+|euc-?(?:jp|kr|tw|cn)|gb(?:k|2312|18030)"
    r"|big5(?:-?hkscs)?|tis-?620|armscii-8|georgian-ps|microsoft-cp1251|rk1048|pt154)\b"
)
_WHOLE_TAGS = {
    "be-x-old": ["be", "tarask"],
    "no-nn": ["nn"],
    "no-nynorsk": ["nn"],
    "zh-classical": ["lzh"],
    "zh-cmn": ["zh"],
    "zh-min-nan": ["nan"],
    "zh-yue": ["yue"],
}
_NO_PAIRS = {
    f"{code}-{subtag}" for code, subtags in _SCRIPT_OF_SUBTAG.items() for subtag in subtags
} | set(_WHOLE_TAGS)
