"""Scores of translations per language, and their averages over languages.

Averages are over languages, never over pooled phrases. Shares are between 0 and 1; BLEU, chrF++,
spBLEU and TER are as sacrebleu returns them. What was not computed, or is not known, is None.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Values of `LanguageScores` by the names that `value`, `Macro.mean` and the CSV use.
SACREBLEU_METRICS = ("bleu", "chrfpp", "spbleu", "ter")
SHARES = (
    "exact", "short", "empty", "copied", "truncated", "repeated", "over_long", "wrong_language",
    "tokenized",
)  # fmt: skip
BANDS = ("high", "mid", "low")
# Above this share of references under four tokens, BLEU says little about a language.
SHORT_FOR_BLEU = 0.2


@dataclass(frozen=True)
class Metric:
    """A score that every language has: how it is called and how it was computed.

    `merged` ones were computed elsewhere and read from a file. `key` is the name in `value`.
    """

    key: str
    title: str
    signature: str
    higher_is_better: bool = True
    merged: bool = False


@dataclass(frozen=True)
class SentenceScore:
    """chrF++ of one phrase; `row` counts from 0 in the order of the task's rows."""

    row: int
    id: int | str
    chrfpp: float


@dataclass(frozen=True)
class OtherLanguage:
    """A translation that is not in English: its row and the language it was taken for."""

    row: int
    id: int | str
    language: str


@dataclass(frozen=True)
class Paired:
    """Paired test of a system against its baseline in one metric.

    `p` is sacrebleu's, `p_holm` corrected for the number of languages. The 95 % interval of each
    system's own score is its mean over resamples, plus and minus `ci`.
    """

    p: float
    p_holm: float
    mean: float
    ci: float
    baseline_mean: float
    baseline_ci: float


@dataclass(frozen=True)
class LanguageScores:
    """One language's scores over the phrases of one split.

    `bleu_four_grams` counts the sequences of four tokens in the translations; where there are
    none BLEU is undefined and sacrebleu gives 0. `short` is the share of references with fewer
    than four tokens. `few_phrases`: too few for the main average. `defects` says what the other
    shares count. `wrong_language` is the share of the `identified` translations, those long enough
    for their language to be told. `baseline` and `delta` have a metric's key only where the
    baseline has a score.
    """

    code: str
    name: str
    script: str
    task: str
    phrases: int
    few_phrases: bool
    chrfpp: float | None
    exact: float
    bleu: float | None
    bleu_four_grams: int | None
    spbleu: float | None
    ter: float | None
    short: float | None
    empty: float
    copied: float | None
    truncated: float | None
    repeated: float
    over_long: float
    wrong_language: float | None
    identified: int | None
    train_rows: int | None = None
    band: str | None = None
    merged: dict[str, float] = field(default_factory=dict)
    baseline: dict[str, float] = field(default_factory=dict)
    delta: dict[str, float] = field(default_factory=dict)
    paired: dict[str, Paired] = field(default_factory=dict)
    worst: tuple[SentenceScore, ...] = ()
    other_languages: tuple[OtherLanguage, ...] = ()
    references_sha256: str = ""
    sources_known: bool = True
    tokenized: float = 0.0

    def value(self, key: str) -> float | None:
        """A metric, a share, `train_rows`, a merged score or, as `delta_<key>`, a difference."""
        if key.startswith("delta_"):
            return self.delta.get(key.removeprefix("delta_"))
        return self.merged[key] if key in self.merged else getattr(self, key, None)


@dataclass(frozen=True)
class Macro:
    """Mean and median of every value over languages, each language counting once.

    A value that some languages do not have is averaged over the others: `known` says how many.
    """

    languages: int
    phrases: int
    mean: dict[str, float]
    median: dict[str, float]
    known: dict[str, int]

    @property
    def counted(self) -> str:
        """How many languages, in words."""
        return f"{self.languages} language{'' if self.languages == 1 else 's'}"


