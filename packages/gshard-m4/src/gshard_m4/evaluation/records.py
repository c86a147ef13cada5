r"""Files of translations, references or sources as people have them, read strictly.

A name that ends in .jsonl is one JSON object a line, .tsv is columns under a line of their names,
anything else plain text, one phrase a line; each may be compressed (.gz). Lines end at \n alone:
U+2028 and U+0085 are text. Only UTF-8 is read, and nothing in it is replaced.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a field may be called; `text` is the one that the file is given for.
NAMES = {
    "prediction": ("prediction", "hypothesis", "translation"),
    "reference": ("reference", "target"),
    "source": ("source",),
    "id": ("id",),
    "language": ("language", "lang"),
    "truncated": ("truncated",),
}
_FIELD_OF = {name: field for field, names in NAMES.items() for name in names}
_TEXTS = ("prediction", "reference", "source")
_FLAGS = {"true": True, "false": False, "1": True, "0": False}
_MAX_LINES_NAMED = 5


@dataclass(frozen=True, slots=True)
class Record:
    """One line; `fields` has those of `NAMES` that the line has."""

    line: int
    fields: dict[str, Any]


def read_records(path: Path, role: str, faults: list[str]) -> list[Record]:
    """Every line of the file; a fault for each kind of thing that is wrong.

    Args:
      path: a file.
      role: the field that the file is given for: prediction, reference or source.
      faults: what is wrong is added here.
    """
    before = len(faults)
    lines = _lines(path, faults)
    name = path.name.removesuffix(".gz")
    if name.endswith(".tsv"):
        found = _from_columns(lines, role)
    elif name.endswith(".jsonl"):
        found = (_from_object(line, role) for line in lines)
    else:
        found = (({role: line}, []) for line in lines)
    first = 2 if name.endswith(".tsv") else 1
    records: list[Record] = []
    where: dict[str, list[int]] = {}
    for number, (fields, wrong) in enumerate(found, start=first):
        records.append(Record(number, fields))
        for fault in wrong:
            where.setdefault(fault, []).append(number)
    if not records and len(faults) == before:
        faults.append(f"{path} is empty")
    faults.extend(f"{path}{folded(fault, numbers)}" for fault, numbers in where.items())
    return records


def folded(fault: str, numbers: list[int]) -> str:
    """One message for all lines with the same fault, the first few named."""
    rest = numbers[1 : 1 + _MAX_LINES_NAMED]
    also = f"; also on line {', '.join(map(str, rest))}" if rest else ""
    more = len(numbers) - 1 - len(rest)
    return f" line {numbers[0]}: {fault}{also}{f' and {more} more' if more else ''}"


def _lines(path: Path, faults: list[str]) -> list[str]:
    """The lines as text; none if a single byte is wrong."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        faults.append(f"{path} cannot be read: {error}")
        return []
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        faults.append(f"{path} is UTF-16; save it as UTF-8")
        return []
    if data.startswith(b"\xef\xbb\xbf"):
        faults.append(f"{path} begins with a byte order mark; save it as UTF-8 without one")
        return []
    raw = data.split(b"\n")
    if not raw[-1]:
        raw.pop()
    lines: list[str] = []
    wrong: list[tuple[int, int, int]] = []
    for number, line in enumerate(raw, start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            wrong.append((number, error.start + 1, line[error.start]))
    if wrong:
        number, byte, value = wrong[0]
        more = f" (nor are other bytes on {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        faults.append(f"{path} line {number}: byte {byte} (0x{value:02x}) is not UTF-8{more}; "
                      "save it as UTF-8")  # fmt: skip
        return []
    return lines


def _from_object(line: str, role: str) -> tuple[dict[str, Any], list[str]]:
    try:
        given = json.loads(line)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return {}, [f"not valid JSON ({reason})" if line.strip() else "blank line"]
    if not isinstance(given, dict):
        return {}, [f"not a JSON object but {type(given).__name__}"]
    named = ((role if name == "text" else _FIELD_OF.get(name), value)
             for name, value in given.items())  # fmt: skip
    fields = {field: value for field, value in named if field is not None and value is not None}
    return fields, list(_field_faults(fields, role))


def _field_faults(fields: dict[str, Any], role: str) -> Iterator[str]:
    if role not in fields:
        yield f"no {role}; name it {', '.join(NAMES[role])} or text"
    for field, value in fields.items():
        if field in _TEXTS and isinstance(value, list):
            yield (f"{field!r} is a list; give one string a line (lists of references, a stream "
                   "or a phrase each, are not read)")  # fmt: skip
        elif field == "truncated" and not isinstance(value, bool):
            yield f"'truncated' must be true or false, not {type(value).__name__}"
        elif field == "id" and (isinstance(value, bool) or not isinstance(value, int | str)):
            yield f"'id' must be a whole number or a string, not {type(value).__name__}"
        elif field in (*_TEXTS, "language") and not isinstance(value, str):
            yield f"{field!r} must be a string, not {type(value).__name__}"
        elif isinstance(value, str) and _has_lone_surrogate(value):
            yield "text holds half of a surrogate pair; write it as UTF-8"


def _from_columns(lines: list[str], role: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Rows under the first line, which names the columns."""
    if not lines:
        return
    head = [role if name == "text" else _FIELD_OF.get(name) for name in lines[0].split("\t")]
    if role not in head:
        known = ", ".join(name for names in NAMES.values() for name in names)
        yield {}, [f"the line above must name the columns, one of them {', '.join(NAMES[role])} or "
                   f"text; known names are {known}"]  # fmt: skip
        return
    for line in lines[1:]:
        cells = line.split("\t")
        if len(cells) != len(head):
            yield {}, [f"{len(cells)} columns, {len(head)} are named"]
            continue
        fields: dict[str, Any] = {
            field: cell for field, cell in zip(head, cells, strict=True) if field
        }
        wrong = []
        if "truncated" in fields:
            flag = _FLAGS.get(fields["truncated"].lower())
            if flag is None:
                wrong.append(f"'truncated' must be true or false, not {fields['truncated']!r}")
            fields["truncated"] = flag
        yield fields, wrong


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
