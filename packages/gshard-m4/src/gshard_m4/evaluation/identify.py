"""Whether a translation is in English, as far as a text of its length can tell.

Two rules. A text whose letters are mostly not Latin is not English, however short. In Latin
letters, from six words on, py3langid decides among English and M4's languages: another language
comes first and English has a probability under 0.1. On the news sentences of NTREX-128 that takes
0.3 % of the English for something else (1 % of it when cut to its first six words) and 99.9 % of
91 other languages' sentences for what they are (99.4 %).
"""

import functools
from typing import Any

from gshard_m4 import languages, scripts
from gshard_m4.input_error import InputError

MIN_WORDS = 6
_ENGLISH = "en"
_UNLIKELY = 0.1
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
        long_enough = len(text.split()) >= MIN_WORDS
        if script not in (None, "Latn") and not long_enough:
            return script
        if script is None or not long_enough:
            return None
        ranked = self._model.rank(text)
        best = ranked[0][0]
        if script == "Latn" and (best == _ENGLISH or dict(ranked)[_ENGLISH] >= _UNLIKELY):
            return _ENGLISH
        return _NAMES.get(best, best) if best != _ENGLISH else script


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
