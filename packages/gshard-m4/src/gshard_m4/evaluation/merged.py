"""Scores computed elsewhere, such as COMET's, put beside ours under their own name."""

import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gshard_m4.evaluation.evaluate import changed
from gshard_m4.evaluation.metrics import KINDS
from gshard_m4.evaluation.scores import LanguageScores, Metric, Scores, SplitScores
from gshard_m4.evaluation.translations import Find, Split
from gshard_m4.input_error import InputError

_MOST_NAMED = 8
_TOO_LARGE = 10**12  # no score is; the sum of a list must not overflow
# Columns of a report go by these and a metric's key.
_PREFIXES = ("delta", "baseline", "p", "ci")


@dataclass(frozen=True)
class Merged:
    """One file: its metric, and a number, a list by row or numbers by id for each language."""

    path: Path
    metric: Metric
    scores: dict[str, float | list[float] | dict[str, float]]


def read_merged(path: Path, find: Find) -> Merged:
    """What a file of scores says.

    It is `{"name": "COMET", "signature": "...", "scores": {code: score}}`, where a score is a
    number, a list with one for each phrase in order, or an object id -> number; of the last two
    the mean is the language's score. `"higher_is_better": false` is for error rates.

    Raises:
      InputError: everything that is wrong with it.
    """
    twice: list[str] = []
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_noting(twice))
    except OSError as error:
        raise InputError([f"{path} cannot be read: {error.strerror}"]) from None
    except ValueError as error:
        raise InputError([f"{path} is not JSON ({error})"]) from None
    faults = [f"{name!r} is there more than once" for name in dict.fromkeys(twice)]
    faults += list(_shape_faults(document))
    scores: dict[str, Any] = {}
    for given, value in {} if faults else document["scores"].items():
        try:
            code = find(given).code
        except ValueError as error:
            faults.append(str(error))
            continue
        if code in scores:
            faults.append(f"{given!r} is {code}, which is there already")
        if not _are_numbers(value):
            faults.append(f"the score of {given} must be a number, a list of numbers or an object "
                          "id -> number")  # fmt: skip
        scores[code] = value
    if faults:
        raise InputError(f"{path}: {fault}" for fault in faults)
    name, better = document["name"], document.get("higher_is_better", True)
    metric = Metric(key_of(name), name, document["signature"], better, merged=True)
    return Merged(path, metric, scores)


def key_of(name: str) -> str:
    """The name as it is written in columns and keys: `COMET-22` is comet_22."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def with_merged(scores: Scores, splits: Sequence[Split], merged: Sequence[Merged]) -> Scores:
    """The scores with those of the files; a language that a file lacks stays without.

    Languages that only a file has are named in the remarks.

    Raises:
      InputError: rows or ids that are not those of the test set, no language of it, a name twice.
    """
    faults: list[str] = []
    seen = {metric.key for metric in scores.metrics}
    for one in merged:
        if one.metric.key in seen:
            faults.append(f"{one.path}: there is a metric {one.metric.key!r} already")
        seen.add(one.metric.key)
        if len(splits) > 1:
            faults.append(f"{one.path}: of which of the {len(splits)} sets? Score one at a time")
    ids = {task.language.code: [row.id for row in task.rows]
           for split in splits for task in split.tasks}  # fmt: skip
    found = {
        one.metric.key: {
            code: _mean(value, ids[code], f"{one.path}: {code}", faults)
            for code, value in one.scores.items()
            if code in ids
        }
        for one in merged
    }
    remarks = list(_outside(merged, ids, faults))
    if faults:
        raise InputError(faults)

    def add(_: SplitScores, one: LanguageScores) -> LanguageScores:
        own = {key: by_code[one.code] for key, by_code in found.items() if one.code in by_code}
        return replace(one, merged=one.merged | own)

    added = tuple(one.metric for one in merged)
    remarked = scores.remarks + tuple(remarks)
    return changed(replace(scores, metrics=scores.metrics + added, remarks=remarked), add)


def _outside(merged: Sequence[Merged], known: Iterable[str], faults: list[str]) -> Iterator[str]:
    """The languages that only a file has; a fault where it has no other."""
    for one in merged:
        other = sorted(one.scores.keys() - set(known))
        listed = ", ".join(other[:_MOST_NAMED]) + (", ..." if len(other) > _MOST_NAMED else "")
        if len(other) == len(one.scores):
            faults.append(f"{one.path}: no language of it is in the test set; it has {listed}")
        elif other:
            yield f"{one.path}: not in the test set, and so not used: {listed}"


def _noting(twice: list[str]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """What makes dictionaries of JSON's objects, and notes the names that an object has twice."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        twice.extend(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    return made


def _shape_faults(document: Any):
    if not isinstance(document, dict):
        yield f"not a JSON object but {type(document).__name__}"
        return
    for name in ("name", "signature"):
        if not isinstance(document.get(name), str) or not document[name].strip():
            yield f"{name!r} must be a text: scores without a {name} are not comparable"
    yield from _name_faults(document.get("name"))
    if not isinstance(document.get("higher_is_better", True), bool):
        yield "'higher_is_better' must be true or false"
    if not isinstance(document.get("scores"), dict) or not document["scores"]:
        yield "'scores' must be an object: language -> score"


def _name_faults(name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not name.strip():
        return
    key = key_of(name)
    if not key:
        yield f"'name' must have a letter from a to z or a digit, for columns, not {name!r}"
    own = {one.name for one in fields(LanguageScores)}
    if key in own or name.lower() in KINDS or key.split("_")[0] in _PREFIXES:
        yield f"'name' must not be {name!r}, which is computed here"


def _are_numbers(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(map(_is_number, value.values()))
    if isinstance(value, list):
        return bool(value) and all(map(_is_number, value))
    return _is_number(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _TOO_LARGE


def _mean(
    value: float | list[float] | Mapping[str, float],
    ids: Sequence[int | str],
    where: str,
    faults: list[str],
) -> float:
    """The language's score; a fault where not every phrase has one."""
    if isinstance(value, list):
        if len(value) != len(ids):
            faults.append(f"{where} has {len(value):,} scores, the test set {len(ids):,} phrases")
        return statistics.fmean(value)
    if isinstance(value, Mapping):
        wanted = {str(one) for one in ids}
        lacking, extra = wanted - set(value), set(value) - wanted
        if lacking or extra:
            first = min(lacking or extra)
            faults.append(f"{where}: {len(lacking)} ids have no score and {len(extra)} scores have "
                          f"no phrase, such as {first!r}")  # fmt: skip
        return statistics.fmean(value.values())
    return float(value)
