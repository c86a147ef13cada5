"""Differences to a baseline: another run, or a table of scores such as bilingual systems'.

A language that the baseline lacks has no difference and is left out of the mean difference. What
cannot be compared is refused: other signatures, another test set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gshard_m4.evaluation.evaluate import changed
from gshard_m4.evaluation.merged import key_of
from gshard_m4.evaluation.metrics import KINDS
from gshard_m4.evaluation.score_files import read_scores
from gshard_m4.evaluation.scores import Baseline, LanguageScores, Scores, SplitScores
from gshard_m4.evaluation.tables import read_table
from gshard_m4.evaluation.translations import Find
from gshard_m4.input_error import InputError

_ALL_SETS = ""


@dataclass(frozen=True)
class Against:
    """A baseline and its scores: set, then language, then metric; a table is for every set.

    `references` has the hashes of a run's references by set and language.
    """

    baseline: Baseline
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    references: Mapping[str, Mapping[str, str]]


def read_baseline(path: Path, find: Find) -> Against:
    """A scores.json or the folder of a report, or a CSV or TSV with language, bleu, chrf++, ...

    Raises:
      InputError: everything that is wrong with it.
    """
    if path.suffix in (".csv", ".tsv"):
        return _from_table(path, find)
    scores = read_scores(path)
    return from_scores(scores, scores.name or path.stem)


def from_scores(scores: Scores, name: str) -> Against:
    """Another run as the baseline."""
    keys = list(scores.signatures)
    values = {
        split.name: {one.code: _known(one, keys) for one in split.languages}
        for split in scores.splits
    }
    references = {
        split.name: {one.code: one.references_sha256 for one in split.languages}
        for split in scores.splits
    }
    return Against(Baseline(name, "run", scores.signatures), values, references)


def with_baseline(scores: Scores, against: Against) -> Scores:
    """The scores with the baseline's beside them, and the differences; no tests, as yet.

    Raises:
      InputError: a metric of both whose signatures differ, or test sets that differ.
    """
    faults = list(_signature_faults(scores, against)) + list(_reference_faults(scores, against))
    if faults:
        raise InputError(faults)

    def add(split: SplitScores, one: LanguageScores) -> LanguageScores:
        by_code = against.values.get(split.name, against.values.get(_ALL_SETS, {}))
        theirs = by_code.get(one.code, {})
        ours = _known(one, scores.signatures)
        both = {key: value for key, value in theirs.items() if key in ours}
        delta = {key: ours[key] - value for key, value in both.items()}
        return replace(one, baseline=both, delta=delta, paired={})

    return changed(replace(scores, baseline=against.baseline, significance=None), add)


def _signature_faults(scores: Scores, against: Against) -> Iterable[str]:
    theirs = against.baseline.signatures
    for metric in scores.metrics:
        other = theirs.get(metric.key, metric.signature)
        if other != metric.signature:
            yield (
                f"{metric.title} of the baseline {against.baseline.name} is not computed like "
                f"here: {other} there, {metric.signature} here"
            )


def _reference_faults(scores: Scores, against: Against) -> Iterable[str]:
    name = against.baseline.name
    if _ALL_SETS not in against.values and not any(
        split.name in against.values for split in scores.splits
    ):
        theirs = ", ".join(against.values)
        ours = ", ".join(split.name for split in scores.splits)
        yield f"the baseline {name} has the sets {theirs}, here are {ours}"
    for split in scores.splits:
        hashes = against.references.get(split.name, {})
        other = [
            one.code for one in split.languages
            if hashes.get(one.code, one.references_sha256) != one.references_sha256
        ]  # fmt: skip
        if other:
            yield (
                f"{split.name}: the baseline {name} was scored on other references in "
                f"{len(other)} of {len(split.languages)} languages, such as {other[0]}: SHA-256 "
                f"{hashes[other[0]][:12]} there, "
                f"{_hash_of(split, other[0])[:12]} here"
            )


def _hash_of(split: SplitScores, code: str) -> str:
    return next(one.references_sha256 for one in split.languages if one.code == code)


def _known(one: LanguageScores, keys: Iterable[str]) -> dict[str, float]:
    values = {key: one.value(key) for key in keys}
    return {key: value for key, value in values.items() if value is not None}


def _from_table(path: Path, find: Find) -> Against:
    faults: list[str] = []
    values: dict[str, dict[str, float]] = {}
    for where, row in read_table(path):
        try:
            code = find(row["language"]).code
        except ValueError as error:
            faults.append(f"{where}: {error}")
            continue
        if code in values:
            faults.append(f"{where}: {row['language']!r} is {code}, which is there already")
        values[code] = dict(_numbers(row, where, faults))
    if faults:
        raise InputError(faults)
    return Against(Baseline(path.stem, "table", {}), {_ALL_SETS: values}, {})


def _numbers(row: Mapping[str, str], where: str, faults: list[str]) -> Iterable[tuple[str, float]]:
    """The scores in a row; a blank cell is no score."""
    for column, cell in row.items():
        if column == "language" or not cell.strip():
            continue
        key = KINDS[column.lower()][0] if column.lower() in KINDS else key_of(column)
        try:
            yield key, float(cell)
        except ValueError:
            faults.append(f"{where}: {column} must be a number or blank, not {cell!r}")
