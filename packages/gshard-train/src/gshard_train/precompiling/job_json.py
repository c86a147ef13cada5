"""Jobs and their results as JSON and back."""

import collections.abc
import dataclasses
import json
import types
import typing
from typing import Any

from gshard_annotate.inspector.report import Report
from gshard_train.precompiling.job import Job, Result

FORMAT = "gshard-train precompiled"
VERSION = 1


def job_json(job: Job) -> str:
    """The job on one line, as `job_from_json` reads it."""
    return json.dumps(_form(job))


def job_from_json(text: str) -> Job:
    """The job that `job_json` wrote."""
    return _decoded(Job, json.loads(text), "job")


def result_json(result: Result) -> str:
    """The result with the whole report, as `result_from_json` reads it."""
    form = {"format": FORMAT, "version": VERSION, "result": _form(result)}
    return json.dumps(form, indent=1, ensure_ascii=False) + "\n"


def result_from_json(text: str) -> Result:
    """The result that `result_json` wrote.

    Raises:
      ValueError: the text is no such result, one of another version, or one with wrong parts.
    """
    try:
        form = json.loads(text)
    except ValueError as error:
        raise ValueError(f"result_from_json: not JSON ({error})") from None
    if not isinstance(form, dict) or form.get("format") != FORMAT:
        raise ValueError(
            f"result_from_json: the JSON is no result (its format is not {FORMAT!r}); give what "
            "result_json returned"
        )
    if form.get("version") != VERSION:
        raise ValueError(
            f"result_from_json: the result has version {form.get('version')!r}, this gshard-train "
            f"reads version {VERSION}; compile again"
        )
    return _decoded(Result, form.get("result"), "result")


def _form(value: Any) -> Any:
    if isinstance(value, Report):
        return json.loads(value.json())
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _form(getattr(value, name)) for name in names}
    if isinstance(value, collections.abc.Mapping):
        return {key: _form(each) for key, each in value.items()}
    return [_form(each) for each in value] if isinstance(value, tuple | list) else value


def _decoded(kind: Any, given: Any, where: str) -> Any:
    """The value of this type.

    Raises:
      ValueError: it is none; `where` says which part.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decoded_as_one_of(inner, given, where)
    if kind is Report and isinstance(given, dict):
        return Report.from_json(json.dumps(given))
    if dataclasses.is_dataclass(kind) and isinstance(given, dict):
        return _decoded_fields(kind, given, where)
    if origin is tuple and isinstance(given, list):
        kinds = inner if inner[-1] is not ... else (inner[0],) * len(given)
        each = enumerate(zip(kinds, given, strict=False))
        return tuple(_decoded(one, part, f"{where}[{i}]") for i, (one, part) in each)
    if origin is collections.abc.Mapping and isinstance(given, dict):
        return {key: _decoded(inner[1], part, f"{where}.{key}") for key, part in given.items()}
    if origin is typing.Literal and given in inner:
        return given
    if kind is float and type(given) is int:
        return float(given)
    if origin is None and isinstance(kind, type) and type(given) is kind:
        return given
    raise ValueError(f"result_from_json: {where} is {given!r:.80}; {kind} is needed")


def _decoded_as_one_of(kinds: tuple[Any, ...], given: Any, where: str) -> Any:
    if given is None and types.NoneType in kinds:
        return None
    faults = []
    for kind in kinds:
        try:
            return _decoded(kind, given, where)
        except ValueError as error:
            faults.append(str(error))
    raise ValueError(faults[0])


def _decoded_fields(kind: Any, given: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if unknown := given.keys() - hints.keys():
        raise ValueError(f"result_from_json: {where} has unknown {', '.join(sorted(unknown))}")
    # What has a default came later than the first results.
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    if lacking := needed - given.keys():
        raise ValueError(f"result_from_json: {where} lacks {', '.join(sorted(lacking))}")
    return kind(
        **{name: _decoded(hints[name], part, f"{where}.{name}") for name, part in given.items()}
    )