@dataclass(frozen=True)
class Band:
    """The languages of one resource band: high, mid or low.

    `smallest` and `largest` are the training sizes at its ends, where sizes are known.
    """

    name: str
    smallest: int | None
    largest: int | None
    macro: Macro


@dataclass(frozen=True)
class SplitScores:
    """A split's scores: `macro` over languages with enough phrases, `macro_few` the others.

    `languages` are in order of `rank`, those with few phrases last.
    `bands` are of the languages behind `headline`. `not_scored` names languages that the test set
    has and that were left out on request.
    """

    name: str
    title: str
    shows: str
    checkpoint_step: int | None
    decoder: dict[str, Any]
    macro: Macro | None
    macro_few: Macro | None
    languages: tuple[LanguageScores, ...]
    bands: tuple[Band, ...] = ()
    not_scored: tuple[str, ...] = ()

    @property
    def headline(self) -> Macro:
        """The average to quote: of the languages with enough phrases, if there are any."""
        macro = self.macro or self.macro_few
        assert macro is not None
        return macro

    @property
    def quoted(self) -> list[LanguageScores]:
        """The languages behind `headline`."""
        few = self.macro is None
        return [scores for scores in self.languages if scores.few_phrases == few]

    @property
    def ranked(self) -> list[LanguageScores]:
        """The languages behind `headline`, best first: `languages` are in that order."""
        return self.quoted


@dataclass(frozen=True)
class Baseline:
    """What deltas are against: another run or a table of numbers.

    `signatures` are the baseline's own, by metric; a table of numbers has none.
    """

    name: str
    kind: str
    signatures: dict[str, str]


@dataclass(frozen=True)
class Significance:
    """How significance was tested: `bootstrap` or `randomization`, with the full signatures."""

    method: str
    samples: int
    signatures: dict[str, str]
    languages: int


@dataclass(frozen=True)
class Scores:
    """What one evaluation found.

    `bands_from` says where bands came from, `files` which models were used, with their hashes,
    and `written` what lies beside scores.json. `remarks` are sentences about what was given and
    could not be used, or not be checked.
    """

    metrics: tuple[Metric, ...]
    min_phrases: int
    splits: tuple[SplitScores, ...]
    name: str = ""
    command: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    bands_from: str = ""
    baseline: Baseline | None = None
    significance: Significance | None = None
    files: dict[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def signatures(self) -> dict[str, str]:
        """The signature of every metric, by its key."""
        return {metric.key: metric.signature for metric in self.metrics}

    @property
    def leading(self) -> Metric | None:
        """The metric that languages are ranked by."""
        return leading_of(self.metrics)


def leading_of(metrics: Sequence[Metric]) -> Metric | None:
    """The metric to rank by: chrF++ where it was computed, else the first."""
    found = {metric.key: metric for metric in metrics}
    return next((found[key] for key in ("chrfpp", *found) if key in found), None)


def macro(languages: Sequence[LanguageScores]) -> Macro | None:
    """Averages over the languages; None when there are none."""
    if not languages:
        return None
    keys = [*SACREBLEU_METRICS, *SHARES]
    keys += dict.fromkeys(key for one in languages for key in one.merged)
    keys += dict.fromkeys(f"delta_{key}" for one in languages for key in one.delta)
    values = {key: known_values(languages, key) for key in keys}
    values = {key: found for key, found in values.items() if found}
    return Macro(
        languages=len(languages),
        phrases=sum(one.phrases for one in languages),
        mean={key: statistics.fmean(found) for key, found in values.items()},
        median={key: float(statistics.median(found)) for key, found in values.items()},
        known={key: len(found) for key, found in values.items()},
    )


def known_values(languages: Sequence[LanguageScores], key: str) -> list[float]:
    """The value of every language that has it."""
    found = (one.value(key) for one in languages)
    return [value for value in found if value is not None]
