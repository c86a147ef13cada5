"""Whether the vocabularies of a prepared directory are there and fit its text."""

from collections.abc import Iterator, Sequence

from gshard_m4.doctor.checks import Finding
from gshard_m4.input_error import InputError
from gshard_m4.prepared import Prepared
from gshard_m4.vocabulary import Vocabulary
from gshard_m4.vocabulary.coverage import flags
from gshard_m4.vocabulary.measuring import cover

# Unknown tokens with which a vocabulary is of other text: every second sentence has one.
_FAR_TOO_MANY = 0.02


def check_vocabularies(prepared: Prepared, codes: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with them, for each language that they do not fit."""
    models = {}
    for side, path in (
        ("source", prepared.source_vocabulary),
        ("target", prepared.target_vocabulary),
    ):
        if not path.exists():
            yield Finding(check="no vocabulary", detail=f"no {side} vocabulary, {path}")
            continue
        try:
            models[side] = Vocabulary(path)
        except (OSError, ValueError) as error:
            yield Finding(check="vocabulary", detail=str(error))
    if len(models) < 2:
        return
    try:
        english, languages = cover(prepared, codes, models["source"], models["target"])
    except InputError:
        return  # Files that cannot be read are found where they are checked.
    for coverage in (english, *languages):
        check = "vocabulary" if coverage.unknown_rate > _FAR_TOO_MANY else "vocabulary fit"
        for reason in flags(coverage):
            yield Finding(check=check, language=coverage.code, detail=reason)
