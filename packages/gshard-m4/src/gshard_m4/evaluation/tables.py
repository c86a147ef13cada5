"""Small tables of numbers by language that people bring: training sizes, baselines' scores."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gshard_m4.evaluation.translations import Find
from gshard_m4.input_error import InputError


def read_table(path: Path) -> list[tuple[str, dict[str, str]]]:
    """The rows of a CSV, or of a TSV, under their column names, with where each is.

    Raises:
      InputError: it cannot be read, is not UTF-8, or a row has too many or too few cells.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise InputError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError as error:
        raise InputError([f"{path}: byte {error.start + 1} is not UTF-8"]) from None
    delimiter = "\t" if path.suffix == ".tsv" else ","
    head, *rows = list(csv.reader(text.split("\n"), delimiter=delimiter)) or [[]]
    rows = [(number, row) for number, row in enumerate(rows, start=2) if row]
    faults = [
        f"{path} line {number}: {len(row)} columns, {len(head)} are named in the first line"
        for number, row in rows
        if len(row) != len(head)
    ]
    if "language" not in head:
        faults.append(f"{path}: the first line must name the columns, one of them language")
    if faults:
        raise InputError(faults)
    return [(f"{path} line {number}", dict(zip(head, row, strict=True))) for number, row in rows]


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
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
