"""Baselines as tables: scores.csv of a report, or numbers that somebody brings."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gshard_m4.evaluation.against import ALL_SETS, TABLE, Against
from gshard_m4.evaluation.merged import key_of
from gshard_m4.evaluation.metrics import KINDS
from gshard_m4.evaluation.scores import Baseline
from gshard_m4.evaluation.tables import read_table
from gshard_m4.evaluation.translations import Find
from gshard_m4.input_error import InputError

_SIGNATURE = "_signature"
_PLACE = ("language", "set")

Rows = Sequence[tuple[str, dict[str, str]]]


def read_baseline_table(path: Path, find: Find) -> Against:
    """The table's numbers; those of a scores.csv with its signatures and references.

    Raises:
      InputError: everything that is wrong with it.
    """
    rows = read_table(path, ("language", "code"))
    if rows and {"split", "code", "references_sha256"} <= rows[0][1].keys():
        return _from_report(path, rows)
    if rows and "language" not in rows[0][1]:
        raise InputError([f"{path}: the first line must name the columns, one of them language"])
    return _from_numbers(path, rows, find)


def _from_report(path: Path, rows: Rows) -> Against:
    """What `score_files.to_csv` wrote."""
    faults: list[str] = []
    first = rows[0][1]
    signatures = {
        column.removesuffix(_SIGNATURE): text
        for column, text in first.items()
        if column.endswith(_SIGNATURE)
    }
    values: dict[str, dict[str, dict[str, float]]] = {}
    references: dict[str, dict[str, str]] = {}
    for where, row in rows:
        given = {key: row.get(key, "") for key in signatures}
        found = dict(_numbers(given, where, faults))
        values.setdefault(row["split"], {})[row["code"]] = found
        references.setdefault(row["split"], {})[row["code"]] = row["references_sha256"]
    if faults:
        raise InputError(faults)
    name = path.resolve().parent.name or path.stem
    return Against(Baseline(name, "run", signatures), values, references)


def _from_numbers(path: Path, rows: Rows, find: Find) -> Against:
    faults: list[str] = []
    values: dict[str, dict[str, dict[str, float]]] = {}
    for where, row in rows:
        try:
            code = find(row["language"]).code
        except ValueError as error:
            faults.append(f"{where}: {error}")
            continue
        if not row.get("set", "a set").strip():
            faults.append(f"{where}: of which set? Its cell is blank")
        by_code = values.setdefault(row.get("set", ALL_SETS).strip(), {})
        if code in by_code:
            faults.append(f"{where}: {row['language']!r} is {code}, which is there already")
        scores = {column: cell for column, cell in row.items() if column not in _PLACE}
        by_code[code] = {_key(column): value for column, value in _numbers(scores, where, faults)}
    if faults:
        raise InputError(faults)
    return Against(Baseline(path.stem, TABLE, {}), values, {})


def _key(column: str) -> str:
    return KINDS[column][0] if column in KINDS else key_of(column)


def _numbers(
    cells: Mapping[str, str], where: str, faults: list[str]
) -> Iterator[tuple[str, float]]:
    """The numbers of a row by column; a blank cell is no score."""
    for column, cell in cells.items():
        if cell.strip():
            value = _number(cell)
            if value is None:
                faults.append(f"{where}: {column} must be a number or blank, not {cell!r}")
            else:
                yield column, value


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
