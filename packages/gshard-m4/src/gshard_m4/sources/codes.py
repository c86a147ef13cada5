"""Which languages of a source are taken."""

from collections.abc import Callable, Collection

from gshard_m4 import languages
from gshard_m4.input_error import InputError
from gshard_m4.languages import Language

WITHOUT_ENGLISH = "of a pair without English"


def resolver(
    wanted: Collection[str] = (), *, any_language: bool = False, skip_unknown: bool = False
) -> Callable[[str], Language]:
    """A function from a spelling to its language.

    It raises LookupError for a language that is left out (with a message, where there is something
    to tell), and ValueError for a code that is unknown.

    Args:
        wanted: codes of the languages to take; empty for all.
        any_language: take languages outside M4 and other scripts too.
        skip_unknown: leave unknown codes out instead of refusing them.

    Raises:
        InputError: a wanted language is unknown.
    """
    codes = _wanted_codes(wanted)

    def resolve(spelling: str) -> Language:
        if languages.names_two_languages(spelling):
            raise LookupError(WITHOUT_ENGLISH)
        try:
            language = languages.find(spelling, variants=True, others=True)
        except ValueError as error:
            if codes:
                raise LookupError("") from None
            if skip_unknown:
                raise LookupError(str(error)) from None
            raise
        if codes:
            if language.code not in codes:
                raise LookupError("")
            return language
        if language.band is None and not any_language:
            raise LookupError(f"{language.name} ({language.code}) is not one of M4's languages")
        return language

    return resolve


def _wanted_codes(wanted: Collection[str]) -> set[str]:
    codes, faults = set(), []
    for code in wanted:
        try:
            codes.add(languages.find(code, variants=True, others=True).code)
        except ValueError as error:
            faults.append(f"--languages: {error}")
    if faults:
        raise InputError(faults)
    return codes
