r"""Files of translations, references or sources as people have them, read strictly.

A name that ends in .jsonl is one JSON object a line, .tsv is columns under a line of their names,
names of formats that are not read are refused, anything else is plain text, one phrase a line;
each may be compressed (.gz). Lines end at \n alone: U+2028 and U+0085 are text. Only UTF-8 is
read, and nothing in it is replaced.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
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

# Formats that would be scored as if their markup were phrases, and what to do with them.
_ONE_OBJECT_A_LINE = "write one JSON object a line and name it .jsonl"
_TABLE = "save it as tab-separated text (no quotes) with a line of column names, named .tsv"
_SEGMENTS = "write its segments as plain text, one a line"
_UNPACK = "unpack it, or compress it with gzip"
_NOT_READ = {
    **dict.fromkeys(("json", "yaml", "yml"), _ONE_OBJECT_A_LINE),
    **dict.fromkeys(("csv", "xlsx", "xls", "ods", "parquet", "arrow", "feather"), _TABLE),
    **dict.fromkeys(("xml", "sgm", "sgml", "tmx", "xliff", "xlf", "html"), _SEGMENTS),
    **dict.fromkeys(("bz2", "xz", "zst", "zip", "tar", "tgz", "7z"), _UNPACK),
}


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
    name = path.name.lower().removesuffix(".gz")
    suffix = name.rpartition(".")[2]
    if suffix in _NOT_READ:
        faults.append(f"{path}: .{suffix} is not read; {_NOT_READ[suffix]}")
        return []
    lines = _lines(path, faults)
    if name.endswith(".tsv"):
        found = _from_columns(lines, role)
    elif name.endswith(".jsonl"):
        found = (_from_object(line, role) for line in lines)
    else:
        found = (({role: line}, []) for line in lines)
        if lines and all(line.startswith('{"') and line.endswith("}") for line in lines):
            faults.append(f"{path} has a JSON object in every line; name it .jsonl")
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
        if path.suffix.lower() == ".gz":
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
        given = json.loads(line, object_pairs_hook=_Pairs)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return {}, [f"not valid JSON ({reason})" if line.strip() else "blank line"]
    if not isinstance(given, _Pairs):
        return {}, [f"not a JSON object but {type(given).__name__}"]
    known = [(_field(name, role), name, value) for name, value in given if value is not None]
    named = [(field, name) for field, name, _ in known if field is not None]
    fields = {field: value for field, _, value in known if field is not None}
    return fields, [*_named_twice(named), *_field_faults(fields, role)]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object's names and values, each of them: names may repeat."""


def _kind(value: object) -> str:
    return "dict" if isinstance(value, _Pairs) else type(value).__name__


def _field(name: str, role: str) -> str | None:
    return role if name == "text" else _FIELD_OF.get(name)


def _named_twice(named: Sequence[tuple[str, str]]) -> Iterator[str]:
    """A fault for each field that more than one (field, name) gives."""
    if len(named) == len({field for field, _ in named}):
        return
    names: dict[str, list[str]] = {}
    for field, name in named:
        names.setdefault(field, []).append(repr(name))
    for field, ones in names.items():
        if len(ones) > 1:
            yield f"{' and '.join(ones)} both give the {field}; keep one"


def _field_faults(fields: dict[str, Any], role: str) -> Iterator[str]:
    if role not in fields:
        yield f"no {role}; name it {', '.join(NAMES[role])} or text"
    for field, value in fields.items():
        if field in _TEXTS and type(value) is list:
            yield (f"{field!r} is a list; give one string a line (lists of references, a stream "
                   "or a phrase each, are not read)")  # fmt: skip
        elif field == "truncated" and not isinstance(value, bool):
            yield f"'truncated' must be true or false, not {_kind(value)}"
        elif field == "id" and (isinstance(value, bool) or not isinstance(value, int | str)):
            yield f"'id' must be a whole number or a string, not {_kind(value)}"
        elif field in (*_TEXTS, "language") and not isinstance(value, str):
            yield f"{field!r} must be a string, not {_kind(value)}"
        elif isinstance(value, str) and _has_lone_surrogate(value):
            yield "text holds half of a surrogate pair; write it as UTF-8"


def _from_columns(lines: list[str], role: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Rows under the first line, which names the columns."""
    if not lines:
        return
    names = lines[0].split("\t")
    head = [_field(name, role) for name in names]
    twice = list(_named_twice([(f, name) for f, name in zip(head, names, strict=True) if f]))
    if twice:
        yield {}, [f"of the columns that the line above names, {fault}" for fault in twice]
        return
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
