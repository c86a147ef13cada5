"""The 102 languages of M4, which are all translated into English, and the codes people meet.

Codes are those of Unicode CLDR: M4's `iw`, `jw` and `tl` are `he`, `jv` and `fil` here; `no` stays
`no` (its text is Bokmål), and `zh` is Chinese in simplified characters. Every other code for the
same language in the same script is an alias: ISO 639-1, 639-2 and 639-3, members of macrolanguages
that stand for the whole (`arb`, `pes`, `zsm`), FLORES (`zho_Hans`), NTREX (`fra-CA`), MADLAD
(`<2de>`), gettext and BCP-47 tags with a region.
"""

import dataclasses
import difflib
import re

ENGLISH = "en"


@dataclasses.dataclass(frozen=True)
class Language:
    """A language of M4: code, English name, script (ISO 15924) and other codes for it."""

    code: str
    name: str
    script: str
    aliases: tuple[str, ...]


def find(code: str) -> Language:
    """The language that a code, alias, tag or English name stands for.

    Raises:
        ValueError: for an unknown code (with the nearest names), and for a known language in
            another script than M4's, such as `zh_Hant` or `srp_Latn`.
    """
    if code.casefold() in _BY_NAME:
        return _BY_NAME[code.casefold()]
    tag = code[2:-1] if code.startswith("<2") and code.endswith(">") else code
    stem, *subtags = re.split("[-_@]", tag.casefold())
    language = _BY_ALIAS.get(stem)
    scripts = [_script(stem, subtag) for subtag in subtags]
    if language is None or None in scripts:
        raise ValueError(_unknown(code))
    for script in filter(None, scripts):
        if script != language.script:
            raise ValueError(
                f"language {code!r} is {language.name} in the script {script}; M4's"
                f" {language.code!r} is written in {language.script}: keep the two apart"
            )
    return language


def _script(stem: str, subtag: str) -> str | None:
    """The script that a subtag names, '' for a region, None for what is neither."""
    if subtag in _SCRIPTS:
        return _SCRIPTS[subtag]
    if _BY_ALIAS.get(stem) is _BY_ALIAS["zh"] and subtag in ("tw", "hk", "mo"):
        return "Hant"
    return "" if re.fullmatch("[a-z]{2}|[0-9]{3}", subtag) else None


def _unknown(code: str) -> str:
    spellings = _BY_ALIAS | _BY_NAME
    stem = re.split("[-_@]", code.casefold())[0]
    near = difflib.get_close_matches(stem, list(spellings), n=12, cutoff=0.65)
    found = list(dict.fromkeys(f"{spellings[n].code} ({spellings[n].name})" for n in near))[:4]
    ask = f"; did you mean {', '.join(found)}?" if found else ""
    return f"unknown language {code!r}, not one of M4's {len(LANGUAGES)}{ask}"


def _read(table: str) -> tuple[Language, ...]:
    rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return tuple(Language(code, name, script, tuple(a.split())) for code, name, script, a in rows)


