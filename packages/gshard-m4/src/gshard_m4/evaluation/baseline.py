"""Differences to a baseline: another run, or a table of scores such as bilingual systems'.

A language that the baseline lacks has no difference and is left out of the mean difference. What
cannot be compared is refused: other signatures, another test set.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from gshard_m4.evaluation.against import ALL_SETS, TABLE, Against
from gshard_m4.evaluation.baseline_tables import read_baseline_table
from gshard_m4.evaluation.evaluate import changed
from gshard_m4.evaluation.score_files import read_scores
from gshard_m4.evaluation.scores import Baseline, LanguageScores, Scores, SplitScores
from gshard_m4.evaluation.translations import Find
from gshard_m4.input_error import InputError

_MOST_NAMED = 8


def read_baseline(path: Path, find: Find) -> Against:
    """A scores.json or the folder of a report, its scores.csv, or a table of numbers.

    A table is a CSV or TSV with the columns language, bleu, chrf++, ... and, for several sets, set.

    Raises:
      InputError: everything that is wrong with it.
    """
    if path.suffix in (".csv", ".tsv"):
        return read_baseline_table(path, find)
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
      InputError: a metric of both whose signatures differ, test sets that differ, or nothing that
        both have.
    """
    faults = faults_of(scores, against)
    if faults:
        raise InputError(faults)

    def add(split: SplitScores, one: LanguageScores) -> LanguageScores:
        by_code = against.values.get(split.name, against.values.get(ALL_SETS, {}))
        theirs = by_code.get(one.code, {})
        ours = _known(one, scores.signatures)
        both = {key: value for key, value in theirs.items() if key in ours}
        delta = {key: ours[key] - value for key, value in both.items()}
        return replace(one, baseline=both, delta=delta, paired={})

    found = changed(replace(scores, baseline=against.baseline, significance=None), add)
    if not any(one.delta for split in found.splits for one in split.languages):
        raise InputError([_nothing(scores, against)])
    return replace(found, remarks=scores.remarks + tuple(_remarks(scores, against)))


def faults_of(scores: Scores, against: Against) -> list[str]:
    """Why the scores are not comparable with the baseline's: all the reasons."""
    return [
        *_signature_faults(scores, against),
        *_reference_faults(scores, against),
        *_table_faults(scores, against),
    ]


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
    if ALL_SETS not in against.values and not any(
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


def _table_faults(scores: Scores, against: Against) -> Iterator[str]:
    if ALL_SETS in against.values and len(scores.splits) > 1:
        names = ", ".join(split.name for split in scores.splits)
        yield (
            f"the baseline {against.baseline.name} is of which of the {len(scores.splits)} sets "
            f"({names})? Name it in a column set of the table, or score one set at a time"
        )


def _nothing(scores: Scores, against: Against) -> str:
    """Why there is no difference at all."""
    theirs = [values for by_code in against.values.values() for values in by_code.values()]
    keys = ", ".join(dict.fromkeys(key for values in theirs for key in values)) or "no scores"
    codes = ", ".join(
        list(dict.fromkeys(c for by in against.values.values() for c in by))[:_MOST_NAMED]
    )
    return (
        f"the baseline {against.baseline.name} has no score of a language and a metric that are "
        f"here: it has {keys}, of {codes or 'no language'}; here are "
        f"{', '.join(scores.signatures) or 'no metrics'}"
    )


def _remarks(scores: Scores, against: Against) -> Iterator[str]:
    """What of the baseline is not used, or cannot be checked."""
    name, values = against.baseline.name, against.values
    if against.baseline.kind == TABLE:
        yield (
            f"The baseline {name} is a table of numbers: how they were computed and on which test "
            "set is not known, so it is not checked that they can be compared."
        )
        here = {one.code for split in scores.splits for one in split.languages}
        extra = sorted({code for by_code in values.values() for code in by_code} - here)
        if extra:
            more = f" and {len(extra) - _MOST_NAMED} more" if len(extra) > _MOST_NAMED else ""
            yield f"In {name} but not scored here: {', '.join(extra[:_MOST_NAMED])}{more}."
    keys = {key for by_code in values.values() for one in by_code.values() for key in one}
    unused = sorted(keys - set(scores.signatures))
    if unused:
        yield f"Not computed here, and so not compared with {name}: {', '.join(unused)}."
    if ALL_SETS not in values:
        ours = [split.name for split in scores.splits]
        for lacking, given in ((ours, set(values)), (list(values), set(ours))):
            listed = ", ".join(one for one in lacking if one not in given)
            if listed:
                where = f"in the baseline {name} only" if lacking is not ours else "here only"
                yield f"Sets that are {where}, and so not compared: {listed}."
