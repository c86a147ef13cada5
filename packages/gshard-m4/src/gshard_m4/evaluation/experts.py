"""experts.json: how much of each language's text every expert of a run got."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gshard_m4 import languages

EXPERTS = "experts.json"
# Shares are rounded when they are written.
_SUM_TOLERANCE = 0.01


@dataclass(frozen=True)
class Experts:
    """Shares of a language's tokens by expert: `languages[code][layer][expert]`, sums of 1."""

    layers: tuple[str, ...]
    num_experts: int
    languages: dict[str, tuple[tuple[float, ...], ...]]


def find_experts(
    folders: Iterable[Path],
    faults: list[str],
    find: Callable[[str], languages.Language] = languages.find,
) -> Experts | None:
    """What the first of the folders that has an experts.json says in it."""
    for folder in folders:
        if (folder / EXPERTS).is_file():
            return read_experts(folder / EXPERTS, faults, find)
    return None


def read_experts(
    path: Path, faults: list[str], find: Callable[[str], languages.Language] = languages.find
) -> Experts | None:
    """What the file says; None and a fault for everything that is wrong with it.

    It is `{"layers": [name, ...], "num_experts": E, "languages": {code: [[share, ...], ...]}}`,
    a list of shares for every layer.
    """
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        faults.append(f"{path} is not JSON ({error})")
        return None
    wrong = _shape_faults(document)
    found: dict[str, tuple[tuple[float, ...], ...]] = {}
    for given, rows in {} if wrong else document["languages"].items():
        try:
            code = find(given).code
        except ValueError as error:
            wrong.append(str(error))
            continue
        if code in found:
            wrong.append(f"{given!r} is {code}, which is there already")
        fault = _share_fault(rows, len(document["layers"]), document["num_experts"])
        if fault:
            wrong.append(f"{given}: {fault}")
        else:
            found[code] = tuple(tuple(map(float, row)) for row in rows)
    faults.extend(f"{path}: {fault}" for fault in wrong)
    return None if wrong else Experts(tuple(document["layers"]), document["num_experts"], found)


def _shape_faults(document: Any) -> list[str]:
    if not isinstance(document, dict):
        return [f"not a JSON object but {type(document).__name__}"]
    wrong = []
    layers, experts = document.get("layers"), document.get("num_experts")
    if not isinstance(layers, list) or not layers or not all(isinstance(x, str) for x in layers):
        wrong.append("'layers' must be a list of names, one a layer with experts")
    if not isinstance(experts, int) or isinstance(experts, bool) or experts < 1:
        wrong.append(f"'num_experts' must be a whole number of at least 1, not {experts!r}")
    if not isinstance(document.get("languages"), dict):
        wrong.append("'languages' must be an object: code -> a list of shares for every layer")
    return wrong


def _share_fault(rows: Any, layers: int, experts: int) -> str:
    """What is wrong with one language's shares, '' if nothing is."""
    if not isinstance(rows, list) or len(rows) != layers:
        given = len(rows) if isinstance(rows, list) else type(rows).__name__
        return f"{layers} lists are wanted, one a layer, not {given}"
    for layer, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != experts:
            given = len(row) if isinstance(row, list) else type(row).__name__
            return f"layer {layer}: {experts} shares are wanted, one an expert, not {given}"
        if not all(_is_share(share) for share in row):
            return f"layer {layer}: shares must be numbers from 0 to 1"
        if abs(math.fsum(row) - 1) > _SUM_TOLERANCE:
            return f"layer {layer}: shares sum to {math.fsum(row):.3f}, not 1"
    return ""


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
