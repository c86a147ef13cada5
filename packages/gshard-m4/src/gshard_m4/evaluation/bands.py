"""Resource bands: which languages had much training data, and which little."""

from collections.abc import Mapping
from dataclasses import replace

from gshard_m4 import languages
from gshard_m4.evaluation.evaluate import changed
from gshard_m4.evaluation.scores import LanguageScores, Scores, SplitScores


def bands_of(sizes: Mapping[str, int], bounds: tuple[int, int] | None = None) -> dict[str, str]:
    """The resource band of every language by its training size.

    By rank in M4's proportions, 25 high, 52 mid and 25 low of 102, unless bounds are given: low is
    then below the first, high at least the second.
    """
    if bounds is not None:
        low, high = bounds
        return {
            code: "high" if size >= high else "low" if size < low else "mid"
            for code, size in sizes.items()
        }
    ordered = sorted(sizes, key=lambda code: (-sizes[code], code))
    whole = sum(languages.BAND_SIZES.values())
    high, low = (round(len(ordered) * languages.BAND_SIZES[end] / whole) for end in ("high", "low"))
    middle = ["mid"] * (len(ordered) - high - low)
    return dict(zip(ordered, ["high"] * high + middle + ["low"] * low, strict=True))


def with_sizes(
    scores: Scores, sizes: Mapping[str, int], source: str, bounds: tuple[int, int] | None = None
) -> Scores:
    """The scores with training sizes, and bands by them; `source` says where sizes are from."""
    bands = bands_of(sizes, bounds)
    by = "rank as in M4, 25:52:25" if bounds is None else f"bounds of {bounds[0]:,}, {bounds[1]:,}"

    def add(_: SplitScores, one: LanguageScores) -> LanguageScores:
        return replace(one, train_rows=sizes.get(one.code), band=bands.get(one.code))

    return changed(replace(scores, bands_from=f"training rows in {source}, by {by}"), add)


def with_table_bands(scores: Scores) -> Scores:
    """The scores with the bands of the table of languages."""
    bands = {language.code: language.band for language in languages.LANGUAGES}

    def add(_: SplitScores, one: LanguageScores) -> LanguageScores:
        return replace(one, band=bands.get(one.code))

    return changed(replace(scores, bands_from="the table of languages (ranked by mC4)"), add)