# code | name | script | aliases
LANGUAGES = _read("""
af  | Afrikaans       | Latn | afr
am  | Amharic         | Ethi | amh
ar  | Arabic          | Arab | ara arb
az  | Azerbaijani     | Latn | aze azj
be  | Belarusian      | Cyrl | bel
bg  | Bulgarian       | Cyrl | bul
bn  | Bengali         | Beng | ben
bs  | Bosnian         | Latn | bos
ca  | Catalan         | Latn | cat
ceb | Cebuano         | Latn |
co  | Corsican        | Latn | cos
cs  | Czech           | Latn | ces cze
cy  | Welsh           | Latn | cym wel
da  | Danish          | Latn | dan
de  | German          | Latn | deu ger
el  | Greek           | Grek | ell gre
eo  | Esperanto       | Latn | epo
es  | Spanish         | Latn | spa
et  | Estonian        | Latn | est ekk
eu  | Basque          | Latn | eus baq
fa  | Persian         | Arab | fas per pes
fi  | Finnish         | Latn | fin
fil | Filipino        | Latn | tl tgl
fr  | French          | Latn | fra fre
fy  | West Frisian    | Latn | fry
ga  | Irish           | Latn | gle
gd  | Scottish Gaelic | Latn | gla
gl  | Galician        | Latn | glg
gu  | Gujarati        | Gujr | guj
ha  | Hausa           | Latn | hau
haw | Hawaiian        | Latn |
he  | Hebrew          | Hebr | heb iw
hi  | Hindi           | Deva | hin
hmn | Hmong           | Latn | mww
hr  | Croatian        | Latn | hrv
ht  | Haitian Creole  | Latn | hat
hu  | Hungarian       | Latn | hun
hy  | Armenian        | Armn | hye arm
id  | Indonesian      | Latn | ind in
ig  | Igbo            | Latn | ibo
is  | Icelandic       | Latn | isl ice
it  | Italian         | Latn | ita
ja  | Japanese        | Jpan | jpn
jv  | Javanese        | Latn | jav jw
ka  | Georgian        | Geor | kat geo
kk  | Kazakh          | Cyrl | kaz
km  | Khmer           | Khmr | khm
kn  | Kannada         | Knda | kan
ko  | Korean          | Kore | kor
ku  | Kurdish         | Latn | kur kmr
ky  | Kyrgyz          | Cyrl | kir
la  | Latin           | Latn | lat
lb  | Luxembourgish   | Latn | ltz
lo  | Lao             | Laoo | lao
lt  | Lithuanian      | Latn | lit
lv  | Latvian         | Latn | lav lvs
mg  | Malagasy        | Latn | mlg plt
mi  | Maori           | Latn | mri mao
mk  | Macedonian      | Cyrl | mkd mac
ml  | Malayalam       | Mlym | mal
mn  | Mongolian       | Cyrl | mon khk
mr  | Marathi         | Deva | mar
ms  | Malay           | Latn | msa may zsm zlm
mt  | Maltese         | Latn | mlt
my  | Burmese         | Mymr | mya bur
ne  | Nepali          | Deva | nep npi
nl  | Dutch           | Latn | nld dut
no  | Norwegian       | Latn | nor nb nob
ny  | Nyanja          | Latn | nya
pa  | Punjabi         | Guru | pan
pl  | Polish          | Latn | pol
ps  | Pashto          | Arab | pus pbt pbu
pt  | Portuguese      | Latn | por
ro  | Romanian        | Latn | ron rum mo mol
ru  | Russian         | Cyrl | rus
sd  | Sindhi          | Arab | snd
si  | Sinhala         | Sinh | sin
sk  | Slovak          | Latn | slk slo
sl  | Slovenian       | Latn | slv
sm  | Samoan          | Latn | smo
sn  | Shona           | Latn | sna
so  | Somali          | Latn | som
sq  | Albanian        | Latn | sqi alb als
sr  | Serbian         | Cyrl | srp
st  | Southern Sotho  | Latn | sot
su  | Sundanese       | Latn | sun
sv  | Swedish         | Latn | swe
sw  | Swahili         | Latn | swa swh
ta  | Tamil           | Taml | tam
te  | Telugu          | Telu | tel
tg  | Tajik           | Cyrl | tgk
th  | Thai            | Thai | tha
tr  | Turkish         | Latn | tur
uk  | Ukrainian       | Cyrl | ukr
ur  | Urdu            | Arab | urd
uz  | Uzbek           | Latn | uzb uzn
vi  | Vietnamese      | Latn | vie
xh  | Xhosa           | Latn | xho
yi  | Yiddish         | Hebr | yid ydd ji
yo  | Yoruba          | Latn | yor
zh  | Chinese         | Hans | zho chi cmn
zu  | Zulu            | Latn | zul
""")

_BY_NAME = {language.name.casefold(): language for language in LANGUAGES}
_BY_ALIAS = {a: language for language in LANGUAGES for a in (language.code, *language.aliases)}
# Hang is FLORES' script of Korean, the words are gettext's modifiers.
_SCRIPTS = {language.script.casefold(): language.script for language in LANGUAGES} | {
    "hant": "Hant", "hang": "Kore", "latin": "Latn", "cyrillic": "Cyrl",
}  # fmt: skip
