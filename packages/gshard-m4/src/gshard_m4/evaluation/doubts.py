"""Sides of a test set that fit together and yet look like others than they were given for."""

from collections.abc import Callable, Iterator, Sequence

from gshard_m4 import languages, scripts
from gshard_m4.evaluation.alignment import shifted
from gshard_m4.evaluation.translations import Translation

# Fewer lines may well be all alike.
_ENOUGH = 20
# More blank lines than a system leaves out now and then.
_BLANK = 0.2
_LINES_TO_IDENTIFY = 200


def about_hypotheses(rows: Sequence[Translation]) -> Iterator[str]:
    """What the hypotheses are instead, in words that follow their file's name."""
    if len(rows) < _ENOUGH:
        return
    if all(row.prediction == row.reference for row in rows):
        yield "has the references, line for line"
    if all(row.prediction == row.source for row in rows):
        yield "has the sources, line for line"
    blank = sum(not row.prediction.strip() for row in rows)
    if blank == len(rows):
        yield "has no text in any line"
    elif blank >= _BLANK * len(rows):
        yield f"has no text in {blank:,} of {len(rows):,} lines"
    else:
        place = shifted([row.prediction for row in rows], [row.reference for row in rows])
        if place:
            yield place


def about_references(
    references: Sequence[str],
    sources: Sequence[str | None],
    identify: Callable[[str], str | None] | None,
) -> Iterator[str]:
    """What the references are instead of English, in words that follow their file's name."""
    if len(references) < _ENOUGH:
        return
    alike = sum(one == other for one, other in zip(references, sources, strict=True))
    if alike * 2 > len(references):
        yield "has the sources; references must be the English side"
        return
    script = scripts.main_script("\n".join(references))
    if script is None:
        yield "has no letters; references must be English"
    elif script != "Latn":
        yield f"is written in {script}, not in English; references must be the English side"
    elif language := _other_language(references, identify):
        yield f"is in {language}, not in English; references must be the English side"


def _other_language(references: Sequence[str], identify: Callable[[str], str | None] | None) -> str:
    """The language that most references are in, '' if that is English or cannot be told."""
    if identify is None:
        return ""
    told = [identify(text) for text in references[:_LINES_TO_IDENTIFY]]
    told = [one for one in told if one is not None]
    if len(told) < _ENOUGH or told.count("en") * 2 >= len(told):
        return ""
    code = max(sorted(set(told) - {"en"}), key=told.count)
    names = {language.code: language.name for language in languages.LANGUAGES}
    return f"{names[code]} ({code})" if code in names else code
