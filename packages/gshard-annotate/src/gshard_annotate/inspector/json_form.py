"""A report as JSON and back: nothing is lost, and what is not a report is refused."""

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from gshard_annotate.checks import raise_faults
from gshard_annotate.inspector.report import Report

FORMAT = "gshard-annotate report"
# 2 has operations; a report without them is one of version 1.
VERSION = 2


def report_json(report: Report) -> str:
    """The report as JSON, one that `report_from_json` reads."""
    form = dataclasses.asdict(report, dict_factory=_without_nothing_new)
    version = VERSION if report.operations else 1
    return write_form({"format": FORMAT, "version": version, "report": form})


def write_form(form: dict[str, Any]) -> str:
    """JSON to read: indented, with letters of every script as they are."""
    return json.dumps(form, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def report_from_json(text: str) -> Report:
    """The report that `report_json` wrote.

    Raises:
      ValueError: Not JSON, not a report, one of a newer version, or one with wrong or missing
        parts (all are named).
    """
    form = _ours(text)
    if form["version"] not in (1, VERSION):
        raise ValueError(
            f"Report.from_json: the report has version {form['version']!r}, this gshard-annotate "
            f"reads versions 1 to {VERSION}; use the gshard-annotate that wrote it, or a newer one"
        )
    faults: list[str] = []
    report = _decode(Report, form.get("report"), "report", faults)
    raise_faults("Report.from_json", faults)
    return report


def write_beside(path: str | Path, text: str) -> Path:
    """Writes a file, beside its place at first: there is never half a file.

    Raises:
      OSError: It cannot be written.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.partial")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _without_nothing_new(parts: list[tuple[str, Any]]) -> dict[str, Any]:
    # The first reports began without these.
    new = (("accepted", ""), ("operations", ()))
    return {name: value for name, value in parts if (name, value) not in new}


def _ours(text: str) -> dict[str, Any]:
    try:
        form = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"Report.from_json: not JSON ({error}); give what report.json() returned"
        ) from None
    if not isinstance(form, dict) or form.get("format") != FORMAT or "version" not in form:
        found = (
            f"format {form['format']!r}"
            if isinstance(form, dict) and "format" in form
            else (f"{type(form).__name__} without a format")
        )
        raise ValueError(
            f"Report.from_json: the JSON is no report ({found} instead of {FORMAT!r}); "
            "give what report.json() returned"
        )
    return form


def _decode(kind: Any, given: Any, where: str, faults: list[str]) -> Any:
    """The value of this type, or None and one fault more."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if given is None else _decode(inner[0], given, where, faults)
    if dataclasses.is_dataclass(kind) and isinstance(given, dict):
        return _decode_fields(kind, given, where, faults)
    if origin is tuple and isinstance(given, list):
        return tuple(_decode(inner[0], one, f"{where}[{i}]", faults) for i, one in enumerate(given))
    if origin is dict and isinstance(given, dict):
        return {key: _decode(inner[1], one, f"{where}.{key}", faults) for key, one in given.items()}
    if kind is float and type(given) in (int, float):
        return float(given)
    if type(given) is not kind:
        wanted = getattr(origin or kind, "__name__", "value")
        faults.append(f"{where} is {_shown(given)}; {wanted} is needed")
    return given


def _decode_fields(kind: Any, given: dict[str, Any], where: str, faults: list[str]) -> Any:
    hints = typing.get_type_hints(kind)
    # What has a default came later than the first reports.
    needed = [one.name for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING]
    faults += [f"{where}.{name} is missing" for name in needed if name not in given]
    faults += [f"{where}.{name} is unknown" for name in given if name not in hints]
    parts = {
        name: _decode(hint, given[name], f"{where}.{name}", faults)
        for name, hint in hints.items()
        if name in given
    }
    return None if faults else kind(**parts)


def _shown(given: Any) -> str:
    text = json.dumps(given)
    return text if len(text) <= 40 else f"{text[:39]}…"
