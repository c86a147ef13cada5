"""The script of a text by its letters, with ISO 15924 codes.

Only letters count: digits, punctuation, combining marks, and letters of no script (mathematical
alphabets, the modifier apostrophe) do not. Single characters have the scripts `Latn`, `Cyrl`,
`Hani`, `Hira`, `Kana`, `Hang`, ...; those that languages are written in may join several of them:
`Jpan` is Han, Hiragana and Katakana, `Kore` is Hangul and Han, `Hans` and `Hant` are both Han and
told apart by `chinese_script` only. Letters of a script not listed here count as `Zzzz`.
"""

import unicodedata

JOINED = {
    "Jpan": ("Hira", "Kana", "Hani"),
    "Kore": ("Hang", "Hani"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
}
"""Scripts of languages that consist of several scripts of characters, or of one by another name."""


def script_counts(text: str) -> dict[str, int]:
    """The number of letters in each script of characters, the most frequent first."""
    kinds = text.translate(_SCRIPT_OF)
    counts = {_SCRIPTS[ord(kind)]: kinds.count(kind) for kind in set(kinds)}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def main_script(text: str) -> str | None:
    """The script that most letters are in; None for a text without letters.

    Han characters beside kana are `Jpan`, beside Hangul `Kore`, and alone `Hani`.
    """
    counts = script_counts(text)
    kana = counts.pop("Hira", 0) + counts.pop("Kana", 0)
    hangul = counts.pop("Hang", 0)
    han = counts.pop("Hani", 0)
    counts |= {"Jpan": kana, "Kore": hangul, "Hani": han}
    if han and (kana or hangul):
        counts["Jpan" if kana >= hangul else "Kore"] += counts.pop("Hani")
    best = max(counts, key=lambda script: counts[script])
    return best if counts[best] else None


def share_in(text: str, script: str) -> float:
    """The share of the letters that a script has, from 0 to 1; 0 for a text without letters.

    Raises:
        ValueError: for a script that is not known here.
    """
    wanted = _KINDS.get(script)
    if wanted is None:
        raise ValueError(f"unknown script {script!r}; known are {', '.join(KNOWN)}")
    kinds = text.translate(_SCRIPT_OF)
    if not kinds:
        return 0.0
    return sum(kinds.count(kind) for kind in wanted) / len(kinds)


def chinese_script(text: str) -> str | None:
    """`Hans` or `Hant`, whichever has more characters of its own in the text, or None.

    A character is one script's own when only one of the two national character sets has it: GB
    2312 for simplified, Big5 for traditional. Most characters are in both; rare ones in neither.
    """
    own = text.translate(_CHINESE)
    simplified, traditional = own.count("s"), own.count("t")
    if simplified == traditional:
        return None
    return "Hans" if simplified > traditional else "Hant"


class _ScriptOf(dict[int, str | None]):
    """A translation table: a letter becomes its script's mark, anything else is deleted.

    Filled as characters are met; str.translate then runs at the speed of dictionary lookups.
    """

    def __missing__(self, code_point: int) -> str | None:
        self[code_point] = kind = _kind(chr(code_point))
        return kind


class _Chinese(dict[int, str | None]):
    """A translation table to s (simplified only) and t (traditional only)."""

    def __missing__(self, code_point: int) -> str | None:
        simplified = _encodes(chr(code_point), "gb2312")
        traditional = _encodes(chr(code_point), "big5")
        is_han = _SCRIPT_OF[code_point] == chr(_SCRIPTS.index("Hani"))
        own = None if not is_han or simplified == traditional else "s" if simplified else "t"
        self[code_point] = own
        return own


def _encodes(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _kind(character: str) -> str | None:
    if not unicodedata.category(character).startswith("L"):
        return None
    words = unicodedata.name(character, "").replace("-", " ").split()
    if words and words[0] in ("FULLWIDTH", "HALFWIDTH"):
        words = words[1:]
    for length in (3, 2, 1):
        script = _BY_NAME.get(" ".join(words[:length]))
        if script:
            return chr(_SCRIPTS.index(script))
    return None if words and words[0] in _NO_SCRIPT else chr(_SCRIPTS.index("Zzzz"))


# The first words of the Unicode names of a script's letters.
_BY_NAME = {
    "ADLAM": "Adlm", "ARABIC": "Arab", "ARMENIAN": "Armn", "BALINESE": "Bali", "BATAK": "Batk",
    "BENGALI": "Beng", "BOPOMOFO": "Bopo", "BUGINESE": "Bugi", "BUHID": "Buhd",
    "CANADIAN SYLLABICS": "Cans", "CHAKMA": "Cakm", "CHAM": "Cham", "CHEROKEE": "Cher",
    "CJK": "Hani", "COPTIC": "Copt", "CYRILLIC": "Cyrl", "DESERET": "Dsrt", "DEVANAGARI": "Deva",
    "ETHIOPIC": "Ethi", "GEORGIAN": "Geor", "GLAGOLITIC": "Glag", "GOTHIC": "Goth",
    "GREEK": "Grek", "GUJARATI": "Gujr", "GURMUKHI": "Guru", "HANGUL": "Hang", "HANIFI": "Rohg",
    "HANUNOO": "Hano", "HEBREW": "Hebr", "HIRAGANA": "Hira", "IDEOGRAPHIC": "Hani",
    "JAVANESE": "Java", "KANNADA": "Knda", "KATAKANA": "Kana", "KAYAH LI": "Kali",
    "KHMER": "Khmr", "LAO": "Laoo", "LATIN": "Latn", "LEPCHA": "Lepc", "LIMBU": "Limb",
    "LISU": "Lisu", "MALAYALAM": "Mlym", "MANDAIC": "Mand", "MEETEI MAYEK": "Mtei",
    "MONGOLIAN": "Mong", "MYANMAR": "Mymr", "NEW TAI LUE": "Talu", "NKO": "Nkoo",
    "NYIAKENG PUACHUE": "Hmnp", "OGHAM": "Ogam", "OL CHIKI": "Olck", "ORIYA": "Orya",
    "OSAGE": "Osge", "OSMANYA": "Osma", "PAHAWH HMONG": "Hmng", "PHAGS PA": "Phag",
    "REJANG": "Rjng", "RUNIC": "Runr", "SAMARITAN": "Samr", "SAURASHTRA": "Saur",
    "SINHALA": "Sinh", "SUNDANESE": "Sund", "SYLOTI NAGRI": "Sylo", "SYRIAC": "Syrc",
    "TAGALOG": "Tglg", "TAGBANWA": "Tagb", "TAI LE": "Tale", "TAI THAM": "Lana",
    "TAI VIET": "Tavt", "TAMIL": "Taml", "TELUGU": "Telu", "THAANA": "Thaa", "THAI": "Thai",
    "TIBETAN": "Tibt", "TIFINAGH": "Tfng", "VAI": "Vaii", "YI": "Yiii",
}  # fmt: skip
# Letters that Unicode gives to the script Common, by the first word of their names.
_NO_SCRIPT = frozenset(
    [
        "ALEF", "ANGSTROM", "BET", "BLACK", "DALET", "DOUBLE", "EULER", "FEMININE", "GIMEL",
        "INFORMATION", "KELVIN", "MASCULINE", "MASU", "MATHEMATICAL", "MICRO", "MODIFIER", "OHM",
        "PLANCK", "SCRIPT", "TURNED", "VERTICAL",
    ]
)  # fmt: skip
_SCRIPTS = (*sorted(set(_BY_NAME.values())), "Zzzz")
_KINDS = {script: chr(index) for index, script in enumerate(_SCRIPTS)} | {
    joined: "".join(chr(_SCRIPTS.index(script)) for script in scripts)
    for joined, scripts in JOINED.items()
}
KNOWN = tuple(sorted(_KINDS))
"""Every script that `share_in` takes."""
_SCRIPT_OF = _ScriptOf()
_CHINESE = _Chinese()
