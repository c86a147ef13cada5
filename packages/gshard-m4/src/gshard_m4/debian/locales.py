"""The language of a program's locale, whatever the program calls it."""

import functools
import re

from gshard_m4 import languages
from gshard_m4.languages import Language

# What translators mean by a locale, where the tag alone would say something else.
_MEANT = {
    "az_ir": "azb",
    "ku_arab": "ckb",
    "ku_iq": "ckb",
    "pa_pk": "pnb",
    "sh_latn": "sh",
    "nds_nl": "nds_nl",
}
# MediaWiki's code of Alemannic is ISO 639-3's of Albanian.
_MEANT_BY_MEDIAWIKI = {"als": "gsw"}
_NOT_A_LANGUAGE = re.compile("(?:c|posix|all|src|qqx|en)(?:[_@.-].*)?", re.IGNORECASE)


@functools.cache
def language_of(locale: str, *, mediawiki: bool = False) -> Language | None:
    """The language, a variant or one outside M4 as well; None for English or an unknown code."""
    if _NOT_A_LANGUAGE.fullmatch(locale):
        return None
    code = re.split("[.]", locale)[0].replace("-", "_").replace("@", "_").lower()
    if mediawiki:
        code = _MEANT_BY_MEDIAWIKI.get(code, code)
    try:
        return languages.find(_MEANT.get(code, code), variants=True, others=True)
    except ValueError:
        return None
