"""Scores of translations per language, their averages over languages, and their files.

Averages are over languages, never over pooled phrases. Shares are between 0 and 1, BLEU and
chrF++ between 0 and 100, exactly as sacrebleu returns them.
"""

import csv
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from importlib.metadata import version
from typing import Any

SCHEMA_VERSION = 1
METRICS = ("chrfpp", "exact", "bleu", "short", "empty", "copied", "truncated")
# Above this share of references under four tokens, BLEU says little about a language.
SHORT_FOR_BLEU = 0.2


@dataclass(frozen=True)
class LanguageScores:
    """One language's scores over the phrases of one split.

    `bleu_four_grams` counts the sequences of four tokens in the translations; where there are
    none BLEU is undefined and sacrebleu gives 0. `short` is the share of references with fewer
    than four tokens. `few_phrases`: too few for the main average.
    """

    code: str
    name: str
    script: str
    task: str
    phrases: int
    few_phrases: bool
    chrfpp: float
    exact: float
    bleu: float
    bleu_four_grams: int
    short: float
    empty: float
    copied: float
    truncated: float


@dataclass(frozen=True)
class Macro:
    """Mean and median of every metric over languages, each language counting once."""

    languages: int
    phrases: int
    mean: dict[str, float]
    median: dict[str, float]

    @property
    def counted(self) -> str:
        """How many languages, in words."""
        return f"{self.languages} language{'' if self.languages == 1 else 's'}"


@dataclass(frozen=True)
class SplitScores:
    """A split's scores: `macro` over languages with enough phrases, `macro_few` the others."""

    name: str
    title: str
    shows: str
    checkpoint_step: int
    decoder: dict[str, Any]
    macro: Macro | None
    macro_few: Macro | None
    languages: tuple[LanguageScores, ...]

    @property
    def headline(self) -> Macro:
        """The average to quote: of the languages with enough phrases, if there are any."""
        macro = self.macro or self.macro_few
        assert macro is not None
        return macro

    @property
    def ranked(self) -> list[LanguageScores]:
        """The languages behind `headline`, best chrF++ first."""
        few = self.macro is None
        chosen = [scores for scores in self.languages if scores.few_phrases == few]
        return sorted(chosen, key=lambda scores: (-scores.chrfpp, scores.code))


@dataclass(frozen=True)
class Scores:
    """What one evaluation found; `signatures` are sacrebleu's, by metric."""

    signatures: dict[str, str]
    min_phrases: int
    splits: tuple[SplitScores, ...]


def macro(languages: Sequence[LanguageScores]) -> Macro | None:
    """Averages over the languages; None when there are none."""
    if not languages:
        return None
    values = {metric: [getattr(one, metric) for one in languages] for metric in METRICS}
    return Macro(
        languages=len(languages),
        phrases=sum(one.phrases for one in languages),
        mean={metric: statistics.fmean(found) for metric, found in values.items()},
        median={metric: statistics.median(found) for metric, found in values.items()},
    )


def best_and_worst(
    split: SplitScores, count: int = 10
) -> tuple[list[LanguageScores], list[LanguageScores]]:
    """The `count` best languages and, of the others, the `count` worst (worst first)."""
    ranked = split.ranked
    return ranked[:count], ranked[count:][: -count - 1 : -1]


def to_json(scores: Scores) -> str:
    """The text of scores.json (the README describes its fields)."""
    splits = {split.name: asdict(split) for split in scores.splits}
    document = {
        "schema": "gshard-m4 scores",
        "schema_version": SCHEMA_VERSION,
        "versions": {name: version(name) for name in ("gshard-m4", "sacrebleu")},
        "signatures": scores.signatures,
        "min_phrases": scores.min_phrases,
        "splits": splits,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def to_csv(scores: Scores) -> str:
    """The text of scores.csv: one row a split and language, signatures in every row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [field.name for field in fields(LanguageScores)]
    writer.writerow(["split", *names, *(f"{name}_signature" for name in scores.signatures)])
    for split in scores.splits:
        for one in split.languages:
            writer.writerow([split.name, *astuple(one), *scores.signatures.values()])
    return out.getvalue()
