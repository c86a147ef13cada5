"""Scores computed elsewhere, such as COMET's, put beside ours under their own name."""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gshard_m4.evaluation.evaluate import changed
from gshard_m4.evaluation.scores import LanguageScores, Metric, Scores, SplitScores
from gshard_m4.evaluation.translations import Find, Split
from gshard_m4.input_error import InputError


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
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError([f"{path} cannot be read: {error.strerror}"]) from None
    except ValueError as error:
        raise InputError([f"{path} is not JSON ({error})"]) from None
    faults = list(_shape_faults(document))
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

    Raises:
      InputError: rows or ids that are not those of the test set, or a name twice.
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
    if faults:
        raise InputError(faults)

    def add(_: SplitScores, one: LanguageScores) -> LanguageScores:
        own = {key: by_code[one.code] for key, by_code in found.items() if one.code in by_code}
        return replace(one, merged=one.merged | own)

    added = tuple(one.metric for one in merged)
    return changed(replace(scores, metrics=scores.metrics + added), add)


def _shape_faults(document: Any):
    if not isinstance(document, dict):
        yield f"not a JSON object but {type(document).__name__}"
        return
    for name in ("name", "signature"):
        if not isinstance(document.get(name), str) or not document[name].strip():
            yield f"{name!r} must be a text: scores without a {name} are not comparable"
    key = key_of(document["name"]) if isinstance(document.get("name"), str) else ""
    if key in {one.name for one in fields(LanguageScores)} or key.startswith("delta_"):
        yield f"'name' must not be {document['name']!r}, which is computed here"
    if not isinstance(document.get("higher_is_better", True), bool):
        yield "'higher_is_better' must be true or false"
    if not isinstance(document.get("scores"), dict) or not document["scores"]:
        yield "'scores' must be an object: language -> score"


def _are_numbers(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(map(_is_number, value.values()))
    if isinstance(value, list):
        return bool(value) and all(map(_is_number, value))
    return _is_number(value)


def _is_number(value: Any) -> bool:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return good and math.isfinite(value)


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
