"""Cleaning one pair: repaired text, or the reason why it is removed.

Repaired, without removing the row: text to NFC, runs of white space to one space, HTML tags taken
out, entities decoded, invisible characters taken out (zero-width space, direction marks, soft
hyphen, byte order mark; not the joiners U+200C and U+200D, which are spelling in Persian or
Malayalam).
"""

import dataclasses
import re
import unicodedata
from collections import Counter

from gshard_m4 import scripts
from gshard_m4.preparing.markup import without_html

REASONS = {
    "empty": "one side has no text",
    "control characters": "control, private-use, replacement or half characters: broken encoding",
    "markup": "braces, brackets or tags of markup that are left",
    "no letters": "one side has no letter",
    "too long": "one side is longer than max_characters",
    "copy": "the source is the English, or has most of its words",
    "wrong script": "the source is not mainly in the language's script, or the English in Latin;"
    " traditional Chinese is another script than simplified",
    "length ratio": "one side is too long for the other",
    "duplicate": "the pair stands there already",
    "near duplicate": "the pair stands there already, but for case, spaces and punctuation",
    "held out source": "the source is one of a held-out set of its language",
    "held out English": "the English is one of a held-out set of its language",
    "held out English elsewhere": "the English is one of a held-out set of another language",
}
"""Every reason why a row is not in the prepared training text; rows count for the first only."""

REPAIRS = ("HTML", "invisible characters", "Unicode form or spaces")

# Scripts that need fewer characters than English, and how the pair's lengths may then differ.
_DENSE = {"Hans", "Hant", "Jpan", "Kore", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"}
_INVISIBLE = "\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ue000-\uf8ff"
_STRANGE = re.compile(f"[{_CONTROL}\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_HIDDEN = re.compile(f"[{_INVISIBLE}]")
_LETTER = re.compile("[A-Za-z]")
_OTHER_CHINESE = {"Hans": "Hant", "Hant": "Hans"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*$|\{\{|\}\}|\[\[|\]\]|</")


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """What is allowed in a pair.

    Attributes:
        max_characters: of each side.
        max_ratio: of the two lengths in characters, with `ratio_slack` on top.
        dense_ratio: the same where the script writes a word in few characters (Chinese, Thai, ...):
            English may be this many times longer.
        ratio_slack: characters by which one side may be longer in any case.
        copied_share: of the English words, at least four, that the source may repeat.
        script_weight: how much a letter of the language's script counts beside a Latin one (names
            of products and people are Latin in any text).
    """

    max_characters: int = 1000
    max_ratio: float = 3.0
    dense_ratio: float = 8.0
    ratio_slack: int = 12
    copied_share: float = 0.65
    script_weight: float = 1.5


def repaired(text: str, repairs: set[str]) -> str:
    """The text as it goes into the prepared files; adds to `repairs` what was done.

    Repaired text stays as it is when it is repaired again.
    """
    while True:
        once = _repaired_once(text, repairs)
        if once == text or ("&" not in once and "<" not in once):
            return once
        text = once  # `&lt;br&gt;` is a tag now; each round is shorter, so there is a last


def is_text(*texts: str) -> bool:
    """Whether UTF-8 can hold them: JSON may have half of a character that takes two."""
    return all(text.isascii() or _SURROGATE.search(text) is None for text in texts)


def _repaired_once(text: str, repairs: set[str]) -> str:
    if text.isascii() and "&" not in text and "<" not in text:
        spaced = " ".join(text.split()) if "  " in text or not text.isprintable() else text.strip()
        if spaced != text:
            repairs.add(REPAIRS[2])
        return spaced
    if "<" in text or "&" in text:
        plain = without_html(text)
        if plain != text:
            repairs.add(REPAIRS[0])
            text = plain
    visible = _HIDDEN.sub("", text)
    if visible != text:
        repairs.add(REPAIRS[1])
    spaced = " ".join(unicodedata.normalize("NFC", visible).split())
    if spaced != visible:
        repairs.add(REPAIRS[2])
    return spaced


def fault(source: str, english: str, script: str, rules: Cleaning) -> str | None:
    """The reason to remove a pair of repaired texts, None for one that is kept."""
    if not source or not english:
        return "empty"
    if _is_strange(source) or _is_strange(english):
        return "control characters"
    if _has_markup(source) or _has_markup(english):
        return "markup"
    if len(source) > rules.max_characters or len(english) > rules.max_characters:
        return "too long"
    in_source, in_english = _counts(source), _counts(english)
    if not in_source or not in_english:
        return "no letters"
    if _is_copy(source, english, rules):
        return "copy"
    if not _is_in(in_source, script, rules) or not _is_in(in_english, "Latn", rules):
        return "wrong script"
    if script in _OTHER_CHINESE and _is_other_chinese(source, script, in_source):
        return "wrong script"
    return None if _ratio_fits(len(source), len(english), script, rules) else "length ratio"


def _counts(text: str) -> dict[str, int]:
    """Letters by script; of plain ASCII only whether it has any, which is much faster."""
    if text.isascii():
        return {"Latn": 1} if _LETTER.search(text) else {}
    return scripts.script_counts(text)


def _is_strange(text: str) -> bool:
    if "\ufffd" in text:  # a replacement character, which is printable
        return True
    return not text.isprintable() and _STRANGE.search(text) is not None


def _has_markup(text: str) -> bool:
    return any(c in text for c in "<{[") and _MARKUP.search(text) is not None


def _is_copy(source: str, english: str, rules: Cleaning) -> bool:
    """The same text, or at least four English words of which the source has nearly all."""
    a, b = source.casefold(), english.casefold()
    if a == b:
        return True
    words = b.split()
    if len(words) < 4:
        return False
    there = set(a.split())
    return sum(word in there for word in words) > rules.copied_share * len(words)


def _is_in(counts: dict[str, int], script: str, rules: Cleaning) -> bool:
    """The script outweighs Latin names, and all other scripts together."""
    if len(counts) == 1 and script in counts:
        return True
    parts = scripts.JOINED.get(script, (script,))
    own = sum(counts.get(part, 0) for part in parts)
    latin = counts.get("Latn", 0) if script != "Latn" else 0
    other = sum(counts.values()) - own - latin
    weight = 2 * rules.script_weight if script in scripts.JOINED else rules.script_weight
    return own * weight >= latin and own > other


def _is_other_chinese(text: str, script: str, counts: dict[str, int]) -> bool:
    """Simplified for traditional or the reverse, by characters that only one of the two has.

    Three times as many as of its own, and one in ten: rare characters of names are in one only.
    """
    other = _OTHER_CHINESE[script]
    if scripts.chinese_script(text) != other:
        return False
    own = Counter(map(scripts.chinese_script, text))
    return own[other] > 3 * own[script] and 10 * own[other] >= counts.get("Hani", 0)


def _ratio_fits(source: int, english: int, script: str, rules: Cleaning) -> bool:
    longest = rules.dense_ratio if script in _DENSE else rules.max_ratio
    slack = rules.ratio_slack
    return english <= longest * source + slack and source <= rules.max_ratio * english + slack
