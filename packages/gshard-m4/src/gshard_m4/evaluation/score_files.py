"""scores.json and scores.csv: everything that an evaluation found, and back again."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from gshard_m4.evaluation.scores import LanguageScores, Scores
from gshard_m4.input_error import InputError

SCHEMA = "gshard-m4 scores"
SCHEMA_VERSION = 2
FILE_NAME = "scores.json"
_FAULTS_NAMED = 10
_NESTED = ("merged", "baseline", "delta", "paired", "worst", "other_languages")


def to_json(scores: Scores) -> str:
    """The text of scores.json (the README describes its fields)."""
    document = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION} | asdict(scores)
    document["signatures"] = scores.signatures
    document["splits"] = {split["name"]: split for split in document["splits"]}
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def to_csv(scores: Scores) -> str:
    """The text of scores.csv: one row a split and language, signatures in every row."""
    plain = [one.name for one in fields(LanguageScores) if one.name not in _NESTED]
    signatures = scores.signatures
    merged = [metric.key for metric in scores.metrics if metric.merged]
    against = [key for key in signatures if scores.baseline is not None]
    paired = [key for key in signatures if scores.significance is not None]
    head = ["split", *plain, *merged]
    head += [f"{kind}_{key}" for key in against for kind in ("baseline", "delta")]
    head += [f"{kind}_{key}" for key in paired for kind in ("p", "p_holm", "mean", "ci")]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head + [f"{key}_signature" for key in signatures])
    for split in scores.splits:
        for one in split.languages:
            row = [split.name, *(one.value(key) for key in plain + merged)]
            row += [found.get(key) for key in against for found in (one.baseline, one.delta)]
            for key in paired:
                found = one.paired.get(key)
                row += [found.p, found.p_holm, found.mean, found.ci] if found else [None] * 4
            writer.writerow(row + list(signatures.values()))
    return out.getvalue()


def read_scores(path: Path) -> Scores:
    """The scores in a scores.json, or in the folder of a report.

    Raises:
      InputError: there is no such file, or it is not what `to_json` writes.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        document = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise InputError([f"{file} does not exist; give a scores.json of gshard-m4 evaluate, or "
                          "the folder that it is in"]) from None  # fmt: skip
    except OSError as error:
        raise InputError([f"{file} cannot be read: {error.strerror}"]) from None
    except ValueError as error:
        raise InputError([f"{file} is not JSON ({error})"]) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError([f"{file} is not a scores.json: its 'schema' is not {SCHEMA!r}"])
    if document.get("schema_version") != SCHEMA_VERSION:
        given = document.get("schema_version")
        raise InputError(
            [f"{file} has schema_version {given!r}, this gshard-m4 reads {SCHEMA_VERSION}; "
             "evaluate those translations again"]
        )  # fmt: skip
    if isinstance(document.get("splits"), dict):
        document["splits"] = list(document["splits"].values())
    faults: list[str] = []
    scores = _decoded(Scores, document, "", faults)
    if not faults:
        faults.extend(_emptiness(scores))
    if faults:
        more = len(faults) - _FAULTS_NAMED
        named = faults[:_FAULTS_NAMED] + ([f"{more} more faults"] if more > 0 else [])
        raise InputError(f"{file}: {fault}" for fault in named)
    return scores


def _emptiness(scores: Scores) -> Iterator[str]:
    """What no evaluation leaves empty, and an edited file may."""
    if not scores.splits:
        yield "it has no sets"
    for split in scores.splits:
        if not split.languages:
            yield f"the set {split.name} has no languages"
        elif split.macro is None and split.macro_few is None:
            yield f"the set {split.name} has no averages"


def _decoded(kind: Any, value: Any, where: str, faults: list[str]) -> Any:
    """`value` as the type that a dataclass's field has; a fault for everything that is not."""
    arguments = get_args(kind)
    if kind is Any:
        return value
    if get_origin(kind) is UnionType:
        given = NoneType if value is None else next(
            (one for one in arguments if _fits(one, value)), arguments[0]
        )  # fmt: skip
        return None if given is NoneType else _decoded(given, value, where, faults)
    if not _fits(kind, value):
        faults.append(f"{where or 'it'} must be {_named(kind)}, not {type(value).__name__}")
        return value
    if is_dataclass(kind):
        return _decoded_object(kind, value, where, faults)
    if get_origin(kind) is tuple:
        return tuple(
            _decoded(arguments[0], one, f"{where}[{i}]", faults) for i, one in enumerate(value)
        )
    if get_origin(kind) is dict:
        return {
            key: _decoded(arguments[1], one, f"{where}.{key}", faults) for key, one in value.items()
        }
    if kind is float:
        return _finite(value, where, faults)
    return value


def _finite(value: float, where: str, faults: list[str]) -> float:
    """JSON itself knows no bounds, and Python's reader takes NaN."""
    try:
        if math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    faults.append(f"{where} must be a number that is finite and not too large")
    return 0.0


def _decoded_object(kind: Any, value: dict, where: str, faults: list[str]) -> Any:
    hints = get_type_hints(kind)
    needed = [one.name for one in fields(kind)
              if one.default is MISSING and one.default_factory is MISSING]  # fmt: skip
    missing = [name for name in needed if name not in value]
    for name in missing:
        faults.append(f"{where}.{name} is missing".lstrip("."))
    found = {
        name: _decoded(hint, value[name], f"{where}.{name}".lstrip("."), faults)
        for name, hint in hints.items()
        if name in value
    }
    return None if missing else kind(**found)


def _fits(kind: Any, value: Any) -> bool:
    """Whether JSON's value can be of the type, looking no deeper."""
    origin = get_origin(kind) or kind
    if origin is Any:
        return True
    if is_dataclass(origin) or origin is dict:
        return isinstance(value, dict)
    if origin is tuple:
        return isinstance(value, list)
    if origin is bool or value is True or value is False:
        return origin is bool and isinstance(value, bool)
    return isinstance(value, (int, float) if origin is float else origin)


def _named(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if is_dataclass(origin) or origin is dict:
        return "an object"
    names = {tuple: "a list", str: "a string", int: "a whole number", float: "a number"}
    return names.get(origin, "true or false")
