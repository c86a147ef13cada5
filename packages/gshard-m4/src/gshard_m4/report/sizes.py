"""How much text each language has: what the languages of a picture are ordered by."""

from collections.abc import Iterable
from dataclasses import dataclass

from gshard_m4.evaluation.scores import LanguageScores
from gshard_m4.languages import find
from gshard_m4.report.series import TRAINING, SizeOf

MC4 = SizeOf("text in mC4", "tokens in mC4")


@dataclass(frozen=True)
class Sizes:
    """Sizes by code, and what they are sizes of."""

    by_code: dict[str, int]
    of: SizeOf = TRAINING


def sizes_of(languages: Iterable[LanguageScores]) -> Sizes:
    """Training sizes; where none is known, the sizes of mC4, by which the bands go then too."""
    listed = list(languages)
    known = {one.code: one.train_rows for one in listed if one.train_rows is not None}
    if known:
        return Sizes(known)
    tokens = {one.code: find(one.code, variants=True, others=True).mc4_tokens for one in listed}
    found = {code: round(billions * 1e9) for code, billions in tokens.items() if billions}
    return Sizes(found, MC4)
