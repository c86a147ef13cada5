"""Whether a translation is in English, as far as a text of its length can tell.

A text whose letters are mostly not Latin is not English, however short. In Latin letters, from six
words on, one with three different words of English grammar is English; of the others py3langid
decides among English and M4's languages: another language comes first and English has a
probability under 0.1. On the news sentences of NTREX-128 that takes 0.3 % of the English for
something else (1 % of it when cut to its first six words) and 99.9 % of 91 other languages'
sentences for what they are (99.4 %).
"""

import functools
from typing import Any

from gshard_m4 import languages, scripts
from gshard_m4.input_error import InputError

MIN_WORDS = 6
_ENGLISH = "en"
_UNLIKELY = 0.1
# Three of them decide at a tenth of the model's cost: of NTREX's sentences they are in 55 % of the
# English, and in 1 of 10,000 others, most of which turn out to be English left untranslated.
_GRAMMAR = frozenset({
    "the", "of", "and", "that", "with", "from", "this", "they", "which", "were", "their", "been",
    "would", "who", "but", "his", "has", "was", "said",
})  # fmt: skip
_ENOUGH_GRAMMAR = 3
# py3langid's own name of a language that is called otherwise here.
_NAMES = {"tl": "fil"}


class Identifier:
    """py3langid's model, which its wheel brings, for English and M4's languages."""

    def __init__(self) -> None:
        """Loads the model.

        Raises:
          InputError: py3langid is not installed.
        """
        self._model = _model()

    def language(self, text: str) -> str | None:
        """`en`, the language that the text is in instead, or None for one that cannot be told.

        A script stands for the language where only that is known to be another one.
        """
        script = scripts.main_script(text)
        words = text.casefold().split()
        if script is None or len(words) < MIN_WORDS:
            return None if script in (None, "Latn") else script
        if script == "Latn" and len(_GRAMMAR.intersection(words)) >= _ENOUGH_GRAMMAR:
            return _ENGLISH
        best, _ = self._model.classify(text)
        if best == _ENGLISH:
            return _ENGLISH if script == "Latn" else script
        if script == "Latn" and dict(self._model.rank(text))[_ENGLISH] >= _UNLIKELY:
            return _ENGLISH
        return _NAMES.get(best, best)


@functools.cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError([
            "the wrong-language share needs py3langid, which is not installed: pip install "
            "py3langid, or leave the share out with --no-identify"
        ]) from None  # fmt: skip
    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    codes = {language.code for language in languages.LANGUAGES} | {_ENGLISH}
    model.set_languages(label for label in model.labels if _NAMES.get(label, label) in codes)
    return model
