"""Several systems over the same test set, language by language.

Everything is over the languages that all systems have: a mean over other languages would compare
languages instead of systems. The first system is the one that the others are measured against.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gshard_m4.evaluation.ranking import quoted_rows
from gshard_m4.evaluation.scores import (
    BANDS,
    LanguageScores,
    Metric,
    Scores,
    SplitScores,
)
from gshard_m4.report.series import Point, Series
from gshard_m4.report.sizes import sizes_of

Row = tuple[LanguageScores, ...]  # a language's scores of each system


@dataclass(frozen=True)
class Compared:
    """One split of several systems; `rows` has each system's scores of a language, in order.

    Means and pictures are of the `quoted` rows, those with enough phrases, as in every evaluation.
    Where no translation has four tokens BLEU is sacrebleu's 0, here as in every average.
    `missing` names, for each system, languages that another system has and it has not.
    """

    name: str
    title: str
    shows: str
    systems: tuple[str, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    missing: tuple[tuple[str, ...], ...]

    @property
    def quoted(self) -> list[Row]:
        """The rows behind means, counts and pictures."""
        return quoted_rows(self.rows)

    @property
    def few(self) -> list[Row]:
        """The rows that averages leave out, as they have too few phrases."""
        quoted = {row[0].code for row in self.quoted}
        return [row for row in self.rows if row[0].code not in quoted]

    def difference(self, row: Row, key: str, system: int) -> float | None:
        """What a system has more of `key` than the first one."""
        first, other = row[0].value(key), row[system].value(key)
        return None if first is None or other is None else other - first

    def mean(self, key: str, system: int, *, band: str = "") -> float | None:
        """A system's mean over the quoted rows with a value of all systems, in a band if given."""
        found = [
            row[system].value(key)
            for row in self.quoted
            if (not band or band_of(row) == band) and all(one.value(key) is not None for one in row)
        ]
        known = [value for value in found if value is not None]
        return statistics.fmean(known) if known else None

    def series(self, key: str) -> list[Series]:
        """Every system's scores, ready to be drawn."""
        return [
            self._series(system, [(row, row[system].value(key)) for row in self.quoted])
            for system in range(len(self.systems))
        ]

    def differences(self, key: str) -> list[Series]:
        """The differences of all systems but the first to the first, ready to be drawn."""
        return [
            self._series(system, [(row, self.difference(row, key, system)) for row in self.quoted])
            for system in range(1, len(self.systems))
        ]

    def _series(self, system: int, found: Sequence[tuple[Row, float | None]]) -> Series:
        bands = {band: sum(band_of(row) == band for row in self.quoted) for band in BANDS}
        sizes = sizes_of(replace(row[0], train_rows=rows_of(row)) for row in self.quoted)
        points = tuple(
            Point(
                row[0].code,
                row[0].name,
                value,
                sizes.by_code.get(row[0].code),
                _band_title(row, bands),
            )
            for row, value in found
            if value is not None
        )
        return Series(self.systems[system], points, style=system, size_of=sizes.of)


def compared(systems: Sequence[Scores]) -> list[Compared]:
    """The splits that all systems have, in the first one's order."""
    found = []
    for split in systems[0].splits:
        same = [_named(scores, split.name) for scores in systems]
        splits = [each for each in same if each is not None]
        if len(splits) == len(systems):
            found.append(_compared(systems, splits))
    return found


def band_of(row: Sequence[LanguageScores]) -> str:
    """The resource band that a system says the language is in."""
    return next((one.band for one in row if one.band), "")


def rows_of(row: Sequence[LanguageScores]) -> int | None:
    """The number of training pairs that a system says the language has, the first's if it does."""
    return next((one.train_rows for one in row if one.train_rows is not None), None)


def _band_title(row: Sequence[LanguageScores], sizes: dict[str, int]) -> str:
    band = band_of(row)
    return f"{band} ({sizes[band]})" if band in sizes else ""


def _named(scores: Scores, name: str) -> SplitScores | None:
    return next((split for split in scores.splits if split.name == name), None)


def _compared(systems: Sequence[Scores], splits: Sequence[SplitScores]) -> Compared:
    tables = [{one.code: one for one in split.languages} for split in splits]
    every = {code: one.name for table in tables for code, one in table.items()}
    shared = [code for code in tables[0] if all(code in table for table in tables)]
    rows = [tuple(table[code] for table in tables) for code in shared]
    rows.sort(key=lambda row: (rows_of(row) is None, -(rows_of(row) or 0), row[0].code))
    keys = [{metric.key for metric in scores.metrics} for scores in systems]
    leading = systems[0].leading
    metrics = [metric for metric in systems[0].metrics if all(metric.key in each for each in keys)]
    metrics.sort(key=lambda metric: metric != leading)
    return Compared(
        name=splits[0].name,
        title=splits[0].title,
        shows=splits[0].shows,
        systems=tuple(scores.name or f"system {n}" for n, scores in enumerate(systems, 1)),
        metrics=tuple(metrics),
        rows=tuple(rows),
        missing=tuple(
            tuple(name for code, name in every.items() if code not in table) for table in tables
        ),
    )
