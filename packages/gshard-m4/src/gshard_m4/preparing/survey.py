"""Looking at the input before anything is prepared: hashes, counts, and all that is wrong."""

import codecs
import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping

from gshard_m4.input_error import InputError
from gshard_m4.preparing.survey_direction import Verdict, direction
from gshard_m4.sources.files import DAMAGED, File, damaged, not_utf8, open_binary
from gshard_m4.sources.parts import Part
from gshard_m4.sources.readers import parquet_rows, rows, texts

_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class FileSurvey:
    """The SHA-256 of a file's content, its lines or rows, and what is wrong with it."""

    sha256: str
    lines: int
    faults: tuple[str, ...] = ()


def survey_file(file: File) -> FileSurvey:
    """Reads a file once: its hash after decompression, its lines, and whether all are UTF-8."""
    if file.name.endswith(".parquet"):
        with file.path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        try:
            return FileSurvey(digest, parquet_rows(file))
        except InputError as error:
            return FileSurvey("", 0, error.faults)
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    count, last = 0, b"\n"
    try:
        with open_binary(file) as opened:
            while chunk := opened.read1(_CHUNK):  # all that there is before data break off
                decoder.decode(chunk)
                digest.update(chunk)
                count += chunk.count(b"\n")
                last = chunk[-1:]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line = count + error.object[: error.start].count(b"\n") + 1
        return FileSurvey("", count, (not_utf8(file, line, error),))
    except InputError as error:
        return FileSurvey("", count, error.faults)
    except DAMAGED as error:
        return FileSurvey("", count, (damaged(file, count, error),))
    return FileSurvey(digest.hexdigest(), count + (last != b"\n"))


def part_rows(part: Part, found: Mapping[File, FileSurvey]) -> int:
    """About how many rows a part has: lines of its (source side's) file."""
    return found[part.files[0]].lines


def part_faults(part: Part, found: Mapping[File, FileSurvey], *, alone: bool = True) -> list[str]:
    """What is wrong with a part: sides of different length or the wrong way round, bad rows.

    Args:
        part: all of its rows are read.
        found: of its files.
        alone: whether the language has no other part.
    """
    if any(found[file].faults for file in part.files):
        return []
    try:
        if len(part.files) == 2 and (fault := _misaligned(part, found)):
            return [fault]
        with contextlib.closing(rows(part)) as opened:
            where = " and ".join(str(file) for file in part.files)
            verdict = direction(opened, part_rows(part, found), part.language, where)
    except InputError as error:
        return list(error.faults)
    return _wrong_way_round(part, verdict, alone)


def _misaligned(part: Part, found: Mapping[File, FileSurvey]) -> str | None:
    counts = [found[file].lines for file in part.files]
    if part.reader == "sgm":
        counts = [sum(1 for _ in texts(file, part)) for file in part.files]
    if counts[0] == counts[1]:
        return None
    source, english = part.files
    first = _first_empty_side(part, min(counts))
    hint = f"; the first line that is empty on one side only is {first}" if first else ""
    return (
        f"{part.language}: {source} has {counts[0]} lines, {english} has {counts[1]}; line"
        f" {min(counts) + 1} has no partner{hint}. Download both again, or mend the sides"
    )


def _first_empty_side(part: Part, count: int) -> int | None:
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(contextlib.closing(texts(f, part))) for f in part.files]
        for number, (a, b) in enumerate(itertools.islice(zip(*sides, strict=False), count), 1):
            if bool(a.strip()) != bool(b.strip()):
                return number
    return None


def _wrong_way_round(part: Part, verdict: Verdict, alone: bool) -> list[str]:
    """The fault of sides that are swapped or not in English, with what to do."""
    if not verdict.wrong:
        return []
    name = part.language if alone else part.name
    if part.swapped:
        remedy = "it was turned round by --swapped; give the names of the swapped files alone"
    else:
        remedy = f"if the sides are swapped, give --swapped={name}"
    first = verdict.wrong[0]
    if part.reader == "tsv" and first.is_foreign:
        remedy = f"name the columns source and target in a first line, or, {remedy}"
    if verdict.everywhere:
        return [f"{part.language}: {first.what}; {remedy}"]
    return [
        f"{part.language}: rows {first.first} to {first.last}: {first.what}; other rows are the"
        " right way round: mend the files"
    ]
