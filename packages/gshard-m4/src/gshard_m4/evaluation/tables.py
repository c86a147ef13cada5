"""Small tables of numbers by language that people bring: training sizes, baselines' scores."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gshard_m4.evaluation.translations import Find
from gshard_m4.input_error import InputError

_MOST_DIGITS = 15  # of a number of rows; more is a slip, and no axis has room for it


def read_table(
    path: Path, wanted: Sequence[str] = ("language",)
) -> list[tuple[str, dict[str, str]]]:
    """The rows of a CSV, or of a TSV, under their lower-case column names, with where each is.

    One of the `wanted` columns must be there.

    Raises:
      InputError: it cannot be read, is not UTF-8, or a row has too many or too few cells.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise InputError([f"{path}: byte {error.start + 1} is not UTF-8"]) from None
    delimiter = "\t" if path.suffix == ".tsv" else ","
    try:
        head, *rows = list(csv.reader(text.split("\n"), delimiter=delimiter)) or [[]]
    except csv.Error as error:
        raise InputError([f"{path} is not a table ({error})"]) from None
    head = [name.strip().lower() for name in head]
    rows = [(number, row) for number, row in enumerate(rows, start=2) if row]
    faults = [
        f"{path} line {number}: {len(row)} columns, {len(head)} are named in the first line"
        for number, row in rows
        if len(row) != len(head)
    ]
    faults += list(_head_faults(path, head, wanted))
    if faults:
        raise InputError(faults)
    return [(f"{path} line {number}", dict(zip(head, row, strict=True))) for number, row in rows]


def _head_faults(path: Path, head: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    for name in dict.fromkeys(name for name in head if head.count(name) > 1):
        yield f"{path}: {head.count(name)} columns are called {name!r}; keep one of them"
    if not set(wanted) & set(head):
        between = "tabs" if path.suffix == ".tsv" else "commas"
        also = f", with {between} between them" if any(";" in name for name in head) else ""
        named = f"the first line must name the columns, one of them {wanted[0]}"
        yield f"{path}: {named}{also}"


def read_sizes(path: Path, find: Find) -> dict[str, int]:
    """The training rows of every language.

    From a prepared directory or its manifest.json, a JSON object code -> rows, or a CSV or TSV
    with the columns language and rows.

    Raises:
      InputError: everything that is wrong with it.
    """
    file = path / "manifest.json" if path.is_dir() else path
    if file.suffix == ".json":
        rows = list(_json_sizes(file))
    else:
        rows = [(where, row["language"], row.get("rows")) for where, row in read_table(file)]
    faults: list[str] = []
    sizes: dict[str, int] = {}
    for where, given, value in rows:
        try:
            code = find(given).code
        except ValueError as error:
            faults.append(f"{where}: {error}")
            continue
        number = _whole(value)
        if number is None:
            faults.append(f"{where}: rows of {given} must be a whole number of at least 0, not "
                          f"{value!r}")  # fmt: skip
        elif code in sizes:
            faults.append(f"{where}: {given!r} is {code}, which is there already")
        else:
            sizes[code] = number
    if not rows:
        faults.append(f"{file} has no languages")
    if faults:
        raise InputError(faults)
    return sizes


def _json_sizes(file: Path) -> Iterator[tuple[str, str, Any]]:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError([f"{file} cannot be read: {error.strerror}"]) from None
    except ValueError as error:
        raise InputError([f"{file} is not JSON ({error})"]) from None
    if not isinstance(document, dict):
        raise InputError([f"{file}: not a JSON object but {type(document).__name__}"])
    if "schema_version" not in document:
        yield from ((str(file), code, rows) for code, rows in document.items())
        return
    from gshard_m4.prepared.manifest import parse_manifest

    manifest = parse_manifest(file.read_text("utf-8"), file)
    for code, entry in manifest.languages.items():
        train = entry.splits.get("train")
        yield str(file), code, train.rows if train else 0


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) <= _MOST_DIGITS:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 10**_MOST_DIGITS else None
