"""The rows of a part: (source, English, origin), in the order of its files."""

import contextlib
import html
import importlib
import itertools
import json
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from gshard_m4.input_error import InputError
from gshard_m4.languages import is_english
from gshard_m4.sources.columns import NAMES, Columns, columns_of
from gshard_m4.sources.files import File, lines
from gshard_m4.sources.parts import Part

Row = tuple[str, str, str]
_NULL = re.compile(r"_ ?_ ?NULL ?_ ?_")
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
_PARQUET_BATCH = 4096


def rows(part: Part) -> Generator[Row]:
    """The rows of a part; those of a matrix without the cells that are empty.

    Raises:
        InputError: a file cannot be read, a line is not what the layout says (with file and line),
            or two sides differ in length.
    """
    with contextlib.ExitStack() as stack:
        contents = [_opened(stack, file, part) for file in part.files]
        if len(part.files) == 2:
            pairs = _two_sides(contents, part)
        else:
            pairs = _READERS[part.reader](contents[0], part)
        for a, b, origin in pairs:
            yield (b, a, origin or part.origin) if part.swapped else (a, b, origin or part.origin)


def texts(file: File, part: Part) -> Generator[str]:
    """The texts of a file with one side."""
    with contextlib.ExitStack() as stack:
        yield from _side(_opened(stack, file, part), file, part)


def _opened(stack: contextlib.ExitStack, file: File, part: Part) -> Iterator[Any]:
    """The lines of a file, or the objects of a parquet file, closed with the stack."""
    content = _parquet_objects(file) if part.reader == "parquet" else lines(file)
    return stack.enter_context(contextlib.closing(content))


def _side(content: Iterator[Any], file: File, part: Part) -> Iterator[str]:
    if part.reader == "lines":
        return content
    if part.reader == "sgm":
        return _segments(content)
    column = str(part.columns[0])
    objects = _objects(content, file) if part.reader == "jsonl" else content
    return (_field(row, (column,), file, n) for n, row in enumerate(objects, start=1))


def _two_sides(contents: Sequence[Iterator[Any]], part: Part) -> Iterator[Row]:
    sides = [_side(content, file, part) for content, file in zip(contents, part.files, strict=True)]
    for number, (a, b) in enumerate(itertools.zip_longest(*sides), start=1):
        if a is None or b is None:
            short, long = part.files if a is None else part.files[::-1]
            raise InputError(
                [f"{part.language}: {short} ends before line {number}, {long} goes on; the two"
                 " sides must have the same lines"]
            )  # fmt: skip
        yield a, b, ""


def _segments(content: Iterator[str]) -> Iterator[str]:
    """The segments of WMT's SGML, one a line, without its escapes."""
    for line in content:
        for text in _SEGMENT.findall(line):
            yield html.unescape(text).strip()


def _tsv(content: Iterator[str], part: Part) -> Iterator[Row]:
    """Columns by number, or by the names in the first line; no quoting."""
    columns: Columns | None = None
    for number, line in enumerate(content, start=1):
        cells = line.split("\t")
        if columns is None:
            columns = columns_of(cells, part)
            columns.check(cells, part.files[0], number)
            if columns.is_header:
                continue
        elif len(cells) != columns.width:
            columns.check(cells, part.files[0], number)
        origin = "" if columns.origin is None else cells[columns.origin]
        yield cells[columns.source], cells[columns.english], origin


def _matrix(content: Iterator[str], part: Part) -> Iterator[Row]:
    """One language's column beside the English one; cells without a translation are no rows."""
    file = part.files[0]
    source, english = (int(column) for column in part.columns)
    width = 0
    for number, line in enumerate(content, start=1):
        cells = line.split("\t")
        if number == 1:
            width = len(cells)
            continue
        if len(cells) != width:
            raise InputError(
                [f"{file} line {number}: {len(cells)} columns, the first line has {width}"]
            )
        if not _is_null(cells[source]) and not _is_null(cells[english]):
            yield cells[source], cells[english], ""


def _is_null(cell: str) -> bool:
    return not cell or ("NULL" in cell and _NULL.search(cell) is not None)


def _objects(content: Iterator[str], file: File) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(content, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError([f"{file} line {number}: no JSON ({error})"]) from None
        if not isinstance(row, dict):
            raise InputError([f"{file} line {number}: no JSON object but {type(row).__name__}"])
        yield row


def _parquet_objects(file: File) -> Generator[dict[str, Any]]:
    if file.member:
        raise InputError([f"{file}: parquet inside an archive; unpack it first"])
    with _open_parquet(file) as opened:
        for batch in opened.iter_batches(_PARQUET_BATCH):
            yield from batch.to_pylist()


@contextlib.contextmanager
def _open_parquet(file: File) -> Iterator[Any]:
    parquet = _parquet()
    arrow_error = importlib.import_module("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(file.path) as opened:
            yield opened
    except (arrow_error, OSError) as error:
        reason = str(error).split("\n")[0]
        raise InputError([f"{file}: no parquet that can be read ({reason})"]) from None


def _parquet():
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        message = "parquet files need pyarrow: pip install 'gshard-m4[parquet]'"
        raise InputError([message]) from None


def parquet_rows(file: File) -> int:
    """The number of rows of a parquet file.

    Raises:
        InputError: the file is damaged, or pyarrow is not installed.
    """
    with _open_parquet(file) as opened:
        return opened.metadata.num_rows


def _jsonl(content: Iterator[str], part: Part) -> Iterator[Row]:
    return _from_objects(_objects(content, part.files[0]), part)


def _from_objects(objects: Iterator[dict[str, Any]], part: Part) -> Iterator[Row]:
    file = part.files[0]
    source: tuple[str, ...] = ()
    english: tuple[str, ...] = ()
    for number, row in enumerate(objects, start=1):
        if number == 1:
            source, english = fields_of(row, part)
        origin = row.get("origin")
        yield (
            _field(row, source, file, number),
            _field(row, english, file, number),
            origin if isinstance(origin, str) else "",
        )


def fields_of(row: dict[str, Any], part: Part) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where the first object of a file has its two sides.

    Raises:
        InputError: it has one side only, or names that are not known.
    """
    inside = row.get("translation")
    names = inside if isinstance(inside, dict) else row
    prefix = ("translation",) if isinstance(inside, dict) else ()
    for source, english in NAMES:
        if source in names and english in names:
            return (*prefix, source), (*prefix, english)
    english_names = [name for name in names if is_english(name)]
    if english_names and part.spelling in names:
        return (*prefix, part.spelling), (*prefix, english_names[0])
    given = ", ".join(list(names)[:8])
    if "text" in names:
        reason = "it has one text and no translation, so it is monolingual"
    else:
        reason = f"needs source and target, or {part.spelling} and en"
    raise InputError([f"{part.files[0]} line 1: has {given}; {reason}"])


def _field(row: dict[str, Any], path: tuple[str, ...], file: File, number: int) -> str:
    value: Any = row
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str):
        dotted = ".".join(path)
        raise InputError([f"{file} line {number}: {dotted!r} is {json.dumps(value)}, no text"])
    return value


_READERS: dict[str, Callable[[Iterator[Any], Part], Iterator[Row]]] = {
    "tsv": _tsv,
    "matrix": _matrix,
    "jsonl": _jsonl,
    "parquet": _from_objects,
}
