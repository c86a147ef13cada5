"""Systems side by side: the same test sets, scored in the same way, each against the first."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gshard_m4.evaluation import baseline, significance
from gshard_m4.evaluation.kept import read_kept
from gshard_m4.evaluation.language_scores import signatures
from gshard_m4.evaluation.metrics import FLORES200_SHA256, KINDS, Asked, check
from gshard_m4.evaluation.score_files import read_scores
from gshard_m4.evaluation.scores import LanguageScores, Metric, Scores, SplitScores
from gshard_m4.evaluation.translations import Find, Split
from gshard_m4.input_error import InputError

_TOKENIZER = re.compile(r"\|tok:([^|]+)")
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class System:
    """One system: what it is called, its scores and, where its report keeps them, translations."""

    path: Path
    scores: Scores
    splits: list[Split] | None


def read_systems(paths: Sequence[str], find: Find) -> list[System]:
    """The systems at the paths, each a scores.json or a report's folder, or NAME=PATH.

    Raises:
      InputError: what cannot be read, and whatever makes the systems not comparable.
    """
    faults: list[str] = []
    systems = []
    for given in paths:
        name, path = _name_and_path(given)
        try:
            scores = read_scores(Path(path))
            folder = Path(path) if Path(path).is_dir() else Path(path).parent
            scores = replace(scores, name=name or scores.name or folder.name)
            systems.append(System(Path(path), scores, read_kept(folder, scores, find)))
        except InputError as error:
            faults.extend(error.faults)
    if not faults:
        faults.extend(_faults(systems))
    if faults:
        raise InputError(faults)
    return systems


def compare(
    systems: Sequence[System], method: str | None, *, samples: int | None, processes: int
) -> list[Scores]:
    """The systems' scores, all but the first with their differences to it, and tests.

    Args:
      systems: at least two, as `read_systems` returns them.
      method: of the tests, which are only where both systems' translations are kept.
      samples: of the tests; None for the usual number.
      processes: how many languages are tested at a time.

    Raises:
      InputError: the tests would not be of the scores that were read.
    """
    first = systems[0]
    keys = _shared(systems)
    common = {
        (split.name, row[0].code)
        for split, rows in in_common([system.scores for system in systems])
        for row in rows
    }
    against = baseline.from_scores(first.scores, first.scores.name)
    found = [replace(first.scores, metrics=_only(first.scores, keys))]
    for other in systems[1:]:
        scores = replace(other.scores, metrics=_only(other.scores, keys))
        scores = baseline.with_baseline(scores, against)
        if method is not None and first.splits is not None and other.splits is not None:
            asked = significance.questions(first.splits, other.splits)
            # What is left out of everything must not make the correction harsher either.
            questions = [one for one in asked if (one.split, one.code) in common]
            tests, how = significance.answer(
                questions, asked_of(scores), method, samples=samples, processes=processes
            )
            scores = significance.with_significance(scores, tests, how)
        found.append(scores)
    return found


def asked_of(scores: Scores) -> Asked:
    """The metrics with which sacrebleu would give the same signatures.

    Raises:
      InputError: the sacrebleu that is installed would give others.
    """
    names = [name for name, (key, _, _) in KINDS.items() if key in scores.signatures]
    tokenizer = _TOKENIZER.search(scores.signatures.get("bleu", ""))
    model = next(iter(scores.files.values()), FLORES200_SHA256)
    asked = Asked(tuple(names), tokenizer[1] if tokenizer else "13a", model)
    check(asked)
    found = signatures(asked)
    other = [key for key in found if found[key] != scores.signatures[key]]
    if other:
        raise InputError([
            f"{scores.name}: its {key} was computed with {scores.signatures[key]}, a test here "
            f"would be with {found[key]}; install that version, or say --significance=none"
            for key in other
        ])  # fmt: skip
    return asked


def to_json(systems: Sequence[Scores], written: Iterable[str] = ()) -> str:
    """The text of compare.json: for every set and language the scores of all systems.

    `written` names the files beside it.
    """
    document = {
        "schema": "gshard-m4 comparison",
        "schema_version": _SCHEMA_VERSION,
        "systems": [scores.name for scores in systems],
        "signatures": systems[0].signatures,
        "written": list(written),
        "sets": {
            split.name: {
                row[0].code: {
                    key: {
                        "scores": [one.value(key) for one in row],
                        "delta": [one.delta.get(key) for one in row[1:]],
                        "p_holm": [_p(one, key) for one in row[1:]],
                    }
                    for key in systems[0].signatures
                }
                for row in rows
            }
            for split, rows in in_common(systems)
        },
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_csv(systems: Sequence[Scores]) -> str:
    """The text of compare.csv: a row for every set, language and metric."""
    names = [scores.name for scores in systems]
    head = ["set", "language", "metric", *names, *(f"delta {name}" for name in names[1:])]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*head, *(f"p_holm {name}" for name in names[1:]), "signature"])
    for split, rows in in_common(systems):
        for row in rows:
            for key, signature in systems[0].signatures.items():
                values = [one.value(key) for one in row]
                deltas = [one.delta.get(key) for one in row[1:]]
                tests = [_p(one, key) for one in row[1:]]
                writer.writerow([split.name, row[0].code, key, *values, *deltas, *tests, signature])
    return out.getvalue()


def in_common(
    systems: Sequence[Scores],
) -> Iterator[tuple[SplitScores, list[tuple[LanguageScores, ...]]]]:
    """The sets that all systems have, with the scores of the languages that all have, by code."""
    for split in systems[0].splits:
        splits = [one for scores in systems for one in scores.splits if one.name == split.name]
        if len(splits) == len(systems):
            tables = [{one.code: one for one in each.languages} for each in splits]
            codes = sorted(code for code in tables[0] if all(code in table for table in tables))
            yield split, [tuple(table[code] for table in tables) for code in codes]


def left_out(systems: Sequence[Scores]) -> str:
    """The sets without a language that all systems have, and who has them; empty if none."""
    common = {split.name for split, rows in in_common(systems) if rows}
    names = dict.fromkeys(split.name for scores in systems for split in scores.splits)
    said = []
    for name in [name for name in names if name not in common]:
        has = [one.name for one in systems if name in {split.name for split in one.splits}]
        why = f"only {', '.join(has)}" if len(has) < len(systems) else "of other languages in each"
        said.append(f"{name} ({why})")
    return ", ".join(said)


def _name_and_path(given: str) -> tuple[str, str]:
    """NAME=PATH in two; what exists under its whole name is a path."""
    name, found, path = given.partition("=")
    return ("", given) if not found or Path(given).exists() else (name, path)


def _p(one: LanguageScores, key: str) -> float | None:
    return one.paired[key].p_holm if key in one.paired else None


def _shared(systems: Sequence[System]) -> set[str]:
    return set.intersection(*(set(system.scores.signatures) for system in systems))


def _only(scores: Scores, keys: set[str]) -> tuple[Metric, ...]:
    return tuple(metric for metric in scores.metrics if metric.key in keys)


def _faults(systems: Sequence[System]) -> Iterator[str]:
    """Why the systems cannot be compared, each reason with both sides."""
    names = [system.scores.name for system in systems]
    for name in sorted({name for name in names if names.count(name) > 1}):
        where = ", ".join(str(one.path) for one in systems if one.scores.name == name)
        yield f"more than one system is called {name}: {where}; give NAME=PATH"
    if len(systems) < 2:
        yield "give at least two systems"
        return
    first = systems[0]
    if not _shared(systems):
        kinds = "; ".join(f"{one.path}: {', '.join(one.scores.signatures)}" for one in systems)
        yield f"the systems have no metric in common: {kinds}"
    for other in systems[1:]:
        against = baseline.from_scores(first.scores, first.scores.name)
        yield from (f"{other.path}: {fault}" for fault in baseline.faults_of(other.scores, against))
    if not any(rows for _, rows in in_common([system.scores for system in systems])):
        kinds = "; ".join(f"{one.path}: {_described(one.scores)}" for one in systems)
        yield f"the systems have no language of a set in common: {kinds}"


def _described(scores: Scores) -> str:
    return ", ".join(
        f"{split.name} of {len(split.languages)} languages from {split.languages[0].code}"
        for split in scores.splits
    )
